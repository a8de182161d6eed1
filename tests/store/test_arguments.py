"""Arguments of the wrong type are refused by name, and requests have the parameters of their methods."""

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from forebay import InvalidArgument, Store
from forebay.store.pages import PageRequest
from forebay.store.put import PutRequest
from forebay.store.search import SearchRequest
from stores import store_at


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store_at(tmp_path_factory.mktemp("store")) as opened:
        yield opened


@pytest.fixture(scope="module")
def handle(store: Store) -> str:
    return store.put({"rows": [{"a": 1}, {"a": 2}]}).output_handle


def refusal(method: Callable[..., object], *args: Any, **options: Any) -> str:
    with pytest.raises(InvalidArgument) as raised:
        method(*args, **options)
    assert len(str(raised.value)) < 200
    return str(raised.value)


NOT_INTEGERS = ["3", "1k", 1.5, 3.0, True, False, b"3", [3], {"a": 1}, "9" * 100_000, [10**5000]]


@pytest.mark.parametrize("value", NOT_INTEGERS, ids=lambda value: type(value).__name__)
def test_a_number_is_a_whole_number(value: Any, store: Store, handle: str) -> None:
    says = "must be a whole number, such as 100, not "
    for name in ("offset", "limit", "max_bytes", "escape_levels"):
        assert refusal(store.fetch, handle, **{name: value}).startswith(f"{name} {says}")
    assert refusal(store.outline, handle, value).startswith(f"max_bytes {says}")
    for name in ("offset", "limit", "context", "max_bytes", "escape_levels"):
        assert refusal(store.search, handle, "a", **{name: value}).startswith(f"{name} {says}")


def test_the_error_has_the_wrong_value(store: Store, handle: str) -> None:
    assert refusal(store.fetch, handle, offset="3").endswith("not '3'")
    assert refusal(store.fetch, handle, max_bytes=1.5).endswith("not 1.5")
    assert refusal(store.fetch, handle, limit=True).endswith("not True")


@pytest.mark.parametrize("value", [3, b"/rows", ["/rows"], True, 1.5], ids=repr)
def test_a_path_and_a_pattern_are_texts(value: Any, store: Store, handle: str) -> None:
    assert refusal(store.fetch, handle, path=value) == f"path must be a text, not {value!r}"
    assert refusal(store.get, handle, value) == f"pointer must be a text, not {value!r}"
    assert refusal(store.search, handle, value) == f"pattern must be a text, not {value!r}"


@pytest.mark.parametrize("value", ["a", b"a", 3, True, {"a": 1}], ids=repr)
def test_fields_are_a_list(value: Any, store: Store, handle: str) -> None:
    message = refusal(store.fetch, handle, fields=value)
    assert message == f'fields must be a list of names, such as ["id", "user.name"], not {value!r}'


@pytest.mark.parametrize("value", [1, None, b"a", ["a"], True], ids=repr)
def test_fields_are_texts(value: Any, store: Store, handle: str) -> None:
    assert refusal(store.fetch, handle, fields=["a", value]) == f"each of the fields must be a text, not {value!r}"


@pytest.mark.parametrize("value", ["yes", "true", 1, 0, None], ids=repr)
@pytest.mark.parametrize("name", ["regex", "ignore_case"])
def test_a_flag_is_true_or_false(name: str, value: Any, store: Store, handle: str) -> None:
    assert refusal(store.search, handle, "a", **{name: value}) == f"{name} must be true or false, not {value!r}"


def test_an_unknown_format_is_refused(store: Store, handle: str) -> None:
    for value in (3, None, ["items"], b"items"):
        assert refusal(store.fetch, handle, format=value).startswith("format is one of auto, items, lines, text, bytes")


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
        search: dict[str, Any] = {"pattern": "É", "ignore_case": True, "offset": 50, "limit": 3, "is_ascii": True}
        assert store.search_page(handle, SearchRequest(**search), principal="ann") == store.search(
            handle, **search, principal="ann"
        )
