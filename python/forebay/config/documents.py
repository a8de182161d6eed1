"""Documents in the formats of clients: JSON with comments, TOML and YAML. An edit keeps the rest as it is."""

import dataclasses
import json
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import PurePath

from forebay.config.jsonc import parse_jsonc
from forebay.config.nodes import Edit, Member, Node
from forebay.config.toml_nodes import parse_toml
from forebay.config.yaml_nodes import parse_yaml
from forebay.errors import InvalidArgument

__all__ = ["CannotEdit", "Document", "parse_document"]


class CannotEdit(Exception):
    """The reason why a part of a document is not changed."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Syntax:
    name: str
    parse: Callable[[str], Node]
    separator: str
    """The text between a key and its value."""
    has_quoted_keys: bool = False
    has_block_lists: bool = False


_JSON = _Syntax("JSON", parse_jsonc, ": ", has_quoted_keys=True)
_SYNTAXES = {
    ".toml": _Syntax("TOML", parse_toml, " = "),
    ".yaml": (yaml_syntax := _Syntax("YAML", parse_yaml, ": ", has_block_lists=True)),
    ".yml": yaml_syntax,
}
"""The syntax of a file by its extension. All other files are JSON."""

_ESCAPED_PATTERN = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
"""Characters that JSON allows in a string, but TOML, YAML or UTF-8 do not."""


def parse_document(text: str, path: str) -> "Document":
    """Parse the text of a file. Raises `InvalidArgument`."""
    syntax = _SYNTAXES.get(PurePath(path).suffix.lower(), _JSON)
    try:
        return Document(text, syntax.parse(text), syntax)
    except InvalidArgument as error:
        raise InvalidArgument(f"{path} cannot be read as {syntax.name}: {error}", error.index) from None


class Document:
    """A text, its values, and the edits that its format allows."""

    def __init__(self, text: str, root: Node, syntax: _Syntax) -> None:
        self.text = text
        self.root = root
        self._syntax = syntax
        newline = re.search(r"\r?\n", text)
        self._newline = "\n" if newline is None else newline[0]

    def get_raw(self, node: Node) -> str:
        """Return the text of a value."""
        return self.text[node.start : node.end]

    def quote(self, word: str) -> str:
        """Return a string as a value. Its form is valid in all formats."""
        text = json.dumps(word, ensure_ascii=False)
        return _ESCAPED_PATTERN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)

    def replace_value(self, node: Node, raw: str) -> Edit:
        return node.start, node.end, raw

    def replace_string(self, node: Node, new: str) -> Edit:
        """Replace the characters of a string, and keep its quotes."""
        start, end = self._strip_quotes(node.start, node.end)
        return start, end, new

    def rename_key(self, member: Member, name: str) -> Edit:
        """Rename a member, and keep the quotes of its key."""
        start, end = self._strip_quotes(*self._find_key(member))
        return start, end, name

    def prefix_key(self, member: Member, prefix: str) -> Edit:
        """Put a prefix before the name of a member."""
        start, _ = self._strip_quotes(*self._find_key(member))
        return start, start, prefix

    def insert_list(self, container: Node, after: Member, name: str, raw_items: Sequence[str]) -> Edit:
        """Insert a member whose value is a list."""
        key = self.quote(name) if self._syntax.has_quoted_keys else name
        if not container.is_block:
            separator = self._find_separator(after)
            indent = self._find_indent(after.start)
            return after.end, after.end, f",{indent}{key}{separator}[{', '.join(raw_items)}]"
        end = self._find_line_end(after.end)
        indent = self._newline + self.text[self._find_line_start(after.start) : self._find_key(after)[0]]
        if self._syntax.has_block_lists:
            items = "".join(f"{indent}- {item}" for item in raw_items)
            return end, end, f"{indent}{key}:{items}"
        return end, end, f"{indent}{key}{self._find_separator(after)}[{', '.join(raw_items)}]"

    def remove_member(self, container: Node, member: Member) -> Edit:
        """Remove a member: its lines in a block, else also the comma between it and its neighbour."""
        if container.is_block:
            line_start = self._find_line_start(self._find_key(member)[0])
            is_alone = not self.text[member.end : self._find_line_end(member.end)].strip()
            return len(self.text[:line_start].rstrip("\r\n")) if is_alone else line_start, member.end, ""
        members = sorted(container.value.values(), key=lambda other: other.start)
        index = members.index(member)
        return (members[index - 1].end, member.end, "") if index else (member.start, members[1].start, "")

    def insert_items(self, items: Sequence[Node], index: int, raw_items: Sequence[str]) -> Edit:
        """Insert items before an item of a list."""
        separator = self._find_item_separator(items[index])
        return items[index].start, items[index].start, "".join(raw + separator for raw in raw_items)

    def append_items(self, items: Sequence[Node], raw_items: Sequence[str]) -> Edit:
        """Add items after the last item of a list."""
        separator = self._find_item_separator(items[-1])
        return items[-1].end, items[-1].end, "".join(separator + raw for raw in raw_items)

    def fill_list(self, node: Node, raw_items: Sequence[str]) -> Edit:
        """Insert items into a list that has none."""
        return node.start + 1, node.start + 1, ", ".join(raw_items)

    def empty_list(self, member: Member) -> Edit:
        """Remove all items of a list, and the comma that may follow the last one."""
        node = member.node
        if node.is_block:
            return member.key_end, node.end, ": []"
        comma = re.compile(r"\s*,").match(self.text, node.value[-1].end)
        return node.value[0].start, comma.end() if comma else node.value[-1].end, ""

    def remove_items(self, member: Member, indexes: Collection[int]) -> list[Edit]:
        """Remove items of a list, each with the separator between it and its neighbour."""
        items = member.node.value
        if not indexes:
            return []
        if len(indexes) == len(items):
            return [self.empty_list(member)]
        edits = []
        for index in sorted(indexes):
            if index == 0:
                first_kept = next(kept for kept in range(len(items)) if kept not in indexes)
                edits.append((items[0].start, items[first_kept].start, ""))
            elif any(kept not in indexes for kept in range(index)):
                edits.append((items[index - 1].end, items[index].end, ""))
        return edits

    def _find_item_separator(self, item: Node) -> str:
        line_start = self._find_line_start(item.start)
        before = self.text[line_start : item.start]
        if self._syntax.has_block_lists and before.strip() == "-":
            return self._newline + before
        return "," + self._find_indent(item.start)

    def _find_separator(self, member: Member) -> str:
        """Return the text between a member's key and value, unless that text contains a comment."""
        between = self.text[member.key_end : member.node.start]
        return between if between.strip() in (":", "=") else self._syntax.separator

    def _find_indent(self, position: int) -> str:
        """Return the line break and indentation before a position, or a space if there is no line break before it."""
        space = self.text[len(self.text[:position].rstrip(" \t\r\n")) : position]
        return space if "\n" in space else " "

    def _find_line_start(self, position: int) -> int:
        return self.text.rfind("\n", 0, position) + 1

    def _find_line_end(self, position: int) -> int:
        end = self.text.find("\n", position)
        end = len(self.text) if end < 0 else end
        return end - 1 if self.text[:end].endswith("\r") else end

    def _find_key(self, member: Member) -> tuple[int, int]:
        if member.start < 0:
            raise CannotEdit("is written in parts; write it as one table")
        return member.start, member.key_end

    def _strip_quotes(self, start: int, end: int) -> tuple[int, int]:
        return (start + 1, end - 1) if self.text[start] in "\"'" else (start, end)
