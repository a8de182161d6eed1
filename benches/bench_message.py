"""Parse a message with a large result lazily, beside parsing all of it."""

from typing import Any

import orjson
import pytest
from conftest import Measure
from forebay.bench.memcpy import Memcpy
from forebay.wire.lazy_json import LazyJSON, parse_lazy

LINES = "a line é\n"
"""Has an escape every ten bytes, as in a log."""


def text_message() -> bytes:
    return orjson.dumps({"id": 1, "result": {"content": [{"type": "text", "text": LINES * 2_000_000}]}})


def records_message() -> bytes:
    rows = [{"id": number, "name": f"name {number}", "tags": ["a", "b"], "w": number / 8} for number in range(400_000)]
    return orjson.dumps({"id": 1, "result": {"content": [], "structuredContent": {"result": rows}}})


MESSAGES = {"text": (text_message, "/content/0/text"), "records": (records_message, "/structuredContent/result")}


def value_at(message: Any, path: str) -> Any:
    value = message["result"]
    for key in path.split("/")[1:]:
        value = value[int(key) if isinstance(value, list) else key]
    return value


@pytest.mark.parametrize("who", ["forebay", "memcpy", "orjson"])
@pytest.mark.parametrize("name", MESSAGES)
def bench_parse_lazy(measure: Measure, name: str, who: str) -> None:
    make, path = MESSAGES[name]
    message = make()
    label = f"{name} 20 MB"
    if who == "memcpy":
        copy = Memcpy(message)
        measure("take a message apart", label, who, len(message), copy)
        assert copy.is_equal()
        return
    lazy = value_at(parse_lazy(message), path)
    assert isinstance(lazy, LazyJSON)
    assert orjson.loads(lazy.json()) == value_at(orjson.loads(message), path)
    work = parse_lazy if who == "forebay" else orjson.loads
    measure("take a message apart", label, who, len(message), work, message)


@pytest.mark.parametrize("who", ["forebay", "memcpy", "orjson"])
def bench_unescape(measure: Measure, who: str) -> None:
    raw = value_at(parse_lazy(text_message()), "/content/0/text")
    token = raw.json()
    assert raw.text() == orjson.loads(token).encode()
    match who:
        case "forebay":
            measure("unescape a text", "text 20 MB", who, len(token), raw.text)
        case "orjson":
            measure("unescape a text", "text 20 MB", who, len(token), lambda: orjson.loads(token).encode())
        case _:
            copy = Memcpy(token)
            measure("unescape a text", "text 20 MB", who, len(token), copy)
            assert copy.is_equal()
