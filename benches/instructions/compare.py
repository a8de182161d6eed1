"""Count the instructions that routines execute on aarch64, with NEON and without it.

    python benches/instructions/compare.py NEON_PROGRAM SCALAR_PROGRAM PLUGIN

Both programs are `call.rs`, and the plugin is `count.c`; `make instructions` builds them. QEMU executes the programs,
so the counts are exact and the same on every machine. They do not predict times, because some instructions take longer
than others. The result of each routine is checked before its count is reported.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from corpus import BY_NAME, MB

__all__ = ["main"]


@dataclass(frozen=True)
class Case:
    routine: str
    corpora: tuple[str, ...]
    is_right: Callable[[bytes, bytes], bool]
    """Whether the second argument is the routine's result for the first."""


def is_item_count(data: bytes, result: bytes) -> bool:
    try:
        return len(json.loads(data)) == int(result)
    except json.JSONDecodeError:
        return is_line_count(data, result)


def is_line_count(data: bytes, result: bytes) -> bool:
    return len(data.split(b"\n")) - data.endswith(b"\n") == int(result)


def is_overview(data: bytes, result: bytes) -> bool:
    overview = json.loads(result)
    return bool(overview["totalCount"] == len(json.loads(data)) and overview["showing"] == len(overview["items"]))


CASES = (
    Case("trusted", ("records", "big_items", "tweets", "deep", "tiny_ints", "ndjson"), is_item_count),
    Case("validated", ("records", "big_items", "tweets", "deep", "tiny_ints", "ndjson"), is_item_count),
    Case("lines", ("log",), is_line_count),
    Case("truncate", ("records", "big_items", "tweets"), is_overview),
)


def main() -> int:
    parser = argparse.ArgumentParser(description="Count the instructions that routines execute on aarch64.")
    for name in ("neon", "scalar", "plugin"):
        parser.add_argument(name, type=Path)
    arguments = parser.parse_args()
    print("| Routine | Payload | Instructions per byte with NEON | without | ratio |\n|---|---|--:|--:|--:|")
    for case in CASES:
        for corpus in case.corpora:
            data = BY_NAME[corpus](MB)
            neon = measure(arguments.neon, arguments.plugin, case, data) / len(data)
            scalar = measure(arguments.scalar, arguments.plugin, case, data) / len(data)
            print(f"| {case.routine} | {corpus} | {neon:.2f} | {scalar:.2f} | {scalar / neon:.2f} |", flush=True)
    return 0


def measure(program: Path, plugin: Path, case: Case, data: bytes) -> int:
    """Return how many instructions one call executes: the difference between a run with two calls and one with one."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        once, twice = (run(program, plugin, case.routine, file.name, times) for times in (1, 2))
    for result, _ in (once, twice):
        assert case.is_right(data, result), f"{case.routine} returned {result[:100]!r}"
    return twice[1] - once[1]


def run(program: Path, plugin: Path, routine: str, path: str, times: int) -> tuple[bytes, int]:
    """Return what a program printed, and how many instructions it executed."""
    emulator = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-plugin", str(plugin)]
    command = [*emulator, str(program), routine, path, str(times)]
    process = subprocess.run(command, capture_output=True, check=True)
    return process.stdout, int(process.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
