"""The interface of a storage backend."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from typing_extensions import Buffer

__all__ = ["TOTAL_COUNTER", "Backend", "Blob", "Count", "Counters", "Upload"]

TOTAL_COUNTER = "total"
"""Name of the counter of all stored bytes; the other counters belong to principals."""


class Count(NamedTuple):
    """The value of a counter."""

    used_bytes: int
    position: int
    """Bytes that were ever added to or removed from the whole store, as of the last such change of this counter."""


class Blob(Protocol):
    """An object that is open for reading."""

    @property
    def size(self) -> int: ...
    @property
    def modified_at(self) -> float: ...
    @property
    def version(self) -> object:
        """A value that changes whenever the object does."""

    def read(self, start: int, length: int) -> bytes:
        """Read a range. The result is shorter than `length` only at the end of the object."""

    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...


class Upload(Protocol):
    """An object being written, invisible until it is committed."""

    def write(self, parts: Sequence[Buffer]) -> None: ...
    def read(self, start: int, length: int) -> bytes:
        """Read a range of what was written."""

    def commit(self, extension: str) -> None:
        """Make the object visible atomically. `extension` is for people who look at the files."""

    def abort(self) -> None:
        """Discard the object; does nothing after a commit."""


class Counters(Protocol):
    """Counts shared by all users of a store."""

    def get(self, name: str) -> Count | None:
        """Return a counter, or `None` if it is not set."""

    def set(self, name: str, count: Count) -> None: ...
    def names(self) -> Iterator[str]:
        """Return the names of the counters that are set."""


class Backend(Protocol):
    """Storage of objects by handle.

    Methods raise `StoreUnavailable` or `StoreFull`, and `KeyError` for an unknown handle.
    """

    @property
    def folder(self) -> Path | None:
        """The folder of the objects; `None` if they are not files."""

    def create(self, handle: str) -> Upload: ...
    def open(self, handle: str) -> Blob: ...
    def list(self) -> Iterator[str]:
        """Iterate over the handles of all objects, in bounded memory.

        Objects may be added and deleted meanwhile; every other object is listed once.
        """

    def delete(self, handle: str) -> bool:
        """Delete an object and return whether it existed."""

    def remove_leftovers(self) -> int:
        """Remove the unfinished objects of crashed writers, and return their number."""

    def lock(self, *, wait: bool) -> AbstractContextManager[bool]:
        """Hold the store's lock and yield true. Without `wait`, yield false if another process holds the lock."""

    def counters(self) -> AbstractContextManager[Counters]:
        """Hold the lock of the counters, so that objects and counters change together."""

    def close(self) -> None: ...
