import contextlib
import json
import re
from collections import Counter
from typing import Any

import pytest
from forebay import InvalidArgument, InvalidJSON, index_items, outline
from hypothesis import given
from hypothesis import strategies as st

UNLIMITED = 1 << 20

keys = st.text("abc", min_size=1, max_size=2) | st.sampled_from(["7", "2024-01-01", "id", "a b", "", "é", '"', "\\\n"])
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(keys, inner, max_size=6), max_leaves=30
)
many_keys = st.integers(6, 110).map(lambda count: [f"k{i}" for i in range(count)])
inside = st.sampled_from([1, "x", None, {"a": 1}, {"a": 1, "b": 2}, {"c": 3}, [1], []])
maps = st.builds(dict.fromkeys, many_keys, inside) | st.builds(
    lambda keys, values: {key: values[i % len(values)] for i, key in enumerate(keys)},
    many_keys,
    st.lists(inside, min_size=1, max_size=3),
)


def describe(values: list[Any]) -> str:
    """Return the outline of all values at one path."""
    objects = [value for value in values if isinstance(value, dict)]
    arrays = [value for value in values if isinstance(value, list)]
    found = [describe_objects(objects)] if objects else []
    found += [describe_arrays(arrays)] if arrays else []
    types = {type(value) for value in values}
    if float in types:
        types.discard(int)
    names = {str: "str", int: "int", float: "float", bool: "bool", type(None): "null"}
    return "|".join(found + [name for kind, name in names.items() if kind in types])


def describe_arrays(arrays: list[list[Any]]) -> str:
    items = [item for array in arrays for item in array]
    return f"[{describe(items)}]{format_count(arrays)}" if items else "[]"


def describe_objects(objects: list[dict[str, Any]]) -> str:
    members: dict[str, list[Any]] = {}
    for members_of_object in objects:
        for key, value in members_of_object.items():
            members.setdefault(key, []).append(value)
    if is_map(objects, members):
        together = [value for values in members.values() for value in values]
        return f"{{<{format_key(next(iter(members)))}>: {describe(together)}}}{format_count(objects)}"
    shown = [
        f"{format_key(key)}{'?' * (len(values) < len(objects))}: {describe(values)}" for key, values in members.items()
    ]
    return f"{{{', '.join(shown)}}}"


def format_count(containers: list[Any]) -> str:
    least, most = min(map(len, containers)), max(map(len, containers))
    return f" ×{most}" if least == most else f" ×{least}-{most}"


def format_key(key: str) -> str:
    return key if re.fullmatch(r"[a-zA-Z0-9_$@-]+", key) else json.dumps(key, ensure_ascii=False)


def is_map(objects: list[dict[str, Any]], members: dict[str, list[Any]]) -> bool:
    if not members:
        return False
    if all(re.fullmatch(r"(?=.*\d)([\d.:_-]+|[\da-fA-F.:_-]{8,})", key) for key in members):
        return True
    if len(objects) > 1 and 2 * sum(map(len, members.values())) >= len(members) * len(objects):
        return False
    kinds = {float if type(value) is int else type(value) for values in members.values() for value in values}
    kinds.discard(type(None))
    if kinds == {dict}:
        inside = [[value for value in values if value is not None] for values in members.values()]
        keys = [{key for value in values for key in value} for values in inside if values]
        is_similar = 4 * sum(map(len, keys)) >= len(set().union(*keys)) * len(keys)
        return is_similar and len(members) >= (21 if len(objects) > 1 else 8)
    if len(kinds) != 1:
        return False
    return len(members) >= (21 if kinds == {list} or len(objects) > 1 else 100)


def shown_paths(text: str) -> Counter[tuple[str, ...]]:
    """Count the paths of all keys that an outline shows."""
    paths: Counter[tuple[str, ...]] = Counter()
    stack: list[str] = []
    word = label = ""
    for part in re.findall(r'"(?:[^"\\]|\\.)*"|[{}\[\]:]|[^\s{}\[\]:",?<>|]+', text):
        if part in {"{", "["}:
            stack.append(label + part)
            label = ""
        elif part in {"}", "]"}:
            stack.pop()
            label = ""
        elif part == ":":
            label = word
            paths[*stack, label] += 1
        else:
            word = part
    return paths


@given(values | maps | st.lists(maps, max_size=3))
def test_outlines_like_plain_python(value: Any) -> None:
    assert outline(json.dumps(value), UNLIMITED) == describe([value])


@given(st.lists(values, min_size=1, max_size=3), st.integers(1, 150), st.sampled_from(["", "\ufeff"]))
def test_an_index_changes_nothing(values: list[Any], count: int, mark: str) -> None:
    items = values * count
    lines = "\n".join(map(json.dumps, items))
    for data in (json.dumps(items), json.dumps({"before": values, "items": items, "after": 1}), lines):
        if data is lines and len(items) == 1:
            continue
        # The offsets in an index count the mark, in place of which its builder gets white space.
        index = index_items(" " * len(mark.encode()) + data)
        assert outline(mark + data, UNLIMITED, items=index) == outline(data, UNLIMITED)


@pytest.mark.slow
@given(st.lists(values, min_size=2, max_size=5))
def test_lines_are_outlined_like_items(values: list[Any]) -> None:
    data = "\n".join(json.dumps(value) for value in values)
    assert outline(data, UNLIMITED) == "ndjson " + describe([values])


@pytest.mark.slow
@given(values)
def test_every_budget_is_kept_and_a_larger_one_never_shows_less(value: Any) -> None:
    data = json.dumps(value)
    whole = outline(data, UNLIMITED)
    before: Counter[tuple[str, ...]] = Counter()
    for max_bytes in range(8, len(whole.encode()) + 1):
        text = outline(data, max_bytes)
        assert len(text.encode()) <= max_bytes
        assert text == outline(data, max_bytes)
        assert len(text.splitlines()) == 1
        assert before <= shown_paths(text)
        before = shown_paths(text)
    assert outline(data, max(8, len(whole.encode()))) == whole


def test_a_document_and_its_array_count_everything() -> None:
    items = [{"id": i, "name": "x"} if i % 7 else {"id": i} for i in range(2500)]
    assert outline(json.dumps({"items": items, "total": 2500})) == "{items: [{id: int, name?: str}] ×2500, total: int}"


def test_the_default_budget_is_half_a_kilobyte() -> None:
    data = json.dumps([{f"key number {i}": i for i in range(90)}])
    assert 400 < len(outline(data).encode()) <= 512
    assert outline(data) == outline(data, max_bytes=512)


@pytest.mark.parametrize("max_bytes", [7, 0])
def test_some_budgets_are_too_small(max_bytes: int) -> None:
    with pytest.raises(InvalidArgument, match="8 bytes"):
        outline("[]", max_bytes)


@pytest.mark.parametrize(("data", "index"), [("", 0), ("{", 1), ("[1 2]", 3), ("nul", 0), ("{}\n{]", 4)])
def test_says_which_byte_is_wrong(data: str, index: int) -> None:
    with pytest.raises(InvalidJSON) as caught:
        outline(data)
    assert caught.value.index == index


@given(st.binary())
def test_any_bytes_do_no_harm(data: bytes) -> None:
    for payload in (data, b'{"a":[' + data + b"]}", b"[" + data):
        with contextlib.suppress(InvalidJSON):
            assert len(outline(payload, 40).encode()) <= 40
