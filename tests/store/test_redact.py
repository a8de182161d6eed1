"""Redacted secrets are never on disk."""

import json
import traceback
from pathlib import Path
from typing import Any

import pytest
from forebay import RedactionFailed
from forebay.store.backends.local import LocalUpload
from stores import events, payload_files, store_at, whole

SECRET = b"hunter2-correct-horse"


def find_secret(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and SECRET in path.read_bytes()]


@pytest.mark.parametrize("size", [100, 3_000_000])
def test_redacted_secrets_are_never_written(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    looks = 0
    write = LocalUpload.write

    def watched(upload: LocalUpload, parts: Any) -> None:
        nonlocal looks
        write(upload, parts)
        assert find_secret(root) == []
        looks += 1

    def remove(data: bytes) -> bytes:
        assert find_secret(root) == []
        return data.replace(SECRET, b"[removed]")

    monkeypatch.setattr(LocalUpload, "write", watched)
    text = (b"x" * size) + SECRET + b" and on"
    payloads: list[object] = [text, text.decode(), iter([text[:-12], text[-12:]]), {"key": text.decode()}]
    with store_at(root, redact=[remove, bytes], compression="none") as store:
        for payload in payloads:
            descriptor = store.put(payload, source_tool="tool")
            assert SECRET not in descriptor.to_json()
            assert b"[removed] and on" in whole(store, descriptor.output_handle)
        assert find_secret(root) == []
    assert looks >= len(payloads)


def test_redactions_are_applied_in_order(tmp_path: Path) -> None:
    with store_at(tmp_path / "store", redact=[bytes.upper, lambda data: data + b"!"]) as store:
        assert whole(store, store.put("abc").output_handle) == b"ABC!"


def quote(data: bytes) -> bytes:
    raise ValueError(data.decode())


@pytest.mark.parametrize(
    "redact",
    [
        lambda data: json.loads(data + SECRET),
        lambda data: data.decode(),
        lambda _: None,
        lambda data: bytearray(data),
        lambda _: 1 / 0,
        lambda data: quote(data),
    ],
    ids=["raises", "text", "None", "bytearray", "divides", "quotes"],
)
def test_a_failed_redaction_stores_nothing_and_shows_nothing(redact: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with store_at(root, redact=redact, compression="none") as store:
        with pytest.raises(RedactionFailed, match="nothing was stored") as raised:
            store.put(SECRET)
        assert SECRET.decode() not in json.dumps(raised.value.to_dict())
        assert raised.value.code == "redaction_failed"
        assert SECRET.decode() not in "".join(traceback.format_exception(raised.value))
        (event,) = events(store, "store_failed")
        assert event["code"] == "redaction_failed"
    assert payload_files(root) == []
    assert find_secret(root) == []
