"""Handles, and what is said of a stored payload in place of it."""

import dataclasses
import os
import re

import orjson

__all__ = ["LONG_HANDLE_LENGTH", "SHORT_HANDLE_LENGTH", "Descriptor", "extract_handle", "is_handle", "new_handle"]

SHORT_HANDLE_LENGTH = 12
"""Characters of a handle between programs of one user: what scripts over stdio expect."""

LONG_HANDLE_LENGTH = 26
"""Characters of a handle that nobody may guess: 130 bits."""

# Five bits of every random byte: each character is as likely as any other.
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" * 8

_HANDLE_PATTERN = re.compile(rf"oh_(?:[A-Z2-7]{{{SHORT_HANDLE_LENGTH}}}|[A-Z2-7]{{{LONG_HANDLE_LENGTH}}})")


def new_handle(length: int = SHORT_HANDLE_LENGTH) -> str:
    """A handle from the operating system's randomness."""
    return "oh_" + os.urandom(length).translate(_ALPHABET).decode()


def is_handle(text: object) -> bool:
    """Whether `text` is exactly a handle: nothing else comes near a path."""
    return isinstance(text, str) and _HANDLE_PATTERN.fullmatch(text) is not None


@dataclasses.dataclass(frozen=True, slots=True)
class Descriptor:
    """What a model gets instead of a payload: enough to decide whether and what to read of it."""

    output_handle: str
    mime_type: str
    size_bytes: int
    item_count: int | None
    """How many items it has; `None` where it has no items."""
    preview: str | None
    """The first bytes of it, whole; `None` for binary."""
    expires_at: str
    fetch_with: str = "output_fetch"
    items_path: str | None = None
    """Where the items are, as a JSON Pointer; `""` where the payload itself is the list."""
    outline: str | None = None
    """Its shape in one line; `None` where it is not JSON, or is so small that the preview is all of it."""

    def to_dict(self) -> dict[str, object]:
        """The keys in the order they are sent in."""
        return {name: getattr(self, name) for name in self.__slots__}

    def to_json(self) -> bytes:
        """The descriptor as it is sent."""
        return orjson.dumps(self.to_dict())


def extract_handle(text: object) -> object:
    """The handle that a reference carries, `ax://domain/id~oh_…` or a resource's address; anything else as it is."""
    if isinstance(text, str) and "://" in text:
        return re.split(r"[~/]", text.partition("?")[0])[-1]
    return text
