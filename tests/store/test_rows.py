"""CSV and TSV have rows: objects with the keys of the header, of which no field is lost."""

import csv
import gzip
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from forebay import Store
from forebay._core import Survey
from forebay.errors import InvalidArgument, InvalidFormat, PathNotFound
from hypothesis import given
from hypothesis import strategies as st
from stores import content, pages, store_at, whole

CSV, TSV = "text/csv", "text/tab-separated-values"
DELIMITERS = {CSV: ",", TSV: "\t"}

pieces = st.sampled_from(
    ['"', '""', ",", "\t", "\n", "\r\n", "\r", "\n\n", ',"', '\t"', '"\n', "a", "b", " ", "é", "\\"]
)
texts = st.builds(lambda mark, parts: mark + "".join(parts), st.sampled_from(["", "\ufeff"]), st.lists(pieces))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store_at(tmp_path_factory.mktemp("store")) as store:
        yield store


def parse(text: str, mime_type: str) -> list[list[str]]:
    """Return the header and the rows that Python reads."""
    file = io.StringIO(text.removeprefix("\ufeff"), newline="")
    return [row for row in csv.reader(file, delimiter=DELIMITERS[mime_type]) if row]


def read_rows(store: Store, handle: str, **arguments: Any) -> list[dict[str, str]]:
    return [row for page in pages(store, handle, **arguments) for row in content(page)]


def put_text(store: Store, text: str, mime_type: str = CSV) -> str:
    return store.put(text, mime_type=mime_type).output_handle


@given(texts, st.sampled_from([CSV, TSV]), st.integers(1, 4))
def test_rows_are_those_that_python_reads(store: Store, text: str, mime_type: str, limit: int) -> None:
    descriptor = store.put(text, mime_type=mime_type)
    handle = descriptor.output_handle
    header, *rows = parse(text, mime_type) or [[]]
    assert (descriptor.item_count, descriptor.mime_type, descriptor.items_path) == (len(rows), mime_type, "")
    read = read_rows(store, handle, limit=limit)
    assert [[*row.values()] for row in read] == rows
    for row in read:
        for name, key in zip(header, row, strict=False):
            assert not name or key.startswith(name)
    assert whole(store, handle) == text.encode()
    assert "".join(str(page.content) for page in pages(store, handle, format="text")) == text


@given(texts, st.sampled_from(["csv", "tsv"]))
def test_every_cut_gives_the_same_index(text: str, rows: Any) -> None:
    data = text.encode()

    def index(*chunks: bytes) -> bytes:
        survey = Survey(is_json=False, rows=rows)
        for chunk in chunks:
            survey.feed(chunk)
        items = survey.finish().items
        assert items is not None
        return items.to_bytes()

    expected = index(data)
    assert all(index(data[:cut], data[cut:]) == expected for cut in range(len(data) + 1))


@pytest.mark.parametrize(
    ("header", "row", "expected"),
    [
        ("id,name", "1,x", {"id": "1", "name": "x"}),
        ("id,name", " 1,007", {"id": " 1", "name": "007"}),
        ("id,name", '"1\n,""2""",', {"id": '1\n,"2"', "name": ""}),
        ("id,name", "1", {"id": "1"}),
        ("id,name", "1,x,y,z", {"id": "1", "name": "x", "column_3": "y", "column_4": "z"}),
        ("id,column_3", "1,x,y", {"id": "1", "column_3": "x", "column_3_2": "y"}),
        ("a,a,a_2", "1,2,3", {"a": "1", "a_3": "2", "a_2": "3"}),
        (",b,", "1,2,3", {"column_1": "1", "b": "2", "column_3": "3"}),
        ("id,name", "1,a\tb\\", {"id": "1", "name": "a\tb\\"}),
    ],
)
@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_no_field_is_lost(
    store: Store, header: str, row: str, expected: dict[str, str], line_break: str, mark: str
) -> None:
    text = f"{mark}{header}{line_break}{row}{line_break}{row}{line_break}{line_break}"
    assert read_rows(store, put_text(store, text)) == [expected, expected]


@pytest.mark.parametrize("text", ["", "\n", "id,name", "id,name\r\n"])
def test_a_header_alone_has_no_rows(store: Store, text: str) -> None:
    descriptor = store.put(text, mime_type=CSV)
    page = store.fetch(descriptor.output_handle)
    assert (descriptor.item_count, page.content, page.eof, page.format) == (0, b"[]", True, "items")


ROWS = [[str(i), f'Nr {i}, "x"\n{"é" * (i % 50)}', f"{i * 7}"] for i in range(30_000)]
HEADER = ["id", "user.name", "/total"]


def dump(rows: Sequence[Sequence[str]], delimiter: str = ",") -> str:
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=delimiter).writerows(rows)
    return file.getvalue()


@pytest.fixture(scope="module")
def large(store: Store) -> str:
    """A payload of several frames, put in chunks that cut rows and characters."""
    data = dump([HEADER, *ROWS]).encode()
    chunks = (data[start : start + 4099] for start in range(0, len(data), 4099))
    descriptor = store.put(chunks, mime_type="text/csv; charset=utf-8")
    assert (descriptor.item_count, descriptor.line_count) == (len(ROWS), 2 * len(ROWS) + 1)
    assert descriptor.outline == '[{id: str, "user.name": str, "/total": str}] ×30000'
    assert descriptor.preview is not None
    assert descriptor.preview.startswith('id,user.name,/total\r\n0,"Nr 0')
    assert store.outline(descriptor.output_handle) == descriptor.outline
    return descriptor.output_handle


