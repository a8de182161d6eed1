"""The calls of the viewer: `output_fetch`, `output_search` and `output_query` on stored outputs, within one budget."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from forebay.arguments import did_you_mean, short_repr
from forebay.errors import InvalidArgument, PathNotFound
from forebay.store import Store
from forebay.store.handles import Principal, extract_handle
from forebay.store.pages import PageRequest
from forebay.store.queries import QueryRequest
from forebay.store.search import SearchRequest

__all__ = ["MAX_PAGE_BYTES", "READERS", "call_reader"]

MAX_PAGE_BYTES = 65536
"""Maximum size of a page for the viewer."""

_RESERVED_FIELDS = frozenset(("max_bytes", "escape_levels", "is_ascii", "timeout"))
"""Fields of the requests that only this module sets, never the caller."""


def call_reader(store: Store, principal: Principal, name: str, arguments: object) -> bytes:
    """Return the result of one of `READERS` as JSON. Raises `ForebayError`.

    The arguments are those of the tool with this name. A person reads the result, not a model, so the call is
    not counted in `Store.call_counts`; the journal records it.
    """
    if not isinstance(arguments, Mapping):
        raise InvalidArgument(f"the arguments of {name} must be a JSON object")
    options = {str(key): value for key, value in arguments.items() if value is not None}
    handle: Any = extract_handle(options.pop("output_handle", ""))
    return READERS[name](store, principal, handle, options)


def _make_request(kind: type, name: str, options: Mapping[str, Any]) -> Any:
    fields = {field.name: field for field in dataclasses.fields(kind) if field.name not in _RESERVED_FIELDS}
    for option in options:
        if option not in fields:
            hint = did_you_mean(option, fields, f"its arguments are output_handle, {', '.join(fields)}")
            raise InvalidArgument(f"{name} has no argument {option!r:.64}; {hint}")
    for field in fields.values():
        if field.name not in options and field.default is dataclasses.MISSING:
            raise InvalidArgument(f"{name} needs {field.name}")
    return kind(**options, max_bytes=MAX_PAGE_BYTES)


def _fetch(store: Store, principal: Principal, handle: str, options: Mapping[str, Any]) -> bytes:
    request = _make_request(PageRequest, "output_fetch", options)
    try:
        return store.fetch_page(handle, request, principal=principal).to_json()
    except PathNotFound:
        if request.fields is not None:
            raise
        outline = store.outline(handle, principal=principal)
        raise PathNotFound(f"nothing at path {short_repr(request.path)}; there is {outline}") from None


def _search(store: Store, principal: Principal, handle: str, options: Mapping[str, Any]) -> bytes:
    request = _make_request(SearchRequest, "output_search", options)
    return store.search_page(handle, request, principal=principal).to_json()


def _query(store: Store, principal: Principal, handle: str, options: Mapping[str, Any]) -> bytes:
    request = _make_request(QueryRequest, "output_query", options)
    return store.query_page(handle, request, principal=principal).to_json()


READERS: Mapping[str, Callable[[Store, Principal, str, Mapping[str, Any]], bytes]] = {
    "output_fetch": _fetch,
    "output_search": _search,
    "output_query": _query,
}
"""The calls, by the names of the tools."""
