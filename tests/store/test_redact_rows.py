"""Secrets in the cells of CSV and TSV are redacted as readers see them: without the quotes of the format."""

import base64
import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from forebay import Store
from forebay.outputs.pipeline import Pipeline
from forebay.outputs.tool_call import ToolCall
from forebay.store.redaction import TextRedaction, apply_redactions, make_redactions
from hypothesis import example, given, settings
from hypothesis import strategies as st
from stores import content, pages, store_at, whole

CSV, TSV = "text/csv", "text/tab-separated-values"
DELIMITERS = {CSV: ",", TSV: "\t"}
SECRET_JSON = json.dumps({"user": 1, "password": "hunter0"})


def mask(text: bytes) -> bytes:
    """Mask a secret by a text that CSV has to quote."""
    return text.replace(b'key "0"', b'",\t\n')


REDACT: list[str | TextRedaction] = [r'"password": "[^"]*"', r"hunter\d", r"^PRIVATE$", r"token=.*", mask]
REDACTIONS = make_redactions(REDACT)

cells = st.lists(
    st.one_of(
        st.sampled_from(
            [SECRET_JSON, "hunter1", "\nPRIVATE\n", "PRIVATE", "token=a,b", 'key "0"', f"[{json.dumps(SECRET_JSON)}]"]
        ),
        st.just(base64.b64encode(b"some text: hunter2, and more").decode()),
        st.sampled_from(['"', ",", "\t", "\n", "\r\n", "é", "\\", "1", ""]),
    ),
    max_size=3,
).map("".join)


def dump(rows: Sequence[Sequence[str]], delimiter: str, quoting: Any, line_break: str) -> str:
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=delimiter, quoting=quoting, lineterminator=line_break).writerows(rows)
    return file.getvalue()


def parse(text: bytes, mime_type: str) -> list[list[str]]:
    file = io.StringIO(text.decode().removeprefix("\ufeff"), newline="")
    return [row for row in csv.reader(file, delimiter=DELIMITERS[mime_type]) if row]


def redact_cell(cell: str) -> str:
    data = cell.encode()
    for redact in REDACTIONS:
        data = redact(data)
    return data.decode()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store_at(tmp_path_factory.mktemp("store"), redact=REDACT) as store:
        yield store


@given(
    st.integers(1, 3).flatmap(
        lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1, max_size=4)
    ),
    st.sampled_from([CSV, TSV, "Text/CSV; charset=utf-8"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
@example([["0", SECRET_JSON]], CSV, csv.QUOTE_MINIMAL, "\n", "utf-8")
@settings(max_examples=150)
def test_a_reader_gets_each_cell_redacted(
    store: Store, rows: list[list[str]], mime_type: str, quoting: Any, line_break: str, encoding: str
) -> None:
    delimiter = DELIMITERS[mime_type.partition(";")[0].lower()]
    names = [f"column {number} hunter{number}" for number in range(len(rows[0]))]
    payload = dump([names, *rows], delimiter, quoting, line_break)
    handle = store.put(payload.encode(encoding), mime_type=mime_type).output_handle
    expected = [[redact_cell(cell) for cell in row] for row in rows]
    read = [row for page in pages(store, handle) for row in content(page)]
    assert [[*row.values()] for row in read] == expected
    assert [*read[0]] == [redact_cell(name) for name in names]
    selected = [row for page in pages(store, handle, fields=[[*read[0]][-1]]) for row in content(page)]
    assert [[*row.values()] for row in selected] == [row[-1:] for row in expected]
    name, value = next(iter(read[0].items()))
    assert content(store.fetch(handle, where={name: value}, limit=1)) == read[:1]
    text = "".join(str(page.content) for page in pages(store, handle, format="text"))
    assert parse(text.encode(), CSV if delimiter == "," else TSV) == [[*read[0]], *expected]


@pytest.mark.parametrize("mime_type", [CSV, TSV])
def test_the_values_of_a_key_are_the_cells_of_its_column(store: Store, mime_type: str) -> None:
    rows = [["ann", f's3cr"et {number}', "x"] for number in range(3)]
    names = ["user", "password", "note"]
    payload = dump([names, *rows, ["bob"]], DELIMITERS[mime_type], csv.QUOTE_MINIMAL, "\n")
    expected = [["ann", "[redacted]", "x"]] * 3 + [["bob"]]
    handle = store.put(payload, mime_type=mime_type).output_handle
    assert parse(whole(store, handle), mime_type) == [names, *expected]
    objects = [dict(zip(names, row, strict=False)) for row in rows]
    for separators in ((",", ":"), (", ", ": ")):
        text = json.dumps(objects, separators=separators)
        redacted = apply_redactions(text, make_redactions(r'"password":\s*"(\\.|[^"])*"'))
        assert json.loads(redacted) == [{"user": "ann", "[redacted]": "[redacted]", "note": "x"}] * 3


def test_a_query_reads_each_cell_redacted(store: Store) -> None:
    rows = [[str(number), SECRET_JSON, f"token=x,{number}"] for number in range(5)]
    handle = store.put(dump([["id", "note", "t"], *rows], ",", csv.QUOTE_MINIMAL, "\n"), mime_type=CSV).output_handle
    result = store.query(handle, "SELECT note, t FROM items ORDER BY id")
    assert [[*row] for row in result.rows] == [[redact_cell(cell) for cell in row[1:]] for row in rows]


def test_a_table_in_a_text_block_is_redacted(store: Store) -> None:
    rows = [[str(number), SECRET_JSON] for number in range(200)]
    text = dump([["id", "note"], *rows], ",", csv.QUOTE_MINIMAL, "\n")
    response = Pipeline(store, "output_fetch").store_result(
        {"content": [{"type": "text", "text": text}]}, ToolCall("t")
    )
    assert isinstance(response, dict)
    descriptor = json.loads(response["content"][0]["text"])
    assert (descriptor["mime_type"], descriptor["item_count"]) == (CSV, 200)
    assert "hunter" not in json.dumps(response)
    handle = descriptor["output_handle"]
    assert content(store.fetch(handle, limit=1)) == [{"id": "0", "note": redact_cell(SECRET_JSON)}]
    assert b"hunter" not in whole(store, handle)


pieces = st.sampled_from(
    [
        '"',
        '""',
        ",",
        "\n",
        "\r",
        ',"',
        '",',
        "a",
        'password": "',
        "hun",
        "ter0",
        "hunter0",
        '"password": ',
        "token=",
        "{",
    ]
)


@given(st.lists(pieces, max_size=25).map("".join), st.booleans())
@example('"{""password"": ""hunter0', False)
@example('"hun"ter0,"', False)
@example('"password": "a,"b""password"": ""x""\n', False)
@example('hunter0"password": "{,""', True)
@settings(max_examples=400)
def test_malformed_rows_hide_no_secret(text: str, has_spanning: bool) -> None:
    redact = [*REDACT[:2], r"a\W+hunter", r'\{"'] if has_spanning else REDACT[:2]
    redactions = make_redactions(redact)
    stored = apply_redactions(text, redactions, CSV)
    for row in parse(stored, CSV):
        for cell in row:
            for redaction in redactions:
                assert redaction(cell.encode()) == cell.encode()
    assert b"hunter0" not in stored
