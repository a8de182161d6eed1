"""What a place to keep objects must be able to do. All else stands above it, once."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from typing_extensions import Buffer

__all__ = ["Backend", "Blob", "Counters", "ObjectInfo", "Upload"]


class ObjectInfo(NamedTuple):
    """An object, as a listing sees it."""

    handle: str
    size: int
    modified_at: float


class Blob(Protocol):
    """An object, open for reading."""

    @property
    def size(self) -> int: ...
    @property
    def version(self) -> object:
        """Changes if the object does: what was read of it before holds as long as this is equal."""

    def read(self, start: int, length: int) -> bytes:
        """These bytes; fewer only at the end."""

    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...


class Upload(Protocol):
    """An object in the making, that nobody sees before it is committed."""

    def write(self, parts: Sequence[Buffer]) -> None: ...
    def commit(self, extension: str) -> None:
        """Shows it to everyone, whole and at once. `extension` is for people who look at files."""

    def abort(self) -> None:
        """Forgets it; harmless after a commit."""


class Counters(Protocol):
    """Numbers that all users of a store share."""

    def get(self, name: str) -> int | None:
        """`None` if it was never set, or was forgotten."""

    def set(self, name: str, value: int) -> None: ...
    def names(self) -> Iterator[str]:
        """Of all that are set."""


class Backend(Protocol):
    """Objects by handle. Failures are `StoreUnavailable`, `StoreFull` or, for an unknown handle, `KeyError`."""

    @property
    def folder(self) -> Path | None:
        """Where objects are files, if they are."""

    def create(self, handle: str) -> Upload: ...
    def open(self, handle: str) -> Blob: ...
    def list(self) -> Iterator[ObjectInfo]: ...
    def delete(self, handle: str) -> bool:
        """Whether there was one."""

    def remove_leftovers(self) -> int:
        """Removes what crashed writers left, and says how many files that were."""

    def lock(self, *, wait: bool) -> AbstractContextManager[bool]:
        """Whether nobody else is within it, in any process; with `wait` nobody is, in the end."""

    def counters(self) -> AbstractContextManager[Counters]:
        """Within it nobody else counts: what is stored and what is counted change together."""

    def close(self) -> None: ...
