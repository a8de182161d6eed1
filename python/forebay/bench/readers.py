"""How other libraries and commands find the items of a payload: each parses it, and keeps what it parsed."""

import csv
import dataclasses
import functools
import io
import itertools
import json
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

import forebay
from forebay._core import ItemIndex
from forebay.bench.payloads import Payload
from forebay.bench.peers import Peer, load_module

__all__ = ["Reader", "Sample", "list_readers", "sample_items"]

Sample = tuple[int, Any, Any]
"""The number of items, the first one and the last one, as Python objects."""

_OBJECTS_FACTOR = 12
"""Estimate of the memory that Python objects take, relative to the size of the JSON."""

_VALUES_FACTOR = 4
"""Estimate for libraries that keep unparsed values, or a tree of their own."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reader:
    """A library or command that reads items."""

    who: str
    load: Callable[[], Any]
    """Parses the payload and returns its items in a form of the library's own."""
    sample: Callable[[Any], Sample]
    """Returns what is compared of what `load` returned."""
    page: Callable[[int, int], bytes] | None
    """Returns items as a JSON array, from parsing the payload on; `None` if the library cannot."""
    iterate: Callable[[], Iterable[Any]] | None
    """Parses the payload and returns all items as Python objects; `None` if that is not what the library is for."""
    validates: bool
    """Whether it checks all of the payload."""
    memory_bytes: int


def sample_items(data: bytes, index: ItemIndex) -> Sample:
    """Return what forebay's own index says of the items of a payload."""
    first, last = (
        orjson.loads(forebay.read_items(data, index, max_bytes=len(data) + 4096, **place).content)[0]
        for place in ({"limit": 1}, {"last": 1})
    )
    return len(index), first, last


def list_readers(payload: Payload, peers: Mapping[str, Peer], path: Path) -> list[Reader]:
    """Return the readers that are installed and can read the payload, which is also in a file at `path`."""
    if payload.nature in ("csv", "tsv"):
        return [_make_csv_reader(payload)]
    makers: dict[str, Callable[[Payload], Reader | None]] = {
        "orjson": lambda payload: _make_object_reader("orjson", payload, orjson.loads, orjson.dumps),
        "msgspec": _make_msgspec_reader,
        "pysimdjson": _make_simdjson_reader,
        "json": lambda payload: _make_object_reader("json", payload, json.loads, _dump_json),
        "ijson": _make_ijson_reader,
        "jq": lambda payload: _make_jq_reader(payload, path),
    }
    made = [make(payload) for name, make in makers.items() if peers[name].version is not None]
    return [reader for reader in made if reader is not None]


