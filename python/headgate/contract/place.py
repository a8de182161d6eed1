"""Where a response's payload is stored, and for whom: what a server knows and its tools do not."""

import contextlib
import contextvars
import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.payload import Redaction
    from headgate.store import Store

__all__ = ["Place", "inside", "note", "place_for"]


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A store, and whose what is put there will be."""

    store: "Store | None" = None
    """`None` is the user's own, which is opened when something is stored."""
    principal: str | None = None
    handle_length: int | None = None
    fetch_with: str | None = None
    """The tool that redeems references, where a server has one."""
    is_ascii: bool = False
    """Whether what is answered there goes out with all that is not ASCII escaped."""
    made: list[str] = dataclasses.field(default_factory=list)
    """The responses that were made here: what keeps to the contract is not wrapped in it again."""

    def open(self) -> "Store":
        """The store; what is wrong with it, it says now."""
        return _default() if self.store is None else self.store

    @property
    def redactions(self) -> "Sequence[Redaction]":
        """What must not be shown of anything that would be stored here."""
        return () if self.store is None else self.store.options.redactions


_current: contextvars.ContextVar[Place | None] = contextvars.ContextVar("headgate_place", default=None)


@contextlib.contextmanager
def inside(place: Place) -> Iterator[Place]:
    """Within it, whatever is stored for a response is stored there."""
    token = _current.set(place)
    try:
        yield place
    finally:
        _current.reset(token)


def place_for(store: "Store | None") -> Place:
    """The store that is given, else that of the server whose tool is being called, else the user's own."""
    current = _current.get()
    if current is None:
        return Place(store)
    if store is None or store is current.store:
        return current
    return Place(store, current.principal, current.handle_length, is_ascii=current.is_ascii)


def note(response: str) -> None:
    """Tells the server whose tool is being called that this is a response."""
    current = _current.get()
    if current is not None:
        current.made.append(response)


def _default() -> "Store":
    from headgate.store import root_of

    return _opened(root_of(None))


@functools.cache
def _opened(root: "Path") -> "Store":
    from headgate.store import open_store

    return open_store(root)
