"""What is said of a payload in place of it."""

import json
from collections.abc import Iterator

import forebay
import pytest
from forebay import Store
from hypothesis import given
from hypothesis import strategies as st
from stores import store_at
from texts import NASTY, nasty_text


def message_of(descriptor: forebay.Descriptor) -> bytes:
    """A descriptor as it goes over the wire."""
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
    assert len(message_of(descriptor)) <= 4096
    json.loads(json.loads(message_of(descriptor))["result"]["content"][0]["text"])


@pytest.mark.slow
@given(st.recursive(nasty_text, lambda inner: st.lists(inner) | st.dictionaries(nasty_text, inner), max_leaves=80))
def test_any_descriptor_fits_into_its_message(shared: Store, payload: object) -> None:
    assert len(message_of(shared.put(payload))) <= 4096


def test_the_preview_shrinks_first(shared: Store) -> None:
    rows = [{"name": '"' * 50, "text": "\x01" * 50}] * 100
    descriptor = shared.put({"rows": rows})
    assert descriptor.outline == "{rows: [{name: str, text: str}] ×100}"
    assert descriptor.preview is not None
    assert 100 < len(descriptor.preview) < 2048
    assert len(message_of(descriptor)) > 3000


def test_then_the_outline_then_where_the_items_are(shared: Store) -> None:
    descriptor = shared.put({"k" * 4000: [1] * 4000})
    assert (descriptor.outline, descriptor.items_path) == (None, None)
    assert descriptor.item_count == 4000
    assert shared.fetch(descriptor.output_handle).format == "items"
    assert descriptor.preview == '{"' + "k" * len(descriptor.preview[2:])  # type: ignore[index]


def test_the_preview_is_whole(shared: Store) -> None:
    preview = shared.put("é" * 5000).preview
    assert preview is not None
    assert set(preview) == {"é"}
    assert len(preview.encode()) == 2048
    assert shared.put(b"\xff" * 5000).preview is None
    assert shared.put("short").preview == "short"
