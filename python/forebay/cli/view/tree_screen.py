"""A JSON value as a tree whose branches can be closed."""

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType

from forebay import _core
from forebay.arguments import is_text
from forebay.cli.view.cells import cut, decode_text, decode_value, make_safe
from forebay.cli.view.copies import Place
from forebay.cli.view.find import Finder, Pattern
from forebay.cli.view.jobs import Job
from forebay.cli.view.row_list import DIM, REVERSE
from forebay.cli.view.rows import Row
from forebay.cli.view.screen import PagerScreen, bind, highlight
from forebay.cli.view.tree import Node, decode_key, find_node, make_pointer

__all__ = ["TreeScreen"]

_INDENT = 2
_MAX_OPEN_NODES = 2000
"""A tree with more values is shown with its deeper branches closed."""

_KEY = Style(color="blue", bold=True)
_NUMBER = Style(color="cyan")
_TEXT = Style(color="green")


class _TreeRows:
    """The nodes of a tree that are not inside a closed branch. The number of a row is that of its node."""

    def __init__(self, nodes: list[Node], closed: set[int]) -> None:
        self.numbers: list[int] = []
        number = 0
        while number < len(nodes):
            self.numbers.append(number)
            number = nodes[number].last + 1 if number in closed else number + 1
        self.count = len(self.numbers)

    def read(self, first: int, count: int) -> list[Row]:
        return [Row(number, b"") for number in self.numbers[first : first + count]]


class _TreeFinder:
    """Searches the document, also inside of closed branches."""

    def __init__(self, data: bytes, nodes: list[Node]) -> None:
        self._data = data
        self._nodes = nodes

    def find(self, pattern: Pattern, row: int, job: Job, *, is_backward: bool = False) -> int | None:
        job.advance(0)
        nodes = self._nodes
        if not is_backward:
            start = nodes[row + 1].line_start if row + 1 < len(nodes) else len(self._data)
            matches = pattern.search(self._data, start).matches
            return find_node(nodes, matches[0].start) if matches else None
        end = nodes[row].line_start if row < len(nodes) else len(self._data)
        last, offset = None, 0
        while True:
            result = pattern.search(self._data, offset, 1000)
            for match in result.matches:
                if match.start >= end:
                    return last
                last = find_node(nodes, match.start)
            if result.next_offset is None:
                return last
            offset = result.next_offset

    def count(self, pattern: Pattern, job: Job) -> str:
        job.advance(0)
        found = _core.count_matches(
            self._data,
            pattern.text,
            regex=pattern.regex,
            ignore_case=pattern.ignore_case,
            mode="values" if pattern.values else "text",
            max_seconds=2.0,
        )
        return f"{found.matches:,} match{'' if found.matches == 1 else 'es'} in this value"


