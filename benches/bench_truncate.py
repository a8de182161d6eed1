"""Truncate documents to 10 KB."""

from typing import Any

import corpus
import forebay
import orjson
import pytest
from conftest import Measure
from memcpy import Memcpy

BUDGET_BYTES = 10_240
AMPLE_BYTES = 1 << 20


def cut(value: Any, items: int, chars: int, depth: int = 0) -> Any:
    """Truncate Python objects by the limits of `forebay.truncate`."""
    if depth > 4:
        return value if len(orjson.dumps(value)) <= len('"[truncated]"') else "[truncated]"
    match value:
        case str() if len(value) > chars:
            return value[:chars] + "..."
        case list():
            shown = [cut(item, items, chars, depth + 1) for item in value[:items]]
            return shown if len(value) <= items else {"items": shown, "totalCount": len(value), "showing": items}
        case dict():
            return {key: cut(member, items, chars, depth + 1) for key, member in value.items()}
    return value


def orjson_truncate(data: bytes, max_bytes: int = BUDGET_BYTES) -> bytes:
    """Load, cut and dump a document, halving the limits until the result fits."""
    value = orjson.loads(data)
    items, chars = 10, 500
    while len(answer := orjson.dumps(cut(value, items, chars))) > max_bytes:
        items, chars = items // 2, chars // 2
    return answer


def agree(data: bytes) -> bool:
    """Return whether both sides agree under an ample budget and both keep to a small one."""
    ample = orjson.loads(forebay.truncate(data, max_bytes=AMPLE_BYTES))
    return (
        ample == orjson.loads(orjson_truncate(data, AMPLE_BYTES))
        and len(forebay.truncate(data, max_bytes=BUDGET_BYTES)) <= BUDGET_BYTES
        and len(orjson_truncate(data)) <= BUDGET_BYTES
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
            measure("truncate to 10 KB", label, who, len(data), lambda: forebay.truncate(data, max_bytes=BUDGET_BYTES))
        case "orjson":
            assert agree(data)
            measure("truncate to 10 KB", label, who, len(data), orjson_truncate, data)
        case _:
            copy = Memcpy(data)
            measure("truncate to 10 KB", label, who, len(data), copy)
            assert copy.is_equal()
