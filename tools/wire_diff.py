"""Compare what two builds of the package say, byte for byte.

    python tools/wire_diff.py BEFORE_PYTHON AFTER_PYTHON

Each argument is an interpreter with a build of the package installed. `--before-name` gives the name of the first
build, where it differs. Both builds run the same conversations, and every byte that comes back is compared: lines on
stdout, HTTP status, headers, bodies and events, the requests that upstream servers receive, and the output and exit
code of commands. Handles and other random ids, times, ports, temporary folders and the name of the package are
normalised first (see `wire/normalise.py`).
"""

import argparse
import concurrent.futures
import dataclasses
import fnmatch
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from wire.adapter_talks import ADAPTERS
from wire.build import NAME, Build, BuildNotFound, find_build
from wire.cli_talks import CLI
from wire.normalise import is_same
from wire.serve_talks import SERVE
from wire.talk import Exchange, Talk
from wire.wrap_talks import WRAP


@dataclasses.dataclass(frozen=True)
class Expected:
    """An intended difference."""

    exchange: str
    """`conversation/exchange`; `*` stands for anything."""
    reason: str
    dropped: bytes | None = None
    """A regular expression removed from both sides before they are compared; without it the whole may differ."""


_MESSAGE_PATTERN = rb'"message":"(?:[^"\\]|\\.)*"'

EXPECTED: Sequence[Expected] = (
    Expected("cli help/*", "help and errors of the command line were rewritten"),
    Expected("cli config/config*", "options were removed or renamed, and their help texts rewritten"),
    Expected("cli terminal/config", "as above"),
    Expected("cli terminal/ls", "columns have plainer titles"),
    Expected("cli terminal/stats", "notes were rewritten"),
    Expected("cli terminal/unknown handle", "errors of the command line name flags and commands"),
    Expected("cli store/*", "as above", _MESSAGE_PATTERN),
    Expected("cli tokens/*", "as above", _MESSAGE_PATTERN),
    Expected("cli adopt/*", "notes were rewritten"),
    Expected("serve failures/configuration: *", "errors in the configuration were rewritten", _MESSAGE_PATTERN),
)
"""Intended differences. Remove an entry when both builds have the change."""

CONVERSATIONS: dict[str, Callable[[Talk], None]] = {**WRAP, **SERVE, **ADAPTERS, **CLI}

CONTEXT_BYTES = 160
"""Bytes to print around the first difference."""


@dataclasses.dataclass(frozen=True)
class Recording:
    """One conversation with one build; `failure` is the traceback of one that broke off."""

    exchanges: Sequence[Exchange]
    failure: str | None = None


def run(name: str, build: Build, folder: Path) -> Recording:
    """Run a conversation in its own folder."""
    folder.mkdir(mode=0o700, parents=True)
    talk = Talk(build, folder)
    try:
        CONVERSATIONS[name](talk)
    except Exception:
        return Recording(talk.exchanges, traceback.format_exc())
    return Recording(talk.exchanges)


def compare(name: str, before: Recording, after: Recording, *, has_two_names: bool) -> list[str]:
    """Return the differences of a conversation, as texts to print."""
    differences = [
        f"{name}: the conversation with {side} broke off\n{recording.failure}"
        for side, recording in (("before", before), ("after", after))
        if recording.failure
    ]
    others = {exchange.name: exchange for exchange in after.exchanges}
    for exchange in before.exchanges:
        other = others.pop(exchange.name, None)
        if other is None:
            differences.append(f"{name}/{exchange.name}: only before\n  before: {shorten(exchange.data)}")
        elif difference := compare_exchange(
            drop_expected(f"{name}/{exchange.name}", exchange),
            drop_expected(f"{name}/{other.name}", other),
            has_two_names=has_two_names,
        ):
            differences.append(f"{name}/{exchange.name}\n{difference}")
    differences += [f"{name}/{other.name}: only after\n  after:  {shorten(other.data)}" for other in others.values()]
    return differences


