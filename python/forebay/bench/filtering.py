"""Items of a stored payload that fulfil a condition, beside parsing all of it and a loop."""

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from forebay.bench.contest import FOREBAY, Benchmark, Contender
from forebay.bench.fields import Field, choose_field
from forebay.bench.readers import Reader
from forebay.bench.workspace import NotApplicable, Workspace

__all__ = ["list_filters"]

_LIMIT = 50
_MAX_PAGE_BYTES = 64 << 20


def list_filters(work: Workspace) -> Iterator[Benchmark]:
    """Yield the benchmark of conditions, if the items have a field that suits."""
    payload = work.payload
    if payload.items is None:
        raise NotApplicable("the payload has no items")
    field = choose_field(payload.data, payload.items)
    if field is None:
        raise NotApplicable("no field of the items has few different texts as values")
    handle = work.put()

    def fetch() -> tuple[int, bytes]:
        # The store is new, so it has no counts to reuse.
        with work.open_store() as store:
            page = store.fetch(handle, where={field.name: field.value}, limit=_LIMIT, max_bytes=_MAX_PAGE_BYTES)
        return page.total, bytes(page.content)  # type: ignore[arg-type]

    yield Benchmark(
        "where",
        f"{field.name} = {field.value!r}, the first {_LIMIT}",
        len(payload.data),
        Contender(FOREBAY, fetch, lambda found: (found[0], orjson.loads(found[1])), describe=_describe),
        [_make_peer(reader, field) for reader in work.readers if reader.iterate is not None],
        note="the number of matches and the first of them; forebay reads them from a store, peers from memory",
    )


def _describe(found: tuple[int, bytes]) -> str:
    return f"{found[0]:,} items match"


def _make_peer(reader: Reader, field: Field) -> Contender:
    def loop() -> tuple[int, list[Any]]:
        items: Iterable[Any] = reader.iterate() if reader.iterate is not None else ()
        found = [item for item in items if isinstance(item, dict) and item.get(field.name) == field.value]
        return len(found), found[:_LIMIT]

    return Contender(f"{reader.who} and a loop", functools.partial(loop), memory_bytes=reader.memory_bytes)
