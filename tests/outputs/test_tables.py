"""A text of a tool result that clearly is CSV or TSV has rows."""

import csv
import io
import json
import random
import string
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forebay.outputs.pipeline import Pipeline
from forebay.outputs.tables import detect_table
from forebay.outputs.tool_call import ToolCall
from forebay.store import Store, open_store
from forebay.store.payload import encode
from forebay.wire.framing import Spool
from forebay.wire.lazy_json import parse_lazy
from hypothesis import given
from hypothesis import strategies as st

ORDERS = "id,customer,total\n" + "".join(f'{n},"Ann, {n}",{n / 2}\n' for n in range(5000))


def write(rows: list[list[str]], delimiter: str = ",", line_end: str = "\n", quoting: int = csv.QUOTE_MINIMAL) -> str:
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=delimiter, lineterminator=line_end, quoting=quoting).writerows(rows)  # type: ignore[arg-type]
    return file.getvalue()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with open_store(tmp_path_factory.mktemp("tables") / "store", sweep_interval=0) as store:
        yield store


def store_text(store: Store, text: str, **fields: Any) -> dict[str, Any]:
    result = {"content": [{"type": "text", "text": text}], **fields}
    response = Pipeline(store, "output_fetch").store_result(result, ToolCall("orders"))
    return dict(json.loads(response["content"][0]["text"]))


def test_the_text_of_a_result_can_be_queried(store: Store) -> None:
    for fields in ({}, {"structuredContent": {"result": ORDERS}}):
        descriptor = store_text(store, ORDERS, **fields)
        assert (descriptor["mime_type"], descriptor["item_count"]) == ("text/csv", 5000)
        handle = descriptor["output_handle"]
        rows = json.loads(store.query(handle, "SELECT customer, total FROM items WHERE id = 7").to_json())["rows"]
        assert rows == [["Ann, 7", 3.5]]
        page = store.fetch(handle, where={"id": {">": 4997}}, fields=["customer"])
        assert json.loads(page.content) == [{"customer": "Ann, 4998"}, {"customer": "Ann, 4999"}]
        # Text and lines are as before, and so is every byte.
        assert store.fetch(handle, format="lines", limit=1).content == "id,customer,total\n"
        with store.open(handle) as file:
            assert file.read().decode() == ORDERS


def test_a_spooled_text_is_detected_too(store: Store, tmp_path: Path) -> None:
    with Spool(tmp_path) as spool:
        spool.write(encode({"content": [{"type": "text", "text": ORDERS * 40}]}))
        response = Pipeline(store, "output_fetch").store_result(parse_lazy(spool), ToolCall("orders"))
        assert isinstance(response, dict)
        assert json.loads(response["content"][0]["text"])["mime_type"] == "text/csv"


texts = st.text(st.characters(codec="utf-8", exclude_characters="\r\0\ufeff"), max_size=9)
names = st.lists(st.text(string.ascii_letters, min_size=1, max_size=8), min_size=2, max_size=6, unique=True)


@st.composite
def tables(draw: st.DrawFn) -> list[list[str]]:
    header = draw(names)
    row = st.lists(texts.filter(lambda text: text not in header), min_size=len(header), max_size=len(header))
    return [header, *draw(st.lists(row, min_size=7, max_size=30))]


@given(tables(), st.sampled_from(",\t"), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_what_the_csv_module_writes_is_a_table(
    rows: list[list[str]], delimiter: str, line_end: str, has_all_quoted: bool
) -> None:
    text = write(rows, delimiter, line_end, csv.QUOTE_ALL if has_all_quoted else csv.QUOTE_MINIMAL)
    wanted = "text/csv" if delimiter == "," else "text/tab-separated-values"
    assert detect_table(text) == detect_table(text.encode()) == wanted


@given(tables())
def test_the_rows_are_those_of_the_csv_module(rows: list[list[str]]) -> None:

    text = write(rows)
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder), sweep_interval=0) as store:
        handle = store_text(store, text)["output_handle"]
        items = json.loads(store.fetch(handle, limit=100).content)
    assert items == [dict(row) for row in csv.DictReader(io.StringIO(text, newline=""))]


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_a_long_table_is_one_wherever_the_head_ends(delimiter: str) -> None:
    """The fields have quotation marks and line breaks, of which any may be the last that is examined."""
    field = 'é "x"\n' + delimiter
    for shift in range(40):
        rows = [["id", "note"], ["0", "s" * shift], *([str(n), field] for n in range(3000))]
        assert detect_table(write(rows, delimiter)) is not None
        assert detect_table(write(rows, delimiter).encode()) is not None


TEXTS = [
    "".join(f"Dear reader, this is line {n}\n" for n in range(900)),
    "Hello, world\n" * 900,
    "".join(f"2026-11-19 12:00:{n % 60:02},INFO,request {n}\n" for n in range(900)),
    "".join(f"INFO,main,request {n}\n" for n in range(900)),
    "".join(f"{n},{n * n},x\n" for n in range(900)),
    "".join(json.dumps({"id": n, "b": 1}) + "\n" for n in range(900)),
    json.dumps([{"id": n, "b": 1} for n in range(900)], indent=1),
    "def add(a, b):\n    return a + b\n\n\n" * 300,
    "name,age\n" + "Ann,3\n" * 3,
    "name,age\n" + "Ann,3\n" * 30 + "and a note\n",
    "name,age\n" + 'Ann,"3" x\n' * 30,
    "name,name\n" + "Ann,3\n" * 30,
    "name,age\n\n" + "Ann,3\n" * 30,
    "one column\n" * 900,
    "",
]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_other_texts_are_no_tables(text: str) -> None:
    assert detect_table(text) is None
    assert detect_table(text.encode()) is None


def test_the_words_of_a_text_are_no_table() -> None:
    words = ["spring", "water", "a, b", "x", "Bonn, Kiel", "it rains,", "1,5"]
    draw = random.Random(3)
    for _ in range(300):
        lines = [" ".join(draw.choice(words) for _ in range(draw.randint(2, 9))) for _ in range(40)]
        assert detect_table("\n".join(lines)) is None
