"""Overviews of at most 10 KB, beside parsing everything and cutting Python objects."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import orjson

import forebay
from forebay.bench.contest import FOREBAY, Benchmark, Contender
from forebay.bench.peers import load_module
from forebay.bench.workspace import NotApplicable, Workspace

__all__ = ["cut_objects", "list_truncations", "truncate_objects"]

_BUDGET_BYTES = 10_240
_AMPLE_BYTES = 64 << 20
"""A budget that changes nothing: then both sides cut by the same limits, and can be compared."""

_MAX_DEPTH = 4
_MAX_KEYS = 100
_MAX_SHORT_CHARS = 64
_SHOWN_LINES = 10
_MARKER = "[truncated]"
_OBJECTS_FACTOR = 12


def cut_objects(value: Any, items: int, chars: int, depth: int = 0) -> Any:
    """Cut Python objects by the limits of `forebay.truncate`."""
    if depth > _MAX_DEPTH:
        return value if len(orjson.dumps(value)) <= len(_MARKER) + 2 else _MARKER
    match value:
        case str() if len(value) > chars:
            return value[:chars] + "..."
        case list():
            shown = [cut_objects(item, items, chars, depth + 1) for item in value[:items]]
            return shown if len(value) <= items else {"items": shown, "totalCount": len(value), "showing": items}
        case dict():
            keys = [*value][:_MAX_KEYS]
            members = {key: cut_objects(value[key], items, chars, depth + 1) for key in keys}
            return members if len(keys) == len(value) else {**members, "...": len(value) - len(keys)}
    return value


def truncate_objects(
    data: bytes,
    max_bytes: int = _BUDGET_BYTES,
    loads: Callable[[bytes], Any] = orjson.loads,
    dumps: Callable[[Any], bytes] = orjson.dumps,
) -> bytes:
    """Load, cut and dump a document, halving the limits until the result fits."""
    value = loads(data)
    items, chars = 10, 500
    while len(answer := dumps(cut_objects(value, items, chars))) > max_bytes and items:
        items, chars = items // 2, chars // 2
    return answer


def list_truncations(work: Workspace) -> Iterator[Benchmark]:
    """Yield the benchmarks of overviews that apply to a payload."""
    payload = work.payload
    if payload.nature == "binary":
        raise NotApplicable("the payload is binary")
    if payload.nature in ("json", "ndjson"):
        yield _make_json_benchmark(work)
    else:
        yield _make_text_benchmark(work)


def _make_json_benchmark(work: Workspace) -> Benchmark:
    data, is_lines = work.payload.data, work.payload.nature == "ndjson"

    def wrap(loads: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        return (lambda data: [loads(line) for line in data.splitlines() if line.strip()]) if is_lines else loads

    libraries: dict[str, tuple[Callable[[bytes], Any], Callable[[Any], bytes]]] = {
        "orjson": (wrap(orjson.loads), orjson.dumps),
        "json": (wrap(json.loads), lambda value: json.dumps(value, ensure_ascii=False).encode()),
    }
    if work.has("msgspec"):
        msgspec = load_module("msgspec")
        libraries["msgspec"] = wrap(msgspec.json.decode), msgspec.json.encode

    def make_peer(who: str) -> Contender:
        loads, dumps = libraries[who]
        return Contender(
            who,
            lambda: truncate_objects(data, loads=loads, dumps=dumps),
            lambda result: (result, lambda: truncate_objects(data, _AMPLE_BYTES, loads, dumps)),
            describe=_describe_overview,
            memory_bytes=_OBJECTS_FACTOR * len(data),
        )

    def find_flaw(ours: Any, theirs: Any) -> str | None:
        """Compare what both sides return for an ample budget, and the sizes for the small one."""
        overview, make_ample = theirs
        if len(overview) > _BUDGET_BYTES:
            return f"returns {len(overview):,} bytes: halving its limits does not make it fit"
        is_same = orjson.loads(make_ample()) == orjson.loads(ours[1]())
        return None if is_same else "shows another part of the document"

    return Benchmark(
        "truncate",
        f"overview in {_BUDGET_BYTES:,} bytes",
        len(data),
        Contender(
            FOREBAY,
            lambda: forebay.truncate(data, max_bytes=_BUDGET_BYTES),
            lambda result: (result, lambda: forebay.truncate(data, max_bytes=_AMPLE_BYTES)),
            describe=_describe_overview,
        ),
        [work.memcpy, *map(make_peer, libraries)],
        find_flaw=find_flaw,
        note="load, cut and dump; with room for all of it, both sides show the same",
    )


def _describe_overview(overview: bytes) -> str:
    orjson.loads(overview)
    return f"{len(overview):,} bytes of valid JSON"


def _make_text_benchmark(work: Workspace) -> Benchmark:
    data = work.payload.data

    def truncate_in_python() -> str:
        lines = data.splitlines(keepends=True)
        left_out = len(lines) - 2 * _SHOWN_LINES
        if left_out <= 0:
            return data.decode()
        head, tail = b"".join(lines[:_SHOWN_LINES]), b"".join(lines[-_SHOWN_LINES:])
        return f"{head.decode()}[... {left_out:,} lines left out ...]\n{tail.decode()}"

    return Benchmark(
        "truncate",
        f"first and last {_SHOWN_LINES} lines",
        len(data),
        Contender(FOREBAY, lambda: forebay.truncate_lines(data, _SHOWN_LINES, _SHOWN_LINES, max_bytes=_BUDGET_BYTES)),
        [
            work.memcpy,
            Contender("splitlines", truncate_in_python, memory_bytes=_OBJECTS_FACTOR * len(data)),
        ],
        note="both count the lines between",
    )
