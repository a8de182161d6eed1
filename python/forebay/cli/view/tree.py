"""A JSON value as lines: one for each member and element, indented by its depth."""

import bisect
import json
import re
from typing import NamedTuple

from forebay.errors import InvalidJSON
from forebay.store.rest import encode_token

__all__ = ["MAX_TREE_BYTES", "Node", "build_tree", "decode_key", "find_node", "make_pointer"]

MAX_TREE_BYTES = 1 << 20
"""Bytes of a value that is shown as a tree."""

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)


class Node(NamedTuple):
    """A value in a tree."""

    depth: int
    key: bytes | int | None
    """Key of a member as it is written, with its quotes; number of an element; `None` for the root."""
    line_start: int
    """Offset of the key, or of the value if it has none."""
    start: int
    """Offset of the value in the document."""
    end: int
    parent: int
    """Number of the node that holds this one; -1 for the root."""
    last: int
    """Number of the last node inside of this one, or its own."""
    children: int | None
    """How many members or elements the value has; `None` for a scalar."""


_END, _LAST, _COUNT = map(Node._fields.index, ("end", "last", "children"))


def build_tree(data: bytes) -> list[Node]:
    """Return all values of a valid JSON document, each before those inside of it."""
    nodes: list[list[int | bytes | None]] = []
    # The open containers: their nodes, and whether each is an object.
    parents: list[tuple[int, bool]] = []
    key: bytes | None = None
    key_start = 0
    for match in _TOKEN.finditer(data):
        token = match[0]
        if token in b"}]":
            if not parents:
                raise InvalidJSON("the value is not JSON: it closes what is not open", match.start())
            number, _ = parents.pop()
            nodes[number][_END] = match.end()
            nodes[number][_LAST] = len(nodes) - 1
            continue
        if token in b":,":
            continue
        parent, in_object = parents[-1] if parents else (-1, False)
        if in_object and key is None:
            key, key_start = token, match.start()
            continue
        name: bytes | int | None = key
        if parent >= 0:
            count = nodes[parent][_COUNT]
            name = key if in_object else count
            nodes[parent][_COUNT] = int(count or 0) + 1
        is_container = token in b"{["
        number = len(nodes)
        line_start = match.start() if key is None else key_start
        count = 0 if is_container else None
        nodes.append([len(parents), name, line_start, match.start(), match.end(), parent, number, count])
        key = None
        if is_container:
            parents.append((number, token == b"{"))
    if not nodes or parents:
        raise InvalidJSON("the value is not JSON, or ends too early", len(data))
    return [Node(*node) for node in nodes]  # type: ignore[arg-type]


def make_pointer(nodes: list[Node], number: int) -> str:
    """Return the JSON Pointer of a node."""
    tokens: list[str] = []
    while number > 0:
        node = nodes[number]
        tokens.append(str(node.key) if isinstance(node.key, int) else encode_token(decode_key(node.key or b"")))
        number = node.parent
    return "".join(f"/{token}" for token in reversed(tokens))


def decode_key(raw: bytes) -> str:
    """Return the key that is written as a JSON string."""
    try:
        return str(json.loads(raw))
    except ValueError:
        return raw.decode("utf-8", "replace").strip('"')


def find_node(nodes: list[Node], offset: int) -> int:
    """Return the number of the last node whose line begins at or before a byte of the document."""
    return max(bisect.bisect_right(nodes, offset, key=lambda node: node.line_start) - 1, 0)
