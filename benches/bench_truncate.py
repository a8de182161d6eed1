"""Truncate documents to 10 KB."""

import corpus
import forebay
import orjson
import pytest
from conftest import Measure
from forebay.bench.memcpy import Memcpy
from forebay.bench.truncating import truncate_objects

BUDGET_BYTES = 10_240
AMPLE_BYTES = 1 << 20


def agree(data: bytes) -> bool:
    """Return whether both sides agree under an ample budget and both keep to a small one."""
    ample = orjson.loads(forebay.truncate(data, max_bytes=AMPLE_BYTES))
    return (
        ample == orjson.loads(truncate_objects(data, AMPLE_BYTES))
        and len(forebay.truncate(data, max_bytes=BUDGET_BYTES)) <= BUDGET_BYTES
        and len(truncate_objects(data)) <= BUDGET_BYTES
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
            measure("truncate to 10 KB", label, who, len(data), truncate_objects, data)
        case _:
            copy = Memcpy(data)
            measure("truncate to 10 KB", label, who, len(data), copy)
            assert copy.is_equal()
