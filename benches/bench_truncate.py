"""An overview of 10 KB."""

from typing import Any

import corpus
import forebay
import orjson
import pytest
from conftest import Measure
from memcpy import Memcpy

BUDGET = 10_240
AMPLE = 1 << 20


def cut(value: Any, items: int, chars: int, depth: int = 0) -> Any:
    """What `truncate` promises, over objects."""
    if depth > 4:
        return "[truncated]"
    match value:
        case str() if len(value) > chars:
            return value[:chars] + "..."
        case list():
            shown = [cut(item, items, chars, depth + 1) for item in value[:items]]
            return shown if len(value) <= items else {"items": shown, "totalCount": len(value), "showing": items}
        case dict():
            return {key: cut(member, items, chars, depth + 1) for key, member in value.items()}
    return value


def orjson_truncate(data: bytes, max_bytes: int = BUDGET) -> bytes:
    """Loads, walks and dumps; halves the limits until the answer fits."""
    value = orjson.loads(data)
    items, chars = 10, 500
    while len(answer := orjson.dumps(cut(value, items, chars))) > max_bytes:
        items, chars = items // 2, chars // 2
    return answer


def agree(data: bytes) -> bool:
    """Where the budget does not bite both must say the same; where it does, both must keep to it."""
    ample = orjson.loads(forebay.truncate(data, max_bytes=AMPLE))
    return (
        ample == orjson.loads(orjson_truncate(data, AMPLE))
        and len(forebay.truncate(data, max_bytes=BUDGET)) <= BUDGET
        and len(orjson_truncate(data)) <= BUDGET
    )


@pytest.mark.parametrize("who", ["forebay", "memcpy", "orjson"])
@pytest.mark.parametrize(
    ("name", "size"),
    [("records", "1 MB"), ("tweets", "1 MB"), ("records", "100 MB"), ("wrapped", "100 MB"), ("big_items", "100 MB")],
)
def bench_truncate(measure: Measure, name: str, size: str, who: str) -> None:
    data = corpus.load(name, size)
    label = f"{name} {size}"
    match who:
        case "forebay":
            assert agree(data)
            measure("truncate to 10 KB", label, who, len(data), lambda: forebay.truncate(data, max_bytes=BUDGET))
        case "orjson":
            assert agree(data)
            measure("truncate to 10 KB", label, who, len(data), orjson_truncate, data)
        case _:
            copy = Memcpy(data)
            measure("truncate to 10 KB", label, who, len(data), copy)
            assert copy.copied()
