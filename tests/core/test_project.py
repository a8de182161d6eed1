"""`project` and `has_fields`, compared with plain Python."""

import contextlib
import json
from typing import Any

import pytest
from documents import pointer
from forebay import InvalidArgument, InvalidJSON, project
from forebay._core import has_fields
from hypothesis import given
from hypothesis import strategies as st

keys = st.sampled_from(["a", "b", "é.", "\\"])
scalars = st.none() | st.integers() | st.sampled_from(["x", "],}", '"'])
items = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(keys, inner, max_size=4), max_leaves=20
)
paths = st.lists(st.lists(keys, min_size=1, max_size=4), min_size=1, max_size=5)


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def field(path: list[str]) -> str:
    return ".".join(key.replace("\\", "\\\\").replace(".", "\\.") for key in path)


def naive(value: Any, paths: list[list[str]]) -> Any:
    if isinstance(value, list):
        return [naive(item, paths) for item in value]
    if not isinstance(value, dict):
        return None
    projected = {}
    for key, member in value.items():
        below = [path[1:] for path in paths if path[0] == key]
        if [] in below:
            projected[key] = member
        elif below and isinstance(member, dict | list):
            projected[key] = naive(member, below)
    return projected


@pytest.mark.slow
@given(items, paths)
def test_project_equals_plain_python(value: Any, paths: list[list[str]]) -> None:
    expected = compact(naive(value, paths))
    fields = [field(path) for path in paths]
    assert project(compact(value), fields).decode() == expected
    assert compact(json.loads(project(json.dumps(value, indent=2), fields))) == expected


@pytest.mark.slow
@given(items, paths)
def test_a_pointer_names_the_same_field_as_a_path(value: Any, paths: list[list[str]]) -> None:
    pointers = [pointer(tuple(path)) for path in paths]
    assert project(compact(value), pointers) == project(compact(value), map(field, paths))


def test_a_slash_may_begin_a_key() -> None:
    assert project('[{"/a/b": 1, "a": {"b": 2, "c": 3}, "a/b": 4}]', ["/a/b"]) == b'[{"/a/b":1,"a":{"b":2}}]'
    assert project('{"a/b": 1, "": {"~": 2}}', ["/a~1b", "//~0"]) == b'{"a/b":1,"":{"~":2}}'


def reaches(value: Any, path: list[str]) -> bool:
    if not path:
        return True
    if isinstance(value, list):
        return any(reaches(item, path) for item in value)
    return isinstance(value, dict) and path[0] in value and reaches(value[path[0]], path[1:])


@pytest.mark.slow
@given(items, paths)
def test_has_fields_equals_plain_python(value: Any, paths: list[list[str]]) -> None:
    expected = any(reaches(value, path) for path in paths)
    assert has_fields(compact(value), map(field, paths)) == expected
    assert has_fields(project(compact(value), map(field, paths)), map(field, paths)) == expected


@pytest.mark.slow
@given(st.lists(items, min_size=2, max_size=5), paths)
def test_json_lines_stay_json_lines(values: list[Any], paths: list[list[str]]) -> None:
    data = "\n\n".join(compact(value) for value in values)
    expected = "".join(compact(naive(value, paths)) + "\n" for value in values)
    assert project(data, [field(path) for path in paths]).decode() == expected


def test_values_keep_their_bytes() -> None:
    data = rb'[ {"n": 1.0e2, "s": "\u00e9\/", "o": { "k" : [ ] }, "x": 0} ]'
    assert project(data, ["o", "s", "n"]) == rb'[{"n":1.0e2,"s":"\u00e9\/","o":{ "k" : [ ] }}]'


def test_a_truncated_payload_is_refused() -> None:
    data = b'[{"a": 1, "b": {"c": [2, {"d": "x"}]}}, {"a": [[]]}, null]'
    for cut in range(len(data)):
        with pytest.raises(InvalidJSON) as caught:
            project(data[:cut], ["a", "b.c.d"])
        assert caught.value.index <= cut


@pytest.mark.parametrize("fields", [[], [""], ["a..b"], [".a"], ["a."], ["a\\"], ["\\a"], ["/a~2"]])
def test_invalid_fields_are_refused(fields: list[str]) -> None:
    with pytest.raises(InvalidArgument, match=r"user\.name"):
        project("{}", fields)


def test_a_field_has_at_most_64_keys() -> None:
    assert project("{}", [".".join("a" * 64)]) == b"{}"
    with pytest.raises(InvalidArgument, match=r"more than 64 keys; name one at most 64 keys deep"):
        project("{}", [".".join("a" * 65)])


def test_fields_may_be_any_iterable_but_not_a_text() -> None:
    for fields in (("name",), {"name"}, {"name": 1}, iter(["name"]), (field for field in ["name"])):
        assert project('{"name": 1, "other": 2}', fields) == b'{"name":1}'
    for other in ("name", 1, None):
        with pytest.raises(TypeError, match=r"^fields must be a list of fields such as .*, not (str|int|NoneType)\b"):
            project("{}", other)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^each of fields must be a str, not int\b"):
        project("{}", ["name", 1])  # type: ignore[list-item]


def test_errors_of_an_iterable_are_not_caught() -> None:
    with pytest.raises(ZeroDivisionError):
        project("{}", (str(1 // number) for number in [1, 0]))


def test_deep_nesting_is_an_error() -> None:
    with pytest.raises(InvalidJSON, match="nested too deeply"):
        project(b"[" * 1_000_000, ["a"])


@given(st.binary())
def test_any_bytes_are_accepted_or_refused(data: bytes) -> None:
    for payload in (data, b'{"a":[' + data + b"]}", b"[" + data):
        with contextlib.suppress(InvalidJSON):
            project(payload, ["a.b", "b"])
