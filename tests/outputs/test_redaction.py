"""Redaction finds the same secrets in every shape of a result, and in everything that is shown of it."""

import base64
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from forebay.outputs.contract.limits import ResponseLimits
from forebay.outputs.pipeline import Pipeline
from forebay.outputs.tool_call import ToolCall
from forebay.store import Store
from forebay.wire.framing import Spool
from forebay.wire.lazy_json import LazyJSON, as_lazy, dump, parse_lazy
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from stores import events, store_at

SECRETS = {
    r"sk-[a-z0-9]+": "sk-abc123",
    r'"pass word"': '"pass word"',
    r"^PRIVATE$": "\nPRIVATE\n",
    r"geheim—é+": "geheim—éé",
    r"C:\\keys": "C:\\keys",
    r"a\n\tb": "a\n\tb",
    r"\d{4}-\d{4}": "4111-1111",
}
"""An expression for each secret. Most are spelled otherwise in JSON."""

REDACTED = "[redacted]"


def redact_plainly(text: str) -> str:
    """Return a text without its secrets, by Python's own expressions."""
    for expression in SECRETS:
        text = re.sub(expression, REDACTED, text, flags=re.MULTILINE | re.ASCII)
    return text


def encode_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def escape_all(text: str) -> str:
    """Return a JSON string in which every character is escaped."""
    units = text.encode("utf-16-be")
    return '"' + "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)) + '"'


Shape = tuple[Callable[[str], Any], Callable[[bytes], str]]

SHAPES: dict[str, Shape] = {
    "text": (lambda text: {"content": [{"type": "text", "text": text}]}, bytes.decode),
    "json in text": (
        lambda text: {"content": [{"type": "text", "text": json.dumps({"a": [1, text]})}]},
        lambda data: json.loads(data)["a"][1],
    ),
    "a key in json in text": (
        lambda text: {"content": [{"type": "text", "text": json.dumps({text: 1}, indent=2)}]},
        lambda data: next(iter(json.loads(data))),
    ),
    "escaped json in text": (
        lambda text: {"content": [{"type": "text", "text": f"[{escape_all(text)}]"}]},
        lambda data: json.loads(data)[0],
    ),
    "json in json in text": (
        lambda text: {"content": [{"type": "text", "text": json.dumps([json.dumps([text])])}]},
        lambda data: json.loads(json.loads(data)[0])[0],
    ),
    "lines in text": (
        lambda text: {"content": [{"type": "text", "text": f'{{"n": 1}}\n{json.dumps({"t": text})}\n'}]},
        lambda data: json.loads(data.splitlines()[1])["t"],
    ),
    "blocks": (
        lambda text: {"content": [{"type": "text", "text": "first"}, {"type": "text", "text": text}]},
        lambda data: json.loads(data)["content"][1]["text"],
    ),
    "structured content": (
        lambda text: {"content": [], "structuredContent": {"rows": [{"text": text}]}},
        lambda data: json.loads(data)["rows"][0]["text"],
    ),
    "structured content and its text": (
        lambda text: {
            "content": [{"type": "text", "text": json.dumps({"rows": text})}],
            "structuredContent": {"rows": text},
        },
        lambda data: json.loads(data)["rows"],
    ),
    "blob": (
        lambda text: {"content": [{"type": "resource", "resource": {"uri": "file:///x", "blob": encode_base64(text)}}]},
        bytes.decode,
    ),
    "blob among blocks": (
        lambda text: {
            "content": [
                {"type": "text", "text": "first"},
                {"type": "resource", "resource": {"uri": "file:///x", "blob": encode_base64(text)}},
            ]
        },
        lambda data: base64.b64decode(json.loads(data)["content"][1]["resource"]["blob"]).decode(),
    ),
    "malformed": (lambda text: {"content": text, "padding": "-" * 200}, lambda data: json.loads(data)["content"]),
}

printable = st.characters(exclude_categories=["Cc", "Cs"])