def _dump_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _follow(value: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        value = value[key]
    return value


def _add_key(key: str, value: Any) -> dict[str, Any]:
    """Return an entry of a map as forebay shows it: with its key as a first member."""
    is_plain = isinstance(value, dict) and "_key" not in value
    return {"_key": key, **value} if is_plain else {"_key": key, "_value": value}


def _sample_objects(items: Any) -> Sample:
    if isinstance(items, dict):
        keys = list(items)
        return len(keys), _add_key(keys[0], items[keys[0]]), _add_key(keys[-1], items[keys[-1]])
    return len(items), items[0], items[-1]


def _slice_objects(items: Any, offset: int, limit: int) -> list[Any]:
    if isinstance(items, dict):
        return [_add_key(key, value) for key, value in itertools.islice(items.items(), offset, offset + limit)]
    return list(items[offset : offset + limit])


def _make_object_reader(
    who: str, payload: Payload, loads: Callable[[bytes], Any], dumps: Callable[[Any], bytes]
) -> Reader:
    """Return a reader that makes Python objects of everything."""
    data, keys = payload.data, payload.keys

    def load() -> Any:
        if payload.nature == "ndjson":
            return [loads(line) for line in data.splitlines() if line.strip()]
        return _follow(loads(data), keys)

    def iterate() -> Iterable[Any]:
        items = load()
        return [_add_key(key, value) for key, value in items.items()] if isinstance(items, dict) else items

    return Reader(
        who,
        load,
        _sample_objects,
        lambda offset, limit: dumps(_slice_objects(load(), offset, limit)),
        iterate,
        validates=True,
        memory_bytes=_OBJECTS_FACTOR * len(data),
    )


def _make_msgspec_reader(payload: Payload) -> Reader:
    """Return a reader of unparsed values: it knows the way to the items, and skips everything else."""
    msgspec: Any = load_module("msgspec")
    data, keys = payload.data, payload.keys
    is_map = payload.items is not None and payload.items.kind == "map"

    # Made with the first call: a key that it does not accept is then in the report.
    @functools.cache
    def make_decoder() -> Any:
        raw: Any = msgspec.Raw
        shape: Any = dict[str, raw] if is_map else list[raw]
        for key in reversed(keys):
            shape = msgspec.defstruct("Level", [("inner", shape)], rename={"inner": key})
        return msgspec.json.Decoder(shape)

    def load() -> Any:
        if payload.nature == "ndjson":
            return msgspec.json.Decoder(msgspec.Raw).decode_lines(data)
        value = make_decoder().decode(data)
        for _ in keys:
            value = value.inner
        return value

    def parse(items: Any) -> Any:
        if is_map:
            names = list(items)
            return {name: orjson.loads(bytes(items[name])) for name in dict.fromkeys((names[0], names[-1]))}
        return [orjson.loads(bytes(items[place])) for place in (0, -1)]

    def sample(items: Any) -> Sample:
        _, first, last = _sample_objects(parse(items))
        return len(items), first, last

    def page(offset: int, limit: int) -> bytes:
        items = load()
        if is_map:
            chosen = itertools.islice(items.items(), offset, offset + limit)
            return orjson.dumps([_add_key(key, orjson.loads(bytes(raw))) for key, raw in chosen])
        return bytes(msgspec.json.encode(items[offset : offset + limit]))

    return Reader("msgspec", load, sample, page, None, validates=False, memory_bytes=_VALUES_FACTOR * len(data))


def _make_simdjson_reader(payload: Payload) -> Reader | None:
    """Return a reader that parses into a tree of its own. It reads one document only."""
    if payload.nature == "ndjson":
        return None
    simdjson = load_module("pysimdjson")
    data, keys = payload.data, payload.keys

    def to_object(value: Any) -> Any:
        return orjson.loads(value.mini) if hasattr(value, "mini") else value

    def load() -> Any:
        # A parser of its own for each call, because one parser keeps only the last document.
        return _follow(simdjson.Parser().parse(data), keys)

    def sample(items: Any) -> Sample:
        if isinstance(items, simdjson.Object):
            names = list(items)
            first, last = (_add_key(name, to_object(items[name])) for name in (names[0], names[-1]))
            return len(names), first, last
        return len(items), to_object(items[0]), to_object(items[len(items) - 1])

    def page(offset: int, limit: int) -> bytes:
        items = load()
        if isinstance(items, simdjson.Object):
            names = list(items)[offset : offset + limit]
            return orjson.dumps([_add_key(name, to_object(items[name])) for name in names])
        # By number, each item would be found from the start.
        return orjson.dumps([to_object(item) for item in itertools.islice(items, offset, offset + limit)])

    return Reader("pysimdjson", load, sample, page, None, validates=True, memory_bytes=_VALUES_FACTOR * len(data))


def _make_ijson_reader(payload: Payload) -> Reader:
    """Return a reader that parses one item after the other, and keeps the first and the last one."""
    ijson = load_module("ijson")
    data = payload.data
    is_map = payload.items is not None and payload.items.kind == "map"
    prefix = ".".join(payload.keys)

    def iterate() -> Iterable[Any]:
        stream = io.BytesIO(data)
        if payload.nature == "ndjson":
            return ijson.items(stream, "", multiple_values=True, use_float=True)  # type: ignore[no-any-return]
        if is_map:
            return (_add_key(key, value) for key, value in ijson.kvitems(stream, prefix, use_float=True))
        return ijson.items(stream, f"{prefix}.item" if prefix else "item", use_float=True)  # type: ignore[no-any-return]

    def load() -> Sample:
        items = iter(iterate())
        first = last = next(items)
        count = 1
        for item in items:
            last = item
            count += 1
        return count, first, last

    def page(offset: int, limit: int) -> bytes:
        return orjson.dumps([*itertools.islice(iterate(), offset, offset + limit)])

    return Reader("ijson", load, lambda sample: sample, page, iterate, validates=True, memory_bytes=0)


def _make_jq_reader(payload: Payload, path: Path) -> Reader | None:
    """Return a reader that runs jq on a file. Its time includes the start of the process."""
    if payload.items is not None and payload.items.kind == "map":
        return None
    items = "." + "".join(f"[{json.dumps(key)}]" for key in payload.keys)

    def run(expression: str) -> bytes:
        command = ["jq", "-c", *(["-s"] if payload.nature == "ndjson" else []), expression, str(path)]
        return subprocess.run(command, check=True, capture_output=True).stdout  # noqa: S603

    return Reader(
        "jq",
        lambda: run(f"{items} | [length, .[0], .[-1]]"),
        lambda output: tuple(orjson.loads(output)),
        lambda offset, limit: run(f"{items}[{offset}:{offset + limit}]"),
        None,
        validates=True,
        memory_bytes=_OBJECTS_FACTOR * len(payload.data),
    )


def _make_csv_reader(payload: Payload) -> Reader:
    delimiter = "\t" if payload.nature == "tsv" else ","

    def load() -> list[list[str]]:
        text = io.StringIO(payload.data.decode("utf-8-sig"), newline="")
        return [row for row in csv.reader(text, delimiter=delimiter) if row]

    def name(rows: list[list[str]], places: Iterable[int]) -> list[dict[str, str]]:
        return [dict(zip(rows[0], rows[place], strict=False)) for place in places]

    def sample(rows: list[list[str]]) -> Sample:
        first, last = name(rows, (1, -1))
        return len(rows) - 1, first, last

    def page(offset: int, limit: int) -> bytes:
        rows = load()
        return orjson.dumps(name(rows, range(offset + 1, min(offset + 1 + limit, len(rows)))))

    def iterate() -> Iterable[Any]:
        rows = load()
        return (dict(zip(rows[0], row, strict=False)) for row in rows[1:])

    return Reader("csv", load, sample, page, iterate, validates=True, memory_bytes=_OBJECTS_FACTOR * len(payload.data))
