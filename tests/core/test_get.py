import json
import mmap
from pathlib import Path
from typing import Any

import pytest
from documents import forms, pointers, values
from forebay import InvalidArgument, InvalidJSON, PathNotFound, get, index_items, locate
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.slow
@given(values, forms)
def test_every_value_is_found(value: Any, form: dict[str, Any]) -> None:
    data = json.dumps(value, **form).encode()
    for pointer, expected in pointers(value):
        found = get(data, pointer)
        assert json.loads(found) == expected
        assert found == found.strip()
        start, end = locate(data, pointer)
        assert data[start:end] == found


@pytest.mark.slow
@given(st.lists(values, min_size=2, max_size=5))
def test_the_first_token_numbers_the_lines_of_ndjson(lines: list[Any]) -> None:
    data = "\n \r\n".join(json.dumps(line) for line in lines)
    for i, line in enumerate(lines):
        for pointer, expected in pointers(line, f"/{i}"):
            assert json.loads(get(data, pointer)) == expected
    assert get(data, "") == data.encode()
    with pytest.raises(PathNotFound):
        get(data, f"/{len(lines)}")


def test_a_cut_payload_never_gives_another_value() -> None:
    data = b' {"a": [1, {"b\\u0063": "x\\"y"}, [], 23], "d": null} '
    for pointer in ["", "/a", "/a/1/bc", "/a/2", "/a/3", "/d"]:
        start, end = locate(data, pointer)
        for cut in range(len(data)):
            if cut >= end:
                assert get(data[:cut], pointer) == data[start:end]
            elif data[start:cut] != b"2":  # A number may end anywhere.
                with pytest.raises(InvalidJSON):
                    get(data[:cut], pointer)


@pytest.mark.parametrize("pointer", ["/b", "/a/1", "/a/-", "/a/00", "/a/0/x", "/a/18446744073709551616"])
def test_a_pointer_to_no_value_is_not_found(pointer: str) -> None:
    with pytest.raises(PathNotFound) as error:
        get('{"a": [1]}', pointer)
    assert error.value.code == "path_not_found"
    assert pointer in str(error.value)
    assert "outline" in str(error.value)


@pytest.mark.parametrize("pointer", ["a", "a/b", "#/a", "/~2", "/~"])
def test_a_pointer_starts_with_a_slash(pointer: str) -> None:
    with pytest.raises(InvalidArgument, match="/users/0/name"):
        locate("{}", pointer)


def test_invalid_json_after_the_value_is_not_noticed() -> None:
    with pytest.raises(InvalidJSON) as caught:
        get('{"a": 1} x', "")
    assert caught.value.index == 9
    assert get('{"a": 1} x', "/a") == b"1"


def test_reads_from_a_map_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_text('{"a": {"é": [1, 2]}}', "utf-8")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        assert get(data, "/a/é/1") == b"2"
        assert get(memoryview(bytes(data)), "/a/é") == b"[1, 2]"


@pytest.mark.parametrize(
    ("data", "index"), [("[[1,]]", 4), ('{"a": [1 2]}', 9), ('[{"a": tru}]', 10), ("[[1}]", 3), ("[[1", 3)]
)
def test_an_invalid_value_is_not_returned(data: str, index: int) -> None:
    for pointer in ("", "/0", "/a"):
        with pytest.raises((InvalidJSON, PathNotFound)) as caught:
            get(data, pointer)
        assert caught.type is PathNotFound or caught.value.index == index


@pytest.mark.slow
@given(st.binary(), st.lists(st.sampled_from(["/", "0", "1", "a", "~0"])).map("".join))
def test_any_bytes_do_no_harm(data: bytes, pointer: str) -> None:
    for payload in (data, b'{"a":[' + data + b"]}", b"[" + data):
        try:
            start, end = locate(payload, pointer)
        except (InvalidArgument, InvalidJSON, PathNotFound):
            continue
        assert get(payload, pointer) == payload[start:end]
        index_items(payload[start:end])
