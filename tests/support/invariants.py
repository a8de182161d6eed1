"""Invariants of every contract response."""

import json
import re
from typing import Any

import orjson
from forebay.outputs.contract import Response, ResponseLimits

KEYS = {"summary", "success", "count", "items", "data", "artifactRef", "fetchWith", "hasMore", "nextCursor", "error"}
WRAPPER = {"items", "totalCount", "showing"}


def message(response: str) -> bytes:
    """Return the JSON-RPC message that a client receives."""
    result = {"content": [{"type": "text", "text": str(response)}], "isError": False}
    return orjson.dumps({"jsonrpc": "2.0", "id": 2**31, "result": result})


def check(response: Response, limits: ResponseLimits) -> dict[str, Any]:
    """Assert the invariants of a response and return its fields."""
    assert len(message(response)) <= limits.max_bytes
    fields: dict[str, Any] = json.loads(response)
    assert KEYS >= fields.keys() >= {"summary", "success", "hasMore"}
    assert isinstance(fields["success"], bool)
    assert isinstance(fields["hasMore"], bool)
    assert 0 < len(fields["summary"]) <= 100
    assert "\n" not in fields["summary"]
    assert not re.search("[\ud800-\udfff]", fields["summary"])
    check_value(fields.get("data"), limits, 1)
    check_value(fields.get("items", []), limits, 1)
    return fields


def check_value(value: Any, limits: ResponseLimits, depth: int) -> None:
    if depth > limits.max_json_depth:
        # The number of keys left out may be a long one; a value that the marker would not shorten is shown.
        assert isinstance(value, int) or len(orjson.dumps(value)) <= len('"[truncated]"')
        return
    match value:
        case str():
            assert len(value) <= limits.max_string_length + 3
            assert not re.search("[\ud800-\udfff]", value)
        case list():
            assert len(value) <= limits.max_array_items
            for item in value:
                check_value(item, limits, depth + 1)
        case dict() if value.keys() == WRAPPER and isinstance(value["items"], list):
            check_value(value["items"], limits, depth)
        case dict():
            for key, member in value.items():
                assert len(key) <= max(64, limits.max_string_length) + 3
                check_value(member, limits, depth + 1)
