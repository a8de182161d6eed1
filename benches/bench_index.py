"""Find the items of a payload, trusted and validated."""

from collections.abc import Callable
from typing import Any, NamedTuple

import corpus
import forebay
import msgspec
import orjson
import pytest
import simdjson
from conftest import Measure
from forebay.bench.memcpy import Memcpy

# simdjson stores the length of an array in 24 bits.
SIMDJSON_MAX_ITEMS = 0xFFFFFF

Sample = tuple[int, Any, Any]


class Contender(NamedTuple):
    """The timed function, and a function that returns the number of items found, the first one and the last one."""

    work: Callable[[bytes], Any]
    sample: Callable[[bytes, Any], Sample]


class Wrapped(msgspec.Struct):
    statuses: list[msgspec.Raw]


class Keyed(msgspec.Struct):
    records: dict[str, msgspec.Raw]


def forebay_sample(data: bytes, index: forebay.ItemIndex) -> Sample:
    first = forebay.read_items(data, index, limit=1)
    last = forebay.read_items(data, index, last=1)
    return len(index), orjson.loads(first.content)[0], orjson.loads(last.content)[0]


def raw_sample(_: bytes, items: list[msgspec.Raw]) -> Sample:
    return len(items), orjson.loads(bytes(items[0])), orjson.loads(bytes(items[-1]))


def object_sample(_: bytes, items: list[Any]) -> Sample:
    return len(items), items[0], items[-1]


def keyed_sample(values: Any, load: Callable[[Any], Any]) -> Sample:
    keys = list(values)
    first, last = ({"_key": key, **load(values[key])} for key in (keys[0], keys[-1]))
    return len(keys), first, last


def index_in_one_thread(data: bytes, validate: bool = True) -> forebay.ItemIndex:
    """Index like `index_items`, which validates large payloads in two threads: the peers have one."""
    indexer = forebay.ItemIndexer(validate=validate)
    indexer.feed(data)
    return indexer.finish()


def forebay_index(validate: bool) -> Contender:
    return Contender(lambda data: index_in_one_thread(data, validate), forebay_sample)


def msgspec_raw(name: str) -> Contender:
    if name == "wrapped":
        return Contender(msgspec.json.Decoder(Wrapped).decode, lambda data, value: raw_sample(data, value.statuses))
    if name == "keyed":
        decode = msgspec.json.Decoder(Keyed).decode
        return Contender(decode, lambda _, value: keyed_sample(value.records, lambda raw: orjson.loads(bytes(raw))))
    if name == "ndjson":
        return Contender(msgspec.json.Decoder(msgspec.Raw).decode_lines, raw_sample)
    return Contender(msgspec.json.Decoder(list[msgspec.Raw]).decode, raw_sample)


def orjson_loads(name: str) -> Contender:
    if name == "wrapped":
        return Contender(orjson.loads, lambda data, value: object_sample(data, value["statuses"]))
    if name == "keyed":
        return Contender(orjson.loads, lambda _, value: keyed_sample(value["records"], dict))
    if name == "ndjson":
        return Contender(lambda data: [orjson.loads(line) for line in data.splitlines()], object_sample)
    return Contender(orjson.loads, object_sample)


def simdjson_parse(name: str) -> Contender:
    def sample(_: bytes, document: Any) -> Sample:
        if name == "keyed":
            return keyed_sample(document["records"], simdjson_value)
        items = document["statuses"] if name == "wrapped" else document
        return len(items), simdjson_value(items[0]), simdjson_value(items[len(items) - 1])

    return Contender(simdjson.Parser().parse, sample)


def simdjson_value(value: Any) -> Any:
    return orjson.loads(value.mini) if hasattr(value, "mini") else value


def agree(theirs: Sample, ours: Sample) -> bool:
    if theirs[0] == SIMDJSON_MAX_ITEMS:
        return ours[0] >= SIMDJSON_MAX_ITEMS and theirs[1] == ours[1]
    return theirs == ours


def contender(who: str, name: str, validate: bool) -> Contender:
    makers: dict[str, Callable[[], Contender]] = {
        "forebay": lambda: forebay_index(validate),
        "msgspec": lambda: msgspec_raw(name),
        "orjson": lambda: orjson_loads(name),
        "pysimdjson": lambda: simdjson_parse(name),
    }
    return makers[who]()


def run(measure: Measure, row: str, name: str, size: str, who: str, validate: bool) -> None:
    data = corpus.load(name, size)
    label = f"{name} {size}"
    if who == "memcpy":
        copy = Memcpy(data)
        measure(row, label, who, len(data), copy)
        assert copy.is_equal()
        return
    ours = contender("forebay", name, validate)
    theirs = contender(who, name, validate)
    assert agree(theirs.sample(data, theirs.work(data)), ours.sample(data, ours.work(data)))
    measure(row, label, who, len(data), theirs.work, data)


DOCUMENTS = ["records", "big_items", "tweets", "wrapped", "keyed", "deep", "tiny_ints"]
LOADS = [("records", "1 MB"), *((name, "100 MB") for name in [*DOCUMENTS, "ndjson"])]


@pytest.mark.parametrize("who", ["forebay", "memcpy", "msgspec", "orjson"])
@pytest.mark.parametrize(("name", "size"), LOADS)
def bench_trusted(measure: Measure, name: str, size: str, who: str) -> None:
    run(measure, "index, trusted", name, size, who, validate=False)


@pytest.mark.parametrize("who", ["forebay", "memcpy", "pysimdjson"])
@pytest.mark.parametrize(("name", "size"), [load for load in LOADS if load[0] != "ndjson"])
def bench_validated(measure: Measure, name: str, size: str, who: str) -> None:
    run(measure, "index, validated", name, size, who, validate=True)


@pytest.mark.parametrize("who", ["forebay", "memcpy"])
def bench_validated_rows(measure: Measure, who: str) -> None:
    """pysimdjson reads one document only."""
    run(measure, "index, validated", "ndjson", "100 MB", who, validate=True)


# 9 MB is just above the size from which two threads read. There most of the overhead is starting the second thread.
TWO_THREAD_LOADS = [(name, size) for name in ("records", "tweets", "ndjson") for size in ("9 MB", "20 MB")]
TWO_THREAD_LOADS += [(name, "100 MB") for name in [*DOCUMENTS, "ndjson"]]


@pytest.mark.parametrize("who", ["forebay", "1 thread"])
@pytest.mark.parametrize(("name", "size"), TWO_THREAD_LOADS)
def bench_validated_in_two_threads(measure: Measure, name: str, size: str, who: str) -> None:
    data = corpus.load(name, size)
    assert forebay.index_items(data) == index_in_one_thread(data)
    works: dict[str, Callable[[bytes], Any]] = {"forebay": forebay.index_items, "1 thread": index_in_one_thread}
    measure("index, validated, 2 threads", f"{name} {size}", who, len(data), works[who], data)


@pytest.mark.parametrize("who", ["forebay", "memcpy", "splitlines"])
def bench_lines(measure: Measure, who: str) -> None:
    data = corpus.load("log", "100 MB")
    assert len(forebay.index_lines(data)) == len(data.splitlines())
    works: dict[str, Callable[[], Any]] = {
        "forebay": lambda: forebay.index_lines(data),
        "memcpy": Memcpy(data),
        "splitlines": data.splitlines,
    }
    measure("index, lines", "log 100 MB", who, len(data), works[who])
