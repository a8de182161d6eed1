"""The tools that read outputs, called without a server: errors that say what to do."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forebay
import pytest
from forebay import Store
from forebay.outputs.tools import Caller, OutputTools


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with forebay.open_store(tmp_path, sweep_interval=0) as store:
        yield store


def call_error(store: Store, tool: str, arguments: Any) -> dict[str, Any]:
    result = OutputTools(store, prefix="", journal=False).call(tool, arguments, Caller())
    assert result["isError"]
    return dict(json.loads(result["content"][0]["text"])["error"])


def test_a_wrong_path_is_answered_with_the_outline(store: Store) -> None:
    handle = store.put({"rows": [{"id": 1}]}).output_handle
    error = call_error(store, "output_fetch", {"output_handle": handle, "path": "/orders"})
    assert error["code"] == "path_not_found"
    assert error["message"].startswith("nothing at path '/orders'; there is {rows: [{id: int}]")
    # Of fields, the error says itself which there are.
    error = call_error(store, "output_fetch", {"output_handle": handle, "path": "/orders", "fields": ["id"]})
    assert error["code"] == "path_not_found"


def test_arguments_that_are_no_object_are_refused(store: Store) -> None:
    error = call_error(store, "output_search", ["oh_AAAAAAAAAAAA"])
    assert error["message"] == "the arguments of output_search must be a JSON object"


def test_an_internal_error_is_logged_and_hidden(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a secret of the server")

    monkeypatch.setattr(store, "fetch_page", fail)
    error = call_error(store, "output_fetch", {"output_handle": "oh_AAAAAAAAAAAA"})
    assert "output_fetch failed with an internal error, which the server logged" in error["message"]
    assert "secret" not in json.dumps(error)
    assert "a secret of the server" in caplog.text
