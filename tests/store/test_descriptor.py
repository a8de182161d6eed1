"""Descriptors: they fit into their message, and shrink in a fixed order."""

import dataclasses
import json
from collections.abc import Iterator

import forebay
import pytest
from forebay import Descriptor, Store
from forebay.store.previews import PreviewSource
from hypothesis import given
from hypothesis import strategies as st
from stores import store_at
from texts import NASTY, nasty_text


def build_message(descriptor: forebay.Descriptor) -> bytes:
    """Return the message that a descriptor is sent in."""
    result = {"content": [{"type": "text", "text": descriptor.to_json().decode()}], "isError": False}
    message = {"jsonrpc": "2.0", "id": "0f8fad5b-d9cb-469f-a165-70867728950e", "result": result}
    return json.dumps(message, ensure_ascii=False).encode()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store_at(tmp_path_factory.mktemp("store"), handle_length=26) as store:
        yield store


@pytest.mark.parametrize(
    "payload",
    [
        "\x01" * 10_000,
        '"' * 10_000,
        "\\" * 10_000,
        "😀" * 10_000,
        NASTY.replace("\x00", "") * 200,
        ["\x01" * 5000],
        {"\x01" * 100: "\x02" * 5000},
        {f"{quote}key{i}{quote}" * 5: [quote * 9] for i in range(200) for quote in '"\\\x01'},
        {"k" * 4000: {"l" * 4000: {"m" * 4000: [1, 2, 3]}}},
        {"\x01" * 1000: [{"\x02" * 1000: "\\" * 1000}] * 50},
        [{"é漢😀" * 30: "é漢😀" * 30}] * 100,
    ],
    ids=lambda payload: str(payload)[:12],
)
def test_a_descriptor_fits_into_its_message(payload: object, shared: Store) -> None:
    descriptor = shared.put(payload, mime_type="application/" + "x" * 100 + "+json")
    assert len(build_message(descriptor)) <= 4096
    json.loads(json.loads(build_message(descriptor))["result"]["content"][0]["text"])


@pytest.mark.slow
@given(st.recursive(nasty_text, lambda inner: st.lists(inner) | st.dictionaries(nasty_text, inner), max_leaves=80))
def test_any_descriptor_fits_into_its_message(shared: Store, payload: object) -> None:
    assert len(build_message(shared.put(payload))) <= 4096


def test_the_preview_shrinks_first(shared: Store) -> None:
    rows = [{"name": '"' * 50, "text": "\x01" * 50}] * 100
    descriptor = shared.put({"rows": rows})
    assert descriptor.outline == "{rows: [{name: str, text: str}] ×100}"
    assert descriptor.preview is not None
    assert 100 < len(descriptor.preview) < 2048
    assert len(build_message(descriptor)) > 3000


def test_then_the_outline_is_dropped_then_the_items_path(shared: Store) -> None:
    descriptor = shared.put({"k" * 4000: [1] * 4000})
    assert (descriptor.outline, descriptor.items_path) == (None, None)
    assert descriptor.item_count == 4000
    assert shared.fetch(descriptor.output_handle).format == "items"
    assert descriptor.preview == ""


def test_the_preview_is_whole(shared: Store) -> None:
    preview = shared.put("é" * 5000).preview
    assert preview is not None
    assert set(preview) == {"é"}
    assert len(preview.encode()) == 2048
    assert shared.put(b"\xff" * 5000).preview is None
    assert shared.put("short").preview == "short"


def sent_size(descriptor: Descriptor, escape_levels: int, is_ascii: bool, is_repeated: bool = False) -> int:
    """Measure a descriptor by really writing it into JSON strings, with a `json` that escapes all but ASCII."""
    text = descriptor.to_json().decode()
    for _ in range(escape_levels):
        text = json.dumps(text, ensure_ascii=False)[1:-1]
    size = len(text.encode())
    if is_ascii:
        size = sum(len(json.dumps(char)) - 2 if ord(char) >= 0x7F else 1 for char in text)
    return size + sent_size(descriptor, 0, is_ascii) if is_repeated else size


