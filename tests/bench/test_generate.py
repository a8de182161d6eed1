"""Generated payloads: reproducible, of the size that was asked for, and what they say they are."""

import hashlib

import orjson
import pytest
from forebay.bench.generate import SHAPES, generate
from forebay.bench.payloads import generate_payload, make_payload

NATURES = {"orders": "json", "crawl": "json", "events": "ndjson", "log": "text", "csv": "csv"}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [2_000, 500_000, 2_500_000])
def test_a_shape_has_its_size_and_its_nature(shape: str, size: int) -> None:
    payload = generate_payload(shape, size, 1)
    assert size - 6000 < len(payload.data) <= size
    assert payload.nature == NATURES[shape]
    assert (payload.items is None) == (shape == "log")


def test_ids_are_unique_beyond_the_chunk_that_is_repeated() -> None:
    orders = orjson.loads(generate("orders", 2_500_000))["orders"]
    assert len({order["id"] for order in orders}) == len(orders) > 5000


def test_the_seed_decides_the_bytes() -> None:
    one, again, other = generate("orders", 100_000, 1), generate("orders", 100_000, 1), generate("orders", 100_000, 2)
    assert one == again != other
    # The same on every machine and in every version, so that reports of different days can be compared.
    assert hashlib.sha256(one).hexdigest()[:16] == "4de8ae7842f562f3"


@pytest.mark.parametrize(
    ("data", "name", "nature", "has_items"),
    [
        (b"", "a.json", "empty", False),
        (b"42", "a.json", "json", False),
        (b'"text"', "a.json", "json", False),
        (b"42", "a.txt", "text", False),
        (b'{"a": 1}', "-", "json", False),
        (b'{"a": [1, 2]}', "-", "json", True),
        (b'{"a": 1}\n{"a": 2}\n', "-", "ndjson", True),
        (b"a,b\n1,2\n", "a.csv", "csv", True),
        (b"a\tb\n1\t2\n", "a.tsv", "tsv", True),
        (b"plain text\n", "-", "text", False),
        (b"\x00\xff", "-", "binary", False),
    ],
)
def test_payloads_are_recognized(data: bytes, name: str, nature: str, has_items: bool) -> None:
    payload = make_payload(data, name)
    assert (payload.nature, payload.items is not None, payload.json_error) == (nature, has_items, None)
    assert payload.to_dict()["sha256"] == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("name", ["-", "a.json"])
def test_invalid_json_is_text_and_says_why(name: str) -> None:
    payload = make_payload(b'{"a": [1, 2,, 3]}', name)
    assert payload.nature == "text"
    assert payload.json_error is not None
    assert "12" in payload.json_error
