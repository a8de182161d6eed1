"""A server on stdio as fast as Python can be: what it answers with is made before it is asked.

`text` answers with a text of `size` bytes, as JSON records with quotes to escape; the same size is the same text.
"""

import json
import os
import sys
from functools import lru_cache
from typing import Any

from raw_answers import said


@lru_cache
def text(size: int) -> str:
    """JSON of about this size."""
    record = '{"id": %d, "name": "café \\"no. %d\\"", "tags": ["a", "b"], "note": "line\\nline", "price": %d.5}'
    rows = [record % (number, number, number % 997) for number in range(size // 85 + 1)]
    return ("[" + ", ".join(rows) + "]")[: size - 1].ljust(size - 1) + "]"


@lru_cache
def result(size: int) -> bytes:
    return json.dumps(
        {"content": [{"type": "text", "text": text(size)}], "isError": False}, ensure_ascii=False
    ).encode()


def answer(message: dict[str, Any]) -> bytes:
    if message["method"] == "tools/call":
        return result(message["params"]["arguments"]["size"])
    return json.dumps(said(message["method"], "raw stdio server", {"size": {"type": "integer"}}) or {}).encode()


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message:
            view = memoryview(b'{"jsonrpc":"2.0","id":%d,"result":%s}\n' % (message["id"], answer(message)))
            while view:
                view = view[os.write(1, view) :]


if __name__ == "__main__":
    main()
