"""Redact every string and number of a payload, beside a walk in Python."""

import re
from typing import Any

import corpus
import orjson
import pytest
from conftest import Measure
from forebay._core import Redactor

PATTERN = r"[a-z]+@[a-z]+\.(?:com|org)"


def redact_in_python(data: bytes) -> bytes:
    """Parse, replace in every key, string and number, and dump again."""
    pattern = re.compile(PATTERN)

    def walk(value: Any) -> Any:
        if isinstance(value, str):
            return pattern.sub("[redacted]", value)
        if isinstance(value, dict):
            return {pattern.sub("[redacted]", key): walk(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [walk(inner) for inner in value]
        if isinstance(value, int | float) and not isinstance(value, bool) and pattern.search(str(value)):
            return pattern.sub("[redacted]", str(value))
        return value

    return orjson.dumps(walk(orjson.loads(data)))


@pytest.mark.parametrize("who", ["forebay", "orjson and re"])
@pytest.mark.parametrize(("payload", "size"), [("records", "1 MB"), ("records", "100 MB"), ("tweets", "100 MB")])
def bench_redact(measure: Measure, payload: str, size: str, who: str) -> None:
    data = corpus.load(payload, size)
    redactor = Redactor([PATTERN])
    redacted = redactor.redact(data)
    assert orjson.loads(redacted or data) == orjson.loads(redact_in_python(data))
    works = {"forebay": lambda: redactor.redact(data), "orjson and re": lambda: redact_in_python(data)}
    measure("redact", f"{payload} {size}", who, len(data), works[who])
