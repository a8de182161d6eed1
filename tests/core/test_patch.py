"""`patch`, compared with plain Python. The Rust tests compare it with another implementation of RFC 6902."""

import copy
import json
from typing import Any

import pytest
from documents import pointer
from forebay import InvalidArgument, InvalidJSON, PatchFailed, patch
from hypothesis import given
from hypothesis import strategies as st

keys = st.sampled_from(["a", "b/", "~é", '"'])
scalars = st.none() | st.integers() | st.sampled_from(["x", "],}", '"', "é"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=15
)
paths = st.lists(keys | st.sampled_from(["0", "1", "-"]), max_size=3)
operations = st.lists(
    st.fixed_dictionaries(
        {
            "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]),
            "path": paths,
            "from": paths,
            "value": values,
        }
    ),
    max_size=4,
)


def find(document: Any, path: list[str]) -> Any:
    for token in path:
        document = document[int(token) if isinstance(document, list) else token]
    return document


def change(document: Any, operation: dict[str, Any]) -> Any:
    """Return a parsed document with one operation applied; raise a `LookupError`, `ValueError` or `TypeError`."""
    op, path, source = operation["op"], operation["path"], operation["from"]
    value = operation["value"] if op in ("add", "replace", "test") else None
    if op == "test":
        if json.dumps(find(document, path), sort_keys=True) != json.dumps(value, sort_keys=True):
            raise ValueError
        return document
    if op in ("move", "copy"):
        value = copy.deepcopy(find(document, source))
        if op == "move" and path != source:
            if path[: len(source)] == source:
                raise ValueError
            document = change(document, {"op": "remove", "path": source, "from": []})
        return (
            document
            if path == source and op == "move"
            else change(document, {"op": "add", "path": path, "from": [], "value": value})
        )
    if not path:
        if op == "remove":
            raise ValueError
        return value
    *parents, last = path
    parent = find(document, parents)
    if not isinstance(parent, list | dict):
        raise TypeError
    if op in ("remove", "replace"):
        find(parent, [last])
    if isinstance(parent, dict):
        parent.pop(last) if op == "remove" else parent.update({last: value})
    elif op == "add":
        if last != "-" and int(last) > len(parent):
            raise LookupError
        parent.insert(len(parent) if last == "-" else int(last), value)
    elif op == "replace":
        parent[int(last)] = value
    else:
        parent.pop(int(last))
    return document


@pytest.mark.slow
@given(values, operations)
def test_patch_equals_plain_python(document: Any, operations: list[dict[str, Any]]) -> None:
    expected: Any = copy.deepcopy(document)
    try:
        for operation in operations:
            expected = change(expected, copy.deepcopy(operation))
        is_valid = True
    except (LookupError, ValueError, TypeError):
        is_valid = False
    named = [
        {**operation, "path": pointer(tuple(operation["path"])), "from": pointer(tuple(operation["from"]))}
        for operation in operations
    ]
    for text in (json.dumps(document), json.dumps(document, indent=2, ensure_ascii=False)):
        if is_valid:
            assert json.loads(patch(text, named)) == expected
            assert patch(text, json.dumps(named, ensure_ascii=False)) == patch(text, named)
        else:
            with pytest.raises(PatchFailed):
                patch(text, named)


def test_a_patch_keeps_every_other_byte() -> None:
    text = b' {"b" : 1.50, "a":[ 1e5,\n12345678901234567890 ], "title": "\\u00e9"} '
    assert patch(text, [{"op": "replace", "path": "/title", "value": "漢"}]) == text.replace(
        b'"\\u00e9"', '"漢"'.encode()
    )
    assert patch(text, []) == text
    assert patch(text, [{"op": "add", "path": "/a/-", "value": 2**100}]) == text.replace(
        b"67890 ", b"67890,\n%d " % 2**100
    )


def test_errors_of_a_patch() -> None:
    with pytest.raises(PatchFailed, match=r'^patch\[1\] \(remove "/b"\) failed, so nothing was changed: nothing is at'):
        patch("{}", [{"op": "add", "path": "/a", "value": 1}, {"op": "remove", "path": "/b"}])
    with pytest.raises(PatchFailed, match="more than 5"):
        patch("[1]", [{"op": "copy", "from": "", "path": "/-"}], max_bytes=5)
    with pytest.raises(InvalidJSON):
        patch("[1", [])
    for wrong in ('{"op": "remove"}', "[1]", [1], [{"op": "add", "path": "/a"}], ""):
        with pytest.raises(InvalidArgument):
            patch("{}", wrong)
    unusable: Any
    for unusable in (None, {"op": "remove"}, ({},), bytearray(b"[]")):
        with pytest.raises(TypeError):
            patch("{}", unusable)
    with pytest.raises(ValueError, match="JSON compliant"):
        patch("{}", [{"op": "add", "path": "", "value": float("nan")}])
    with pytest.raises(UnicodeEncodeError):
        patch("{}", [{"op": "\ud800"}])


def test_a_patch_cut_at_every_byte_is_an_error() -> None:
    whole = '[{"op": "add", "path": "/a", "value": {"b": [1, "é"]}}]'
    for end in range(len(whole)):
        with pytest.raises(InvalidArgument):
            patch("{}", whole[:end])
    document = '{"a": [1, "é"]}'.encode()
    for end in range(len(document)):
        with pytest.raises(InvalidJSON):
            patch(document[:end], whole)
