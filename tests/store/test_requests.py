"""The request objects have the parameters of the methods they stand for."""

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forebay import Store
from forebay.store.pages import PageRequest
from forebay.store.put import PutRequest
from forebay.store.search import SearchRequest
from stores import store_at


@pytest.mark.parametrize(
    ("method", "request_type", "others"),
    [
        (Store.fetch, PageRequest, {"self", "handle", "principal"}),
        (Store.search, SearchRequest, {"self", "handle", "principal"}),
        (Store.put, PutRequest, {"self", "payload"}),
    ],
)
def test_a_request_has_the_parameters_of_its_method(
    method: Callable[..., Any], request_type: type[Any], others: set[str]
) -> None:
    parameters = {name: parameter.default for name, parameter in inspect.signature(method).parameters.items()}
    fields = {field.name: field.default for field in dataclasses.fields(request_type)}
    missing = {dataclasses.MISSING: inspect.Parameter.empty}
    assert {name: missing.get(default, default) for name, default in fields.items()} == {
        name: default for name, default in parameters.items() if name not in others
    }


def test_a_request_object_reads_the_same_page_as_its_parameters(tmp_path: Path) -> None:
    with store_at(tmp_path / "store") as store:
        handle = store.put({"rows": [{"id": n, "name": "é" * n} for n in range(100)]}, principal="ann").output_handle
        page: dict[str, Any] = {"offset": 7, "limit": 5, "fields": ["id"], "max_bytes": 2000, "escape_levels": 1}
        assert store.fetch_page(handle, PageRequest(**page), principal="ann") == store.fetch(
            handle, **page, principal="ann"
        )
        search: dict[str, Any] = {"pattern": "É", "ignore_case": True, "start": 50, "limit": 3, "is_ascii": True}
        assert store.search_page(handle, SearchRequest(**search), principal="ann") == store.search(
            handle, **search, principal="ann"
        )