class TreeScreen(PagerScreen):
    """The members and elements of a value, each on a line."""

    unit = "line"

    BINDINGS: ClassVar[list[BindingType]] = [
        bind("e", "open_all"),
        bind("E", "close_all"),
    ]

    def __init__(self, data: bytes, nodes: list[Node], *, title: str, about: str, pointer: str | None) -> None:
        self._data = data
        self._tree = nodes
        self._pointer = pointer
        is_large = len(nodes) > _MAX_OPEN_NODES
        self._shut = {n for n, node in enumerate(nodes) if is_large and node.depth >= 1 and node.children}
        super().__init__(_TreeRows(nodes, self._shut), title, about)

    @property
    def can_search_values(self) -> bool:
        return True

    @property
    def _node(self) -> int:
        """The number of the node at the cursor."""
        rows = self.list.rows
        return rows.numbers[self.list.cursor] if isinstance(rows, _TreeRows) and rows.count else 0

    def draw_row(self, row: Row, position: int, width: int, is_cursor: bool) -> Sequence[Segment]:  # noqa: ARG002
        node = self._tree[row.number]
        pattern = self.viewer.pattern
        marker = " " if not node.children else "▸" if row.number in self._shut else "▾"
        indent = min(node.depth * _INDENT, width // 2)
        key = (
            "" if node.key is None else make_safe(str(node.key) if isinstance(node.key, int) else decode_key(node.key))
        )
        if isinstance(node.key, int):
            key = f"[{key}]"
        key = cut(key, max((width - indent) // 2, 8))
        label = f"{key}: " if key else ""
        raw = self._data[node.start : min(node.end, node.start + 4096)]
        text, style = self._describe(row.number, node, raw)
        text = cut(text, width - 3 - indent - cell_len(label))
        start = f" {' ' * indent}{marker} "
        if is_cursor:
            line = f"{start}{label}"
            used = cell_len(line) + cell_len(text)
            return [
                Segment(line, REVERSE),
                *highlight(text, REVERSE, pattern),
                Segment(" " * max(width - used, 0), REVERSE),
            ]
        return [
            Segment(start, DIM),
            *highlight(label, DIM if isinstance(node.key, int) else _KEY, pattern),
            *highlight(text, style, pattern),
        ]

    def _describe(self, number: int, node: Node, raw: bytes) -> tuple[str, Style]:
        if node.children is not None:
            is_object = raw.startswith(b"{")
            noun = "member" if is_object else "item"
            text = f"{node.children:,} {noun}{'' if node.children == 1 else 's'}"
            text = f"{{{text}}}" if is_object else f"[{text}]"
            if number in self._shut or node.children == 0:
                if node.children == 0:
                    return ("{}" if is_object else "[]"), DIM
                return f"{text}  {make_safe(decode_text(raw[:512]))}", DIM
            return text, DIM
        if raw.startswith(b'"'):
            # The quotes tell the text "1" from the number 1 where there are no colours.
            return f'"{make_safe(decode_value(self._data[node.start : node.end]))}"', _TEXT
        return make_safe(decode_text(raw)), DIM if raw in (b"null", b"true", b"false") else _NUMBER

    # Branches.

    def action_space(self) -> None:
        """Open or close a branch."""
        number = self._node
        if self._tree[number].children:
            self._shut ^= {number}
            self._show(number)

    def action_open_all(self) -> None:
        self._shut.clear()
        self._show(self._node)

    def action_close_all(self) -> None:
        number = self._node
        while self._tree[number].depth > 1:
            number = self._tree[number].parent
        self._shut = {n for n, node in enumerate(self._tree) if node.depth >= 1 and node.children}
        self._show(number)

    def action_sideways(self, step: int) -> None:
        number = self._node
        node = self._tree[number]
        if step > 0 and number in self._shut:
            self._shut.discard(number)
            self._show(number)
        elif step > 0:
            self.list.move_by(1)
        elif node.children and number not in self._shut:
            self._shut.add(number)
            self._show(number)
        elif node.parent >= 0:
            self._show(node.parent)

    def _show(self, number: int) -> None:
        """Draw the branches that are open, and put the cursor into a node."""
        parent = self._tree[number].parent
        while parent >= 0:
            self._shut.discard(parent)
            parent = self._tree[parent].parent
        rows = _TreeRows(self._tree, self._shut)
        self.list.set_rows(rows, rows.numbers.index(number))
        self.status.show("")

    def action_open(self) -> None:
        number = self._node
        node = self._tree[number]
        if node.children:
            self.action_space()
        elif self._data[node.start : node.start + 1] == b'"':
            pointer = self.get_place().pointer
            self.viewer.open_string(self, self._data[node.start : node.end], pointer)

    def choose(self, column: int) -> None:
        node = self._tree[self._node]
        if column < 4 + node.depth * _INDENT:
            self.action_space()

    # What the cursor is at.

    def get_place(self) -> Place:
        if self._pointer is None:
            return Place()
        pointer = self._pointer + make_pointer(self._tree, self._node)
        # A key with half of a surrogate pair cannot be named.
        return Place(pointer if is_text(pointer) else None)

    def get_status(self) -> tuple[str, str]:
        left, right = super().get_status()
        return left or "/", right

    def get_value(self) -> bytes | None:
        node = self._tree[self._node]
        return self._data[node.start : node.end]

    # Search.

    def make_finder(self) -> Finder:
        return _TreeFinder(self._data, self._tree)

    def get_finder_row(self) -> int:
        return self._node

    def get_finder_end(self) -> int:
        return len(self._tree)

    def show_found(self, row: int) -> None:
        self._show(row)