def test_a_page_starts_at_any_row(store: Store, large: str) -> None:
    for offset in (0, 1, 1234, 15_000, 29_999):
        page = store.fetch(large, offset=offset, limit=3)
        expected = [dict(zip(HEADER, row, strict=True)) for row in ROWS[offset : offset + 3]]
        assert (content(page), page.total, page.returned) == (expected, len(ROWS), len(expected))
    page = store.fetch(large, offset=100, max_bytes=2000)
    assert 1 < page.returned < 200
    assert len(page.to_json()) <= 2000
    assert page.next_offset == 100 + page.returned


def test_fields_are_names_of_the_header(store: Store, large: str) -> None:
    for name, column in zip(HEADER, range(3), strict=True):
        page = store.fetch(large, offset=500, limit=2, fields=[name])
        assert content(page) == [{name: ROWS[500][column]}, {name: ROWS[501][column]}]
    with pytest.raises(PathNotFound, match=r"user\.name"):
        store.fetch(large, fields=["user"])


def test_a_name_of_the_header_is_that_column_alone(store: Store) -> None:
    names = ["a", "/a", "a.b", r"a\.b", "\\", "~1", "/a.b", "a/b"]
    handle = put_text(store, dump([names, [str(number) for number in range(len(names))]]))
    for number, name in enumerate(names):
        assert content(store.fetch(handle, fields=[name])) == [{name: str(number)}]
        (match,) = json.loads(store.search(handle, "0,1,2", fields=[name]).to_json())["matches"]
        assert match["value"] == {name: str(number)}
    assert content(store.fetch(handle, fields=["/a", "a.b"])) == [{"/a": "1", "a.b": "2"}]
    # A pointer, if no column has this name.
    assert content(store.fetch(handle, fields=["/a~1b"])) == [{"a/b": "7"}]


def test_a_path_leads_to_a_row_and_its_fields(store: Store, large: str) -> None:
    assert json.loads(store.get(large, "/29999")) == dict(zip(HEADER, ROWS[-1], strict=True))
    assert json.loads(store.get(large, "/7/user.name")) == ROWS[7][1]
    assert json.loads(store.fetch(large, path="/7", format="text").content)["id"] == "7"
    assert store.fetch(large, path="").returned == 200
    for path in ("/30000", "/1/none", "/id"):
        with pytest.raises(PathNotFound):
            store.get(large, path)


def test_a_search_names_the_row(store: Store, large: str) -> None:
    (match,) = store.search(large, "Nr 29876,").matches
    assert match["item"] == 29_876
    assert content(store.fetch(large, offset=match["item"], limit=1))[0]["id"] == "29876"
    assert store.search(large, "user.name").matches[0]["item"] is None


def test_a_row_larger_than_a_page_is_cut_and_read_by_its_path(store: Store) -> None:
    text = "é\n" * 300_000
    handle = put_text(store, dump([["id", "text"], ["1", text], ["2", "x"]]))
    page = store.fetch(handle, max_bytes=2000)
    (cut,) = page.truncated
    read_with = {"output_handle": handle, "path": "/0"}
    assert (page.returned, page.next_offset, cut["index"], cut["read_with"]) == (1, 1, 0, read_with)
    value = "".join(str(part.content) for part in pages(store, handle, path="/0", format="text"))
    assert json.loads(value) == {"id": "1", "text": text}
    assert len(value.encode()) == cut["size_bytes"]
    assert content(store.fetch(handle, offset=1)) == [{"id": "2", "text": "x"}]
    assert content(store.fetch(handle, fields=["id"])) == [{"id": "1"}, {"id": "2"}]


def test_raw_text_lines_and_bytes_stay(store: Store) -> None:
    handle = put_text(store, 'a,b\n"1\n2",3\n')
    assert store.fetch(handle, format="text").content == 'a,b\n"1\n2",3\n'
    assert store.fetch(handle, format="lines").total == 3
    assert store.fetch(handle, format="bytes").total == 12


@pytest.mark.parametrize("encode", [gzip.compress, lambda data: data.decode().encode("utf-16")])
def test_decoded_text_has_rows(store: Store, encode: Any) -> None:
    data = encode(dump([["a", "b"], ["é", "2"]]).encode())
    descriptor = store.put(data, mime_type=CSV)
    assert (descriptor.item_count, descriptor.decoded_from is None) == (1, False)
    assert read_rows(store, descriptor.output_handle) == [{"a": "é", "b": "2"}]
    assert whole(store, descriptor.output_handle) == data


@pytest.mark.parametrize(
    ("data", "mime_type"),
    [
        (b"a,b\n1,2\n", None),
        (b"a,b\n1,2\n", "text/plain"),
        (b"1,2\n3,4\n", "text/csv; header=absent"),
        (b"x" * (64 * 1024) + b"\n1\n", CSV),
        (b"a,b\n\xff\0,2\n", CSV),
    ],
)
def test_other_payloads_have_no_rows(store: Store, data: bytes, mime_type: str | None) -> None:
    descriptor = store.put(data, mime_type=mime_type)
    assert descriptor.item_count is None
    assert whole(store, descriptor.output_handle) == data
    with pytest.raises(InvalidFormat):
        store.fetch(descriptor.output_handle, format="items")


def test_other_formats_of_rows_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="csv"):
        Survey(is_json=False, rows="xls")  # type: ignore[arg-type]