def compare_exchange(before: Exchange, after: Exchange, *, has_two_names: bool) -> str | None:
    """Return a text about the first difference of two exchanges."""
    if before.data == after.data:
        return None
    old, new, old_raw, new_raw = (
        data.splitlines(keepends=True) for data in (before.data, after.data, before.raw, after.raw)
    )
    if len(old) == len(new) == len(old_raw) == len(new_raw):
        pairs = [pair for pair in zip(old, new, old_raw, new_raw, strict=True) if pair[0] != pair[1]]
        if has_two_names:
            pairs = [pair for pair in pairs if not is_same(*pair)]
        if not pairs:
            return None
        old_line, new_line = pairs[0][:2]
    else:
        old_line, new_line = before.data, after.data
    start = next(
        (at for at, (old_byte, new_byte) in enumerate(zip(old_line, new_line, strict=False)) if old_byte != new_byte),
        min(len(old_line), len(new_line)),
    )
    window = slice(max(0, start - CONTEXT_BYTES // 2), start + CONTEXT_BYTES)
    return (
        f"  at byte {start} of {len(old_line)} and {len(new_line)}\n"
        f"  before: {shorten(old_line[window])}\n"
        f"  after:  {shorten(new_line[window])}"
    )


def shorten(data: bytes) -> str:
    text = data[: 2 * CONTEXT_BYTES].decode(errors="backslashreplace")
    return text.replace("\r", "\\r").replace("\n", "\\n")


def save_recording(recording: Recording, path: Path) -> None:
    """Write the normalised exchanges of a conversation to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"".join(b"## %b\n%b\n" % (exchange.name.encode(), exchange.data) for exchange in recording.exchanges)
    )


def drop_expected(name: str, exchange: Exchange) -> Exchange:
    """Remove the parts of an exchange that are expected to differ."""
    for expected in EXPECTED:
        if expected.dropped is not None and fnmatch.fnmatchcase(name, expected.exchange):
            data = re.sub(expected.dropped, b"", exchange.data, flags=re.DOTALL)
            exchange = dataclasses.replace(exchange, data=data)
    return exchange


def expected_reason(difference: str) -> str | None:
    """Return the reason why a whole exchange may differ, if there is one."""
    name = difference.partition("\n")[0].removesuffix(": only before").removesuffix(": only after")
    reasons = (
        expected.reason
        for expected in EXPECTED
        if expected.dropped is None and fnmatch.fnmatchcase(name, expected.exchange)
    )
    return next(reasons, None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", metavar="BEFORE_PYTHON", nargs="?")
    parser.add_argument("after", metavar="AFTER_PYTHON", nargs="?")
    parser.add_argument("--before-name", metavar="NAME", default=NAME, help=f"of the first build (default: {NAME})")
    parser.add_argument("--only", metavar="PATTERN", default="*", help="only conversations of this name: 'wrap*'")
    parser.add_argument("--jobs", metavar="N", type=int, default=2, help="how many conversations at once (default: 2)")
    parser.add_argument("--list", action="store_true", help="list the conversations and end")
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="write the normalised exchanges below this folder")
    options = parser.parse_args()
    names = [name for name in CONVERSATIONS if fnmatch.fnmatchcase(name, options.only)]
    if options.list:
        print("\n".join(names))
        return 0
    if options.before is None or options.after is None:
        parser.error("two interpreters are needed: BEFORE_PYTHON AFTER_PYTHON")
    try:
        builds = {"a": find_build(options.before, options.before_name), "b": find_build(options.after)}
    except BuildNotFound as error:
        parser.error(str(error))
    has_two_names = len({build.name for build in builds.values()}) > 1
    exchanges, differences = 0, 0
    with (
        tempfile.TemporaryDirectory(prefix="wire-diff-") as root,
        concurrent.futures.ThreadPoolExecutor(options.jobs) as pool,
    ):
        running = {
            (name, side): pool.submit(run, name, build, Path(root) / side / f"conversation-{number:02}")
            for number, name in enumerate(names)
            for side, build in builds.items()
        }
        for name in names:
            before, after = (running[name, side].result() for side in builds)
            exchanges += max(len(before.exchanges), len(after.exchanges))
            if options.keep is not None:
                save_recording(before, options.keep / "before" / f"{name}.txt")
                save_recording(after, options.keep / "after" / f"{name}.txt")
            for difference in compare(name, before, after, has_two_names=has_two_names):
                reason = expected_reason(difference)
                differences += reason is None
                print(difference if reason is None else f"{difference}\n  expected: {reason}", flush=True)
    print(f"{exchanges} exchanges in {len(names)} conversations compared: {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
