"""The JSON document in a text with a first line or a code fence, compared with Python's parser."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from forebay.outputs.embedded_json import describe_embedded_json
from forebay.outputs.policy import OutputPolicy
from forebay.outputs.tool_call import ToolCall
from forebay.wire.lazy_json import ChunkSource
from hypothesis import example, given
from hypothesis import strategies as st
from stores import store_at

ROWS = [{"id": n, "name": f"näme {n}"} for n in range(1420)]
SHAPE = "[{id: int, name: str}] ×1420"


def find(text: str) -> bytes | None:
    """Return the bytes that the description says are JSON."""
    data = text.encode()
    described = describe_embedded_json(text)
    assert describe_embedded_json(data) == described
    assert describe_embedded_json(ChunkSource(lambda: iter([data]), len(data))) == described
    if described is None:
        return None
    span = re.match(r"bytes (\d+) to (\d+) are JSON: ", described)
    assert span is not None
    return data[int(span[1]) : int(span[2])]


def naive(text: str) -> bytes | None:
    """Return the document after the first line, unless that is the start of a code fence, and within the fence."""
    body = text.lstrip()
    first, line_break, rest = body.partition("\n")
    if line_break and not first.startswith("`"):
        if len(first.encode()) > 200:
            return None
        body = rest.lstrip()
    opening, line_break, inside = body.partition("\n")
    if line_break and opening.rstrip(" \t\r") in ("```", "```json"):
        fenced = re.match(r"(?s)(.*)\n[ \t]*```\s*\Z", inside)
        if fenced is None:
            return None
        body = fenced[1].lstrip()
    if not body.startswith(("{", "[")):
        return None
    try:
        json.loads(body)
    except ValueError:
        return None
    return body.encode()


pieces = st.sampled_from(
    [
        *("Here are", " 3 rows:", "\n", "\n\n", "\r\n", " ", "```json\n", "```\n", "\n```", "```", "é" * 99, "x"),
        *("[1]", '{"a": "é"}', "[", "[\n2]", "\n```\n"),
    ]
)


@given(st.lists(pieces, max_size=8).map("".join))
@example("Here are 3 rows:\n```json\n[1]\n```\n")
@example("Here are 3 rows:\n\n[\n2]\n")
@example("[1] x\n[1]")
@example("é" * 99 + "x\n[1]")
@example("é" * 99 + "xx\n[1]")
@example("é" * 99 + "xxx\n[1]")
@example("```\n[1]\n``` x")
@example("x\n[1]\n[1]")
def test_the_bytes_are_those_of_the_document(text: str) -> None:
    expected = naive(text)
    found = find(text)
    assert (found is None) == (expected is None)
    assert found is None or json.loads(found) == json.loads(expected or b"")


@pytest.mark.parametrize("text", [" " * 5000, "\n" * 5000, " \n" * 2500 + "x", "a" * 199 + "\n" + " \n" * 2000])
def test_white_space_has_no_json(text: str) -> None:
    assert find(text) is None


INTRODUCTION = "Here are the results — 1,420:\n\n"


@pytest.mark.parametrize(
    ("text", "start", "rest"),
    [
        (INTRODUCTION + json.dumps(ROWS, indent=1), len(INTRODUCTION.encode()), 0),
        (f"{INTRODUCTION}```json\n{json.dumps(ROWS)}\n```\n", len(INTRODUCTION.encode()) + 8, 5),
        (f"```\n{json.dumps(ROWS)}\n```", 4, 4),
    ],
)
def test_a_descriptor_says_where_the_json_is(tmp_path: Path, text: str, start: int, rest: int) -> None:
    result = {"content": [{"type": "text", "text": text}]}
    with store_at(tmp_path) as store:
        response: Any = OutputPolicy(store).pipeline.store_result(result, ToolCall("t"))
        descriptor = json.loads(response["content"][0]["text"])
        end = len(text.encode()) - rest
        assert descriptor["outline"] == f"bytes {start} to {end} are JSON: {SHAPE}"
        assert descriptor["line_count"] is not None
        with store.open(descriptor["output_handle"]) as file:
            stored = file.read()
    assert stored == text.encode()
    assert json.loads(stored[start:end]) == ROWS


def test_what_a_redaction_removes_is_not_outlined(tmp_path: Path) -> None:
    text = INTRODUCTION + json.dumps([{"secret": 1}] * 5000)
    result = {"content": [{"type": "text", "text": text}]}
    with store_at(tmp_path, redact="secret") as store:
        response = OutputPolicy(store).pipeline.store_result(result, ToolCall("t"))
    assert "secret" not in json.dumps(response)


def test_offsets_are_those_of_the_decoded_text(tmp_path: Path) -> None:
    text = f"Résultats demandés à l’équipe:\n{json.dumps([{'text': 'some letters in this row'}] * 3000)}"
    blob = base64.b64encode(text.encode("cp1252")).decode()
    resource = {"uri": "file:///rows.txt", "mimeType": "text/plain", "blob": blob}
    with store_at(tmp_path) as store:
        result = {"content": [{"type": "resource", "resource": resource}]}
        response = OutputPolicy(store).pipeline.store_result(result, ToolCall("rows"))
        descriptor = json.loads(response["content"][0]["text"])
    assert descriptor["decoded_from"] == "windows-1252"
    assert descriptor["outline"] is None
