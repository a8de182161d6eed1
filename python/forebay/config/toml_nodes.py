"""Parser of TOML that keeps the positions of values. `tomllib` checks the document and the result."""

import re
import tomllib
from typing import Any, NamedTuple

from forebay.config.nodes import Member, Node
from forebay.errors import InvalidArgument

__all__ = ["parse_toml"]

_SPACE_PATTERN = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_BLANK_PATTERN = re.compile(r"[ \t]*")
_KEY_PATTERN = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
_SCALAR_PATTERN = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}(?!")'
    r"|'''.*?'{3,5}(?!')"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|\d{4}-\d\d-\d\d \d\d:[^\s,\]}#]*"
    r"|[^\s,\]}#]+",
    re.DOTALL,
)

_CANNOT_EDIT = "it is written in a way that forebay cannot edit; edit it by hand"


def parse_toml(text: str) -> Node:
    """Parse a document. Raises `InvalidArgument` with the line of an error."""
    start = 1 if text.startswith("\ufeff") else 0
    try:
        expected = tomllib.loads(text[start:])
        root = _Parser(text).parse_document(start)
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(str(error)) from None
    except RecursionError:
        raise InvalidArgument("it is nested too deep") from None
    # The representations are compared, because `nan` is not equal to itself.
    if repr(root.to_python()) != repr(expected):
        raise InvalidArgument(_CANNOT_EDIT)
    return root


class _Key(NamedTuple):
    """One part of a dotted key."""

    name: str
    start: int
    end: int


class _Parser:
    """Parser of a text that `tomllib` has accepted, so that it need not check the text again."""

    def __init__(self, text: str) -> None:
        self._text = text

    def parse_document(self, position: int) -> Node:
        root = table = Node(position, len(self._text), {}, is_block=True)
        at = self._skip(_SPACE_PATTERN, position)
        while at < len(self._text):
            if self._text.startswith("[", at):
                brackets = 2 if self._text.startswith("[[", at) else 1
                keys, at = self._parse_key(at + brackets)
                table = _open_table(root, keys, is_array=brackets == 2)
                at += brackets
            else:
                at = self._parse_pair(table, at)
            at = self._skip(_SPACE_PATTERN, at)
        return root

    def _parse_pair(self, table: Node, position: int) -> int:
        """Add a key and its value to a table, and return the position after them."""
        (*outer_keys, key), at = self._parse_key(position)
        for outer in outer_keys:
            table = _get_table(table, outer.name)
        node = self._parse_value(self._skip(_BLANK_PATTERN, at + 1))
        table.value[key.name] = Member(key.start, key.end, node)
        return node.end

    def _parse_key(self, position: int) -> tuple[list[_Key], int]:
        """Return the parts of a dotted key, and the position after the key and its spaces."""
        keys = []
        while True:
            start = self._skip(_BLANK_PATTERN, position)
            end = self._skip(_KEY_PATTERN, start)
            word = self._text[start:end]
            keys.append(_Key(_evaluate(word) if word[0] in "\"'" else word, start, end))
            at = self._skip(_BLANK_PATTERN, end)
            if not self._text.startswith(".", at):
                return keys, at
            position = at + 1

    def _parse_value(self, position: int) -> Node:
        if self._text.startswith("[", position):
            return self._parse_array(position)
        if self._text.startswith("{", position):
            return self._parse_inline_table(position)
        end = self._skip(_SCALAR_PATTERN, position)
        return Node(position, end, _evaluate(self._text[position:end]))

    def _parse_array(self, start: int) -> Node:
        nodes: list[Node] = []
        at = self._skip(_SPACE_PATTERN, start + 1)
        while not self._text.startswith("]", at):
            nodes.append(self._parse_value(at))
            at = self._skip_comma(nodes[-1].end)
        return Node(start, at + 1, nodes)

    def _parse_inline_table(self, start: int) -> Node:
        members: dict[str, Member] = {}
        at = self._skip(_SPACE_PATTERN, start + 1)
        while not self._text.startswith("}", at):
            at = self._skip_comma(self._parse_pair(Node(start, start, members), at))
        return Node(start, at + 1, members)

    def _skip_comma(self, position: int) -> int:
        at = self._skip(_SPACE_PATTERN, position)
        return self._skip(_SPACE_PATTERN, at + 1) if self._text.startswith(",", at) else at

    def _skip(self, pattern: re.Pattern[str], position: int) -> int:
        found = pattern.match(self._text, position)
        if found is None:
            raise InvalidArgument(_CANNOT_EDIT)
        return found.end()


def _open_table(root: Node, keys: list[_Key], *, is_array: bool) -> Node:
    """Return the table of a header such as `[a.b]` or `[[a.b]]`."""
    table = root
    for outer in keys[:-1]:
        table = _get_table(table, outer.name)
    key = keys[-1]
    if is_array:
        member = table.value.setdefault(key.name, Member(key.start, key.end, Node(key.start, key.end, [], True)))
        member.node.value.append(Node(key.start, key.end, {}, is_block=True))
        return _get_table(table, key.name)
    node = _get_table(table, key.name)
    # The table may have been made by the header of a table inside of it.
    table.value[key.name] = Member(key.start, key.end, node)
    return node


def _get_table(table: Node, name: str) -> Node:
    """Return a table inside of a table: the last one of an array of tables, or a new one if there is none.

    A new one has no key of its own: its name is a part of the dotted keys inside of it.
    """
    node: Node = table.value.setdefault(name, Member(-1, -1, Node(-1, -1, {}, is_block=True))).node
    if isinstance(node.value, list):
        node = node.value[-1]
    return node


def _evaluate(text: str) -> Any:
    return tomllib.loads(f"x = {text}")["x"]
