"""Texts of CSV and TSV are the cells that Python reads, and redaction keeps rows and columns."""

import csv
import io
from collections.abc import Callable
from typing import Literal

import pytest
from forebay._core import Redactor, replace_texts
from forebay.errors import InvalidArgument
from hypothesis import example, given
from hypothesis import strategies as st

RowFormat = Literal["csv", "tsv"]
DELIMITERS = {"csv": ",", "tsv": "\t"}

pieces = st.sampled_from(['"', '""', ",", "\t", "\n", "\r\n", "\r", ',"', '\t"', '"\n', "a", "SECRET", " ", "é", "\\"])
texts = st.builds(
    lambda mark, parts: mark + "".join(parts), st.sampled_from(["", "\ufeff", "\ufeff\n", "\ufefe"]), st.lists(pieces)
)
formats = st.sampled_from(["csv", "tsv"])


def parse(text: str, rows: RowFormat) -> list[list[str]]:
    """Return the rows that Python reads, header included."""
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), delimiter=DELIMITERS[rows])
    return [row for row in reader if row]


@given(
    texts, formats, st.sampled_from(["", "x", '"', '""', ",", "\t", "\n", "\r", "\ufeff", '",\n"', "\ufeffx\r\n,\t"])
)
@example("\ufeffSECRET", "csv", "\ufeff")
@example("id\nSECRET\n1", "csv", "")
@example('id\n"SECRET', "csv", "x")
@example('"a"SECRET"b,1\n', "csv", "x")
def test_a_cell_is_redacted_like_a_payload(text: str, rows: RowFormat, replacement: str) -> None:
    seen: list[bytes] = []

    def replace(text: bytes) -> bytes:
        seen.append(text)
        return text.replace(b"SECRET", replacement.encode())

    redacted = replace_texts(text.encode(), replace, rows)
    seen_in_rows, seen = seen, []
    expected = [[redact_cell(cell, replace) for cell in row] for row in parse(text, rows)]
    assert seen_in_rows == seen
    if redacted is None:
        assert expected == parse(text, rows)
        return
    assert redacted.startswith("\ufeff".encode()) is text.startswith("\ufeff")
    assert parse(redacted.decode(), rows) == expected


def redact_cell(cell: str, replace: Callable[[bytes], bytes]) -> str:
    redacted = replace_texts(cell, replace)
    return cell if redacted is None else redacted.decode()


@given(texts, formats)
def test_cells_without_secrets_stay_as_they_are_written(text: str, rows: RowFormat) -> None:
    assert replace_texts(text, bytes, rows) is None
    assert Redactor(["no such text"]).redact(text, rows) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('id,note\n1,"{""k"": ""SECRET""}"\n2,"b"\n', 'id,note\n1,"{""k"": ""[redacted]""}"\n2,"b"\n'),
        ('SECRET,note\r\n"SECRET","x"\r\n', '[redacted],note\r\n"[redacted]","x"\r\n'),
        ('id\nSE"CRET SECRET\n', 'id\n"SE""CRET [redacted]"\n'),
        ('id\n"SEC"RET,1', 'id\n"[redacted]",1'),
    ],
)
def test_only_cells_with_secrets_are_written_again(text: str, expected: str) -> None:
    assert Redactor(["SECRET"]).redact(text, "csv") == expected.encode()


@pytest.mark.parametrize("text", [",a\n", ",a\n,b\n", "a\n1,\n", '""\n', "\ufeff,"])
def test_an_empty_cell_can_be_replaced(text: str) -> None:
    redacted = replace_texts(text, lambda cell: cell or b"x", "csv")
    assert redacted is not None
    assert parse(redacted.decode(), "csv") == [[cell or "x" for cell in row] for row in parse(text, "csv")]


def test_an_unknown_format_is_refused() -> None:
    for rows in ("CSV", "json", ""):
        with pytest.raises(InvalidArgument, match="rows must be"):
            Redactor(["x"]).redact("x", rows)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="rows must be"):
            replace_texts("x", bytes, rows)  # type: ignore[arg-type]