texts = st.lists(
    st.one_of(
        st.sampled_from([*SECRETS.values()]),
        st.text(printable, max_size=5),
        st.sampled_from(['"', "\\", "\n", " ", "é", "\x1b[1m", "\x08", "\x0c", "\x7f"]),
    ),
    max_size=8,
).map(lambda pieces: "some text: " + "".join(pieces))
"""Texts that are long enough to be found in base64, and neither JSON nor base64 themselves."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with store_at(tmp_path / "store", redact=[*SECRETS]) as store:
        yield store


def store_result(store: Store, result: Any, folder: Path | None = None) -> tuple[dict[str, Any], bytes]:
    """Store a result, and return the response and the stored payload. With a folder, the result is in a spool."""
    if folder is not None:
        spool = Spool(folder)
        spool.write(dump(result))
        result = parse_lazy(spool)
    response = Pipeline(store, "output_fetch").store_result(result, ToolCall("tool"))
    assert not isinstance(response, LazyJSON)
    with store.open(json.loads(response["content"][0]["text"])["output_handle"]) as file:
        return response, file.read()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("is_spooled", [False, True])
@given(texts)
@example("some text: " + "".join(SECRETS.values()))
@example("some text: \x1b[1m" + "".join(SECRETS.values()))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_shape_hides_the_same_secrets(
    store: Store, tmp_path: Path, shape: str, is_spooled: bool, text: str
) -> None:
    wrap, unwrap = SHAPES[shape]
    _, stored = store_result(store, wrap(text), tmp_path if is_spooled else None)
    assert unwrap(stored) == redact_plainly(text)


@pytest.mark.parametrize("secret", SECRETS.values())
@pytest.mark.parametrize("shape", SHAPES)
def test_the_response_shows_no_secret(store: Store, shape: str, secret: str) -> None:
    wrap, _ = SHAPES[shape]
    response, stored = store_result(store, wrap(f"before {secret} after"))
    marker = secret.strip()
    for shown in (json.dumps(response, ensure_ascii=False), stored.decode()):
        assert marker not in shown
        assert json.dumps(marker, ensure_ascii=False)[1:-1] not in shown
        assert encode_base64(marker)[:-4] not in shown


def test_fields_beside_the_descriptor_are_redacted(store: Store) -> None:
    result = {
        "content": [
            {
                "type": "resource",
                "resource": {"uri": "https://host/?key=sk-abc123", "mimeType": "text/sk-abc123", "text": "a" * 100},
                "annotations": {"audience": ["sk-abc123"]},
                "_meta": {"sk-abc123": 1},
            }
        ],
        "_meta": {"note": {"deep": "4111-1111"}, "io.modelcontextprotocol/related-task": {"taskId": "4111-1111"}},
        "resultType": "complete",
    }
    response, _ = store_result(store, result)
    assert response["_meta"] == {
        "note": {"deep": REDACTED},
        "io.modelcontextprotocol/related-task": {"taskId": "4111-1111"},
    }
    block = response["content"][0]
    assert block["annotations"] == {"audience": [REDACTED]}
    assert block["_meta"][REDACTED] == 1
    assert "sk-abc123" not in json.dumps(response)


def test_a_mime_type_is_redacted_under_contract(store: Store) -> None:
    resource = {"uri": "a:b", "mimeType": "text/sk-abc123", "text": "a line\n" * 5000}
    call = ToolCall("tool", contract=ResponseLimits())
    result = {"content": [{"type": "resource", "resource": resource}]}
    response = Pipeline(store, "output_fetch").store_result(result, call)
    assert json.loads(response["content"][0]["text"])["hasMore"] is True
    assert [entry.mime_type for entry in store.list()] == ["text/plain"]
    assert "sk-abc123" not in json.dumps(events(store, "output_handle_created"))


def test_what_cannot_be_redacted_beside_the_descriptor_is_not_shown(tmp_path: Path) -> None:
    def fail(text: bytes) -> bytes:
        if text == b"note":
            raise ValueError
        return text

    with store_at(tmp_path / "store", redact=fail) as store:
        result = {"content": [{"type": "text", "text": "a"}], "_meta": {"note": "secret"}}
        response = Pipeline(store, "output_fetch").store_result(result, ToolCall("tool"))
        assert "redaction_failed" in response["content"][0]["text"]
        assert "secret" not in json.dumps(response)


def test_redacted_fields_that_grow_stay_within_the_message(tmp_path: Path) -> None:
    with store_at(tmp_path / "store", redact="z") as store:
        result = {"content": [{"type": "text", "text": "text"}], "_meta": {"note": "z" * 400}}
        response, stored = store_result(store, result)
        assert len(json.dumps(response)) <= 4096
        assert json.loads(stored)["_meta"] == {"note": REDACTED * 400}


def test_an_error_that_cannot_be_stored_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("sk-abc123")

    with store_at(tmp_path / "store", redact="sk-abc123") as store:
        monkeypatch.setattr(store, "put", fail)
        error = Pipeline(store, "output_fetch").store_error({"code": 7, "message": "sk-abc123"}, ToolCall("tool"))
        assert error == {"code": 7, "message": "the error could not be redacted"}


def test_the_code_of_a_malformed_error_need_not_be_found(store: Store) -> None:
    malformed = as_lazy(b'{"message":"sk-abc123","code" 7}')
    error = Pipeline(store, "output_fetch").store_error(malformed, ToolCall("tool"))
    assert error is not None
    assert error["code"] == -32603
    assert "sk-abc123" not in json.dumps(error)
    assert b"sk-abc123" not in store.fetch(error["data"]["output_handle"], format="bytes").to_json()
