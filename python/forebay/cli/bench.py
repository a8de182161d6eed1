"""`forebay bench`: how fast forebay is on a payload, beside the libraries that are installed."""

import sys
from argparse import ArgumentTypeError, Namespace
from pathlib import Path
from typing import Any

from forebay.cli import output
from forebay.cli.errors import InputFailed, OutputFailed
from forebay.errors import ForebayError, InvalidArgument

__all__ = ["bench", "parse_groups"]

_MAX_SECONDS = 3600
_MAX_SIZE = 10**10


class SlowerThanBefore(ForebayError):
    """A benchmark is slower than `--fail-below` allows."""

    code = "slower_than_before"


def bench(args: Namespace) -> None:
    """Measure forebay on a file, or on a generated payload, beside other libraries.

    Cutting, indexing, paging, search, conditions, SQL, and a large result of a
    tool: each is done by forebay and by those of orjson, json, msgspec, pysimdjson,
    ijson, jq, re, DuckDB and fastmcp that are installed, in turn. Before any time
    is taken, both sides must return the same; what a peer returns instead, or why
    it fails, is in the table.
      forebay bench                            20 MB of generated orders
      forebay bench crawl.json --only index,search --time 5s
      forebay bench --json > before.json       and later, after a change:
      forebay bench --compare before.json
    The file is read into memory once. A ratio says how many times as long as
    forebay a peer takes, by the fastest call of each.
    """
    # Imported here, so that `--help` starts quickly.
    from forebay.bench.payloads import generate_payload, make_payload
    from forebay.bench.peers import find_peers
    from forebay.bench.report import check_comparable, compare, describe_machine, make_report
    from forebay.bench.run import run_groups

    if args.fail_below is not None and args.compare is None:
        raise InvalidArgument("--fail-below is about the speed relative to --compare FILE; give both")
    if not 0 < args.size <= _MAX_SIZE:
        raise InvalidArgument(f"--size must be more than 0 and at most {_MAX_SIZE} bytes; 100MB is a good size")
    if not 0 < args.time <= _MAX_SECONDS:
        raise InvalidArgument(f"--time must be more than 0 and at most {_MAX_SECONDS} seconds")
    old = None if args.compare is None else _read_report(args.compare)
    if args.file is None:
        payload = generate_payload(args.shape, args.size, args.seed)
    else:
        payload = make_payload(_read(args.file), args.file, None if args.file == "-" else Path(args.file))
    if old is not None:
        check_comparable(old, args.compare, payload)
    peers, machine = find_peers(), describe_machine()
    with output.show_steps() as show:
        run = run_groups(payload, peers, args.only, args.time, on_progress=show)
    report = make_report(payload, machine, peers, run)
    changes = None if old is None else compare(old, report)
    if changes is not None:
        report["changes"] = [change.to_dict() for change in changes]
    if args.svg is not None:
        _write_chart(args.svg, report)
    output.print_benchmarks(report, is_json=args.json)
    slower = [change for change in changes or () if args.fail_below is not None and change.speed < args.fail_below]
    if slower:
        names = ", ".join(f"{change.group}: {change.name} ({change.speed:.2f} ×)" for change in slower)
        raise SlowerThanBefore(f"slower than {args.fail_below} × the speed in {args.compare}: {names}")


def parse_groups(text: str) -> list[str]:
    """Parse the value of `--only`."""
    # Imported here, so that `--help` starts quickly.
    from forebay.bench.run import GROUPS

    groups = [group.strip() for group in text.split(",")]
    if unknown := [group for group in groups if group not in GROUPS]:
        raise ArgumentTypeError(f"it is one or more of {', '.join(GROUPS)}, not {unknown[0]!r:.32}")
    return [group for group in GROUPS if group in groups]


def _read(name: str) -> bytes:
    try:
        if name == "-":
            return sys.stdin.buffer.read()
        return Path(name).read_bytes()
    except OSError as error:
        raise InputFailed(f"{name} cannot be read: {error.strerror}") from None


def _read_report(name: str) -> Any:
    import orjson

    try:
        return orjson.loads(_read(name))
    except orjson.JSONDecodeError as error:
        raise InputFailed(f"{name} is not JSON: {error}; write it with forebay bench --json > {name}") from None


def _write_chart(name: str, report: dict[str, Any]) -> None:
    from forebay.bench.chart import draw_chart

    try:
        Path(name).write_text(draw_chart(report), encoding="utf-8")
    except OSError as error:
        raise OutputFailed(f"{name} cannot be written: {error.strerror}") from None
