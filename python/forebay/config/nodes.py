"""Values of a document with their positions in its text, so that an edit changes nothing else."""

import dataclasses
from collections.abc import Iterable
from typing import Any

__all__ = ["Edit", "Member", "Node", "apply_edits"]

Edit = tuple[int, int, str]
"""The start and end of a range of the text, and its replacement."""


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A value and its position, `text[start:end]`.

    `value` is a dict of members for an object, a list of nodes for an array, else a Python scalar.
    """

    start: int
    end: int
    value: Any
    is_block: bool = False
    """Whether each member or item is on lines of its own, without brackets: a block of YAML, or a table of TOML."""

    def get_member(self, name: str) -> "Member | None":
        """Return a member of an object, or `None`."""
        return self.value.get(name) if isinstance(self.value, dict) else None

    def find_member(self, *keys: str) -> "Member | None":
        """Return the member at a path of keys, or `None`."""
        *outer_keys, name = keys
        node = self.find_node(*outer_keys)
        return None if node is None else node.get_member(name)

    def find_node(self, *keys: str) -> "Node | None":
        """Return the value at a path of keys, or `None`."""
        node = self
        for key in keys:
            member = node.get_member(key)
            if member is None:
                return None
            node = member.node
        return node

    def get_members(self, *keys: str) -> "dict[str, Member]":
        """Return the members of the object at a path of keys; nothing if there is no object."""
        node = self.find_node(*keys)
        return node.value if node is not None and isinstance(node.value, dict) else {}

    def to_python(self) -> Any:
        """Return the value without positions."""
        if isinstance(self.value, dict):
            return {name: member.node.to_python() for name, member in self.value.items()}
        if isinstance(self.value, list):
            return [node.to_python() for node in self.value]
        return self.value


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """A member of an object. Its key is at `text[start:key_end]`."""

    start: int
    key_end: int
    node: Node

    @property
    def end(self) -> int:
        return self.node.end


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Apply edits that do not overlap. Edits at the same position keep their order."""
    pieces, copied_until = [], 0
    for start, end, replacement in sorted(edits, key=lambda edit: edit[:2]):
        pieces += [text[copied_until:start], replacement]
        copied_until = end
    return "".join([*pieces, text[copied_until:]])
