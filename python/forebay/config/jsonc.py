"""Parser of JSON with comments and trailing commas that keeps the positions of values."""

import json
import re
from typing import NoReturn

from forebay.config.nodes import Member, Node
from forebay.errors import InvalidArgument

__all__ = ["parse_jsonc"]

_SPACE_PATTERN = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING_PATTERN = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*"')
_SCALAR_PATTERN = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_MAX_DEPTH = 200
"""Maximum nesting depth of a document, below Python's recursion limit."""


def parse_jsonc(text: str) -> Node:
    """Parse a document. Raises `InvalidArgument` with the line of an error."""
    parser = _Parser(text)
    start = parser.skip_space(1 if text.startswith("\ufeff") else 0)
    node = parser.parse_value(start, 0)
    end = parser.skip_space(node.end)
    if end != len(text):
        parser.fail(end, "nothing more")
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text

    def fail(self, position: int, expected: str) -> NoReturn:
        line = self._text.count("\n", 0, position) + 1
        found = "the end" if position >= len(self._text) else repr(self._text[position])
        raise InvalidArgument(f"line {line} has {found} where {expected} should be", position)

    def skip_space(self, position: int) -> int:
        found = _SPACE_PATTERN.match(self._text, position)
        return position if found is None else found.end()

    def parse_value(self, position: int, depth: int) -> Node:
        if depth > _MAX_DEPTH:
            self.fail(position, "no deeper nesting")
        match self._text[position : position + 1]:
            case "{":
                return self._parse_object(position, depth)
            case "[":
                return self._parse_array(position, depth)
            case '"':
                return self._parse_string(position)
        found = _SCALAR_PATTERN.match(self._text, position)
        if found is None:
            self.fail(position, "a value")
        try:
            return Node(position, found.end(), json.loads(found[0]))
        except ValueError:
            # Python refuses to convert a number of thousands of digits.
            self.fail(position, "a shorter number")

    def _parse_string(self, position: int) -> Node:
        found = _STRING_PATTERN.match(self._text, position)
        if found is None:
            self.fail(position, "a text that ends")
        return Node(position, found.end(), json.loads(found[0]))

    def _parse_array(self, start: int, depth: int) -> Node:
        nodes: list[Node] = []
        at = self.skip_space(start + 1)
        while self._text[at : at + 1] != "]":
            nodes.append(self.parse_value(at, depth + 1))
            at = self._skip_separator(nodes[-1].end, "]")
        return Node(start, at + 1, nodes)

    def _parse_object(self, start: int, depth: int) -> Node:
        members: dict[str, Member] = {}
        at = self.skip_space(start + 1)
        while self._text[at : at + 1] != "}":
            if self._text[at : at + 1] != '"':
                self.fail(at, "a key")
            key = self._parse_string(at)
            if key.value in members:
                # If a key occurs twice, some clients use the first value and others the last, so this is refused.
                self.fail(at, f"no second {key.value}")
            colon = self.skip_space(key.end)
            if self._text[colon : colon + 1] != ":":
                self.fail(colon, "a colon")
            node = self.parse_value(self.skip_space(colon + 1), depth + 1)
            members[key.value] = Member(key.start, key.end, node)
            at = self._skip_separator(node.end, "}")
        return Node(start, at + 1, members)

    def _skip_separator(self, end: int, closing_bracket: str) -> int:
        """Return the position of the next element or of the closing bracket."""
        at = self.skip_space(end)
        if self._text[at : at + 1] == ",":
            return self.skip_space(at + 1)
        if self._text[at : at + 1] != closing_bracket:
            self.fail(at, f"a comma or {closing_bracket}")
        return at