def check_fit(full: Descriptor, max_bytes: int, escape_levels: int, is_ascii: bool, is_repeated: bool) -> None:
    """Fit a descriptor, and check that it lost no more than it had to, in the order it promises."""
    fitted = full.fit(max_bytes, escape_levels=escape_levels, is_ascii=is_ascii, is_repeated=is_repeated)
    size = sent_size(fitted, escape_levels, is_ascii, is_repeated)
    assert size == fitted.sent_size(escape_levels, is_ascii=is_ascii, is_repeated=is_repeated)
    bare = dataclasses.replace(full, preview="")
    for name in ("outline", "items_path"):
        if sent_size(bare, escape_levels, is_ascii, is_repeated) > max_bytes:
            bare = dataclasses.replace(bare, **{name: None})  # type: ignore[arg-type]
    assert fitted == dataclasses.replace(bare, preview=fitted.preview)
    if full.preview is None:
        assert fitted.preview is None
        return
    assert fitted.preview is not None
    assert full.preview.startswith(fitted.preview)
    if fitted.preview:
        assert size <= max_bytes
    elif size > max_bytes:
        assert (fitted.outline, fitted.items_path) == (None, None)
    if full.preview.isascii() and "\\" not in full.preview and "\r" not in full.preview:
        # Nothing here has to stay together, so the next character would be too much.
        longer = dataclasses.replace(fitted, preview=full.preview[: len(fitted.preview) + 1])
        assert fitted.preview == full.preview or sent_size(longer, escape_levels, is_ascii, is_repeated) > max_bytes


FULL = Descriptor(
    "oh_AAAAAAAAAAAA", "application/json", 1000, 10, 'ab"\x01é漢\x7f😀' * 12, "2027-01-15T08:00:00Z",
    items_path="/rows", outline="{rows: [{näme: str}] ×10}",
)  # fmt: skip


@pytest.mark.parametrize("is_repeated", [False, True])
@pytest.mark.parametrize("is_ascii", [False, True])
@pytest.mark.parametrize("escape_levels", [0, 1])
@pytest.mark.parametrize("preview", [FULL.preview, 'plain "text"\n' * 12, "", None])
def test_a_descriptor_fits_at_every_size(
    preview: str | None, escape_levels: int, is_ascii: bool, is_repeated: bool
) -> None:
    full = dataclasses.replace(FULL, preview=preview)
    for max_bytes in range(sent_size(full, escape_levels, is_ascii, is_repeated) + 3):
        check_fit(full, max_bytes, escape_levels, is_ascii, is_repeated)


