"""A minimal, fast server on stdio, which caches its results.

The tool `text` returns `size` bytes of JSON records with quotes to escape; the same size gives the same text.
"""

import json
import os
import sys
from functools import lru_cache
from typing import Any

from raw_answers import make_result


@lru_cache
def make_text(size: int) -> str:
    """Return JSON of this size."""
    record = '{"id": %d, "name": "café \\"no. %d\\"", "tags": ["a", "b"], "note": "line\\nline", "price": %d.5}'
    rows = [record % (number, number, number % 997) for number in range(size // 85 + 1)]
    return ("[" + ", ".join(rows) + "]")[: size - 1].ljust(size - 1) + "]"


@lru_cache
def dump_result(size: int) -> bytes:
    return json.dumps(
        {"content": [{"type": "text", "text": make_text(size)}], "isError": False}, ensure_ascii=False
    ).encode()


def make_response(message: dict[str, Any]) -> bytes:
    if message["method"] == "tools/call":
        return dump_result(message["params"]["arguments"]["size"])
    return json.dumps(make_result(message["method"], "raw stdio server", {"size": {"type": "integer"}}) or {}).encode()


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message:
            view = memoryview(b'{"jsonrpc":"2.0","id":%d,"result":%s}\n' % (message["id"], make_response(message)))
            while view:
                view = view[os.write(1, view) :]


if __name__ == "__main__":
    main()