@given(
    st.builds(
        Descriptor, st.just("oh_AAAAAAAAAAAA"), nasty_text, st.integers(0, 1 << 60), st.none() | st.integers(0, 999),
        nasty_text.map(lambda text: text.replace("\x00", "")) | st.none(), st.just("2027-01-15T08:00:00Z"), nasty_text,
        nasty_text | st.none(), nasty_text | st.none(),
    ),
    st.integers(0, 4000),
    st.integers(0, 1),
    st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_any_descriptor_fits_any_size(
    full: Descriptor, max_bytes: int, escape_levels: int, is_ascii: bool, is_repeated: bool
) -> None:
    check_fit(full, max_bytes, escape_levels, is_ascii, is_repeated)


def test_the_preview_is_cut_from_the_source_if_there_is_one() -> None:
    bare = dataclasses.replace(FULL, preview=None)

    def fit(data: bytes, max_bytes: int = 4000) -> str | None:
        return dataclasses.replace(bare, preview_source=PreviewSource(data)).fit(max_bytes).preview

    assert fit(b"from the payload") == "from the payload"
    assert fit(b"x" * 5000) == "x" * 2048
    assert fit(b"from the payload", 0) == ""
    assert bare.fit(4000).preview is None
    assert "preview_source" not in bare.to_dict()


ORDERS = [{"id": i, "customer": {"name": f"Nr {i}"}, "total": i / 4} for i in range(60_000)]
ORDERS_DOCUMENT = {"page": 1, "next": None, "orders": ORDERS, "total": 60_000, "note": "é" * 2000}


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("indent", [None, 1])
def test_the_preview_shows_whole_first_items_and_the_scalars_beside_them(
    shared: Store, is_streamed: bool, indent: int | None
) -> None:
    data = json.dumps(ORDERS_DOCUMENT, indent=indent).encode()
    descriptor = shared.put(iter([data]) if is_streamed else data)
    assert descriptor.preview is not None
    shown = json.loads(descriptor.preview)
    orders = shown.pop("orders")
    assert len(orders) > 10
    assert orders == ORDERS[: len(orders)]
    assert (descriptor.preview_items, descriptor.item_count) == (len(orders), 60_000)
    assert shown.pop("note").endswith("é...")
    assert shown == {"page": 1, "next": None, "total": 60_000}
    assert descriptor.outline == (
        "{page: int, next: null, orders: [{id: int, customer: {name: str}, total: float}] ×60000, "
        "total: int, note: str}"
    )
    assert len(build_message(descriptor)) > 3500


@pytest.mark.parametrize("is_ascii", [False, True])
@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_shorter_preview_is_made_of_whole_items_too(shared: Store, is_ascii: bool, is_repeated: bool) -> None:
    full = shared.put({"total": 2, "rows": [{"näme": "x" * 600, "tags": [1, 2, 3]}] * 10})
    for max_bytes in range(300, 4000, 23):
        fitted = full.fit(max_bytes, is_ascii=is_ascii, is_repeated=is_repeated)
        assert sent_size(fitted, 1, is_ascii, is_repeated) <= max_bytes or fitted.preview == ""
        if fitted.preview:
            rows = json.loads(fitted.preview)["rows"]
            is_whole = all(row == {"näme": "x" * 600, "tags": [1, 2, 3]} for row in rows)
            assert is_whole or len(rows) == 1
            assert fitted.preview_items == (len(rows) if is_whole else 0)


def test_a_preview_that_is_all_of_the_payload_or_has_no_items_has_no_count_of_items(shared: Store) -> None:
    for payload in ([{"id": 1}], {"rows": [1, 2]}, {"a": {"b": "x" * 9000}}, "line\n" * 9000, bytes(9000)):
        descriptor = shared.put(payload)
        assert descriptor.preview_items is None
        assert b"preview_items" not in descriptor.to_json()
    entries = shared.put({f"entry {i}": {"id": i} for i in range(1000)})
    assert entries.preview is not None
    assert entries.preview_items == len(json.loads(entries.preview)) < 1000


def test_previews_of_lines_and_rows_end_after_a_whole_one(shared: Store) -> None:
    log = "".join(f"{'word ' * (i % 9)}line {i}\n" for i in range(1000))
    preview = shared.put(log).preview
    assert preview is not None
    assert log.startswith(preview + "\n")
    assert len(preview) > 1900
    rows = "id,text\n" + "".join(f'{i},"a\nb"\n' for i in range(1000))
    preview = shared.put(rows, mime_type="text/csv").preview
    assert preview is not None
    assert preview.endswith('"a\nb"')
    ndjson = "".join(json.dumps({"id": i, "text": "é" * 100}) + "\n" for i in range(1000))
    descriptor = shared.put(iter([ndjson.encode()]))
    assert descriptor.preview is not None
    numbers = [json.loads(line)["id"] for line in descriptor.preview.splitlines()]
    assert numbers == [*range(descriptor.preview_items or 0)]


@given(st.lists(st.text(alphabet="ab\r \n\u2028", max_size=5), max_size=30), st.booleans())
def test_the_line_count_is_the_number_of_lines(shared: Store, texts: list[str], is_streamed: bool) -> None:
    text = "\n".join(texts)
    descriptor = shared.put(iter([text.encode()]) if is_streamed else text)
    expected = text.count("\n") + (bool(text) and not text.endswith("\n"))
    assert descriptor.line_count == shared.stat(descriptor.output_handle).line_count == expected


def test_only_text_has_a_line_count(shared: Store) -> None:
    assert shared.put("one\ntwo\nthree").line_count == 3
    for payload in (b"[1,\n2]", b"\x00\n\x01", b'{"a":1}\n{"a":2}\n'):
        assert "line_count" not in json.loads(shared.put(payload).to_json())
