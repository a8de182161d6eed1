"""The interface of a storage backend: objects by handle, accounts of their bytes, a log and counts."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from typing_extensions import Buffer

from forebay.errors import StoreFull
from forebay.store.backends.count_rows import CountKey
from forebay.store.entries import Entry

__all__ = [
    "TOTAL_ACCOUNT",
    "AccountFull",
    "Backend",
    "Blob",
    "CountTable",
    "LineLog",
    "Listed",
    "ObjectTooLarge",
    "Recount",
    "Upload",
    "has_room",
    "name_account",
]

TOTAL_ACCOUNT = "total"
"""Name of the account of all stored bytes; the other accounts belong to principals."""


def name_account(principal: str) -> str:
    """Return the name of a principal's account: a hash, because the principal may not be a valid file name."""
    # Imported here, because it loads OpenSSL.
    import hashlib

    return "p-" + hashlib.blake2b(principal.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class AccountFull(Exception):
    """An account has no room for an object, or the objects were not counted yet."""

    def __init__(self, usage: dict[str, int]) -> None:
        super().__init__(usage)
        self.usage = usage
        """The stored bytes of the accounts; see `Backend.usage`."""


class ObjectTooLarge(StoreFull):
    """An object does not fit even into an empty store."""


def has_room(usage: Mapping[str, int], size: int, limits: Mapping[str, int | None]) -> bool:
    """Return whether all accounts have room for `size` more bytes; none has before the first recount."""
    # Not `all`, which is slower: every put calls this.
    for name, limit in limits.items():
        if limit is not None and usage.get(name, 0) + size > limit:
            return False
    return TOTAL_ACCOUNT in usage


class Listed(NamedTuple):
    """An object in a listing."""

    handle: str
    entry: Entry | None = None
    """The object's metadata, if the backend knows it without opening the object."""


class Blob(Protocol):
    """An object that is open for reading.

    A remote backend that opens an object of a known version makes no request before the first read. If the object was
    deleted or replaced since it was opened, a read raises `HandleNotFound`, unless the backend keeps deleted objects
    readable.
    """

    @property
    def size(self) -> int: ...
    @property
    def modified_at(self) -> float: ...
    @property
    def version(self) -> object:
        """A value that changes whenever the object does."""

    def read(self, start: int, length: int) -> bytes:
        """Read a range. The result is shorter than `length` only at the end of the object."""

    def read_ahead(self) -> None:
        """Announce that the whole object will be read in order: a remote backend then reads it in large pieces."""

    def check(self) -> None:
        """Raise `HandleNotFound` if the object is gone, unless a read has already shown that it exists."""

    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...


class Upload(Protocol):
    """An object being written, invisible until it is committed."""

    def write(self, parts: Sequence[Buffer]) -> None: ...
    def read(self, start: int, length: int) -> bytes:
        """Read a range of what was written."""

    def commit(self, extension: str, limits: Mapping[str, int | None], entry: Entry) -> None:
        """Make the object visible and add its size to the accounts in `limits`: both or neither.

        Raises `AccountFull` if an account would exceed its limit; the commit can be repeated then. `extension` is for
        people who look at files, and `entry` for backends that keep an index.
        """

    def abort(self) -> None:
        """Discard the object; does nothing after a commit."""


class Recount(Protocol):
    """A count of all objects that then corrects the accounts. Objects may change while they are counted."""

    def add(self, principal: str | None, size: int) -> None:
        """Count an object."""

    def apply(self) -> Iterator[None]:
        """Correct the accounts, a few at each step of the iteration."""


class LineLog(Protocol):
    """Lines of text that all processes of a store append to. The oldest lines are removed over time."""

    def append(self, line: bytes) -> None:
        """Append a line, which ends with a line break."""

    def read_backward(self) -> Iterator[bytes]:
        """Return the lines, newest first. A crash may have left incomplete ones."""

    def close(self) -> None: ...


class CountTable(Protocol):
    """Counts of tool calls by day, which all processes of a store add to."""

    def add(self, day: str, rows: Mapping[CountKey, Sequence[int]]) -> None:
        """Add to the counts of a day."""

    def read(self) -> Iterator[tuple[str, dict[CountKey, list[int]]]]:
        """Return the days and their counts, newest first."""


class Backend(Protocol):
    """Storage of objects by handle, and accounts of how many bytes are stored, in total and by principal.

    An object and its accounts change together. After a crash the accounts may be too high until the next recount, but
    they are never too low.

    Methods raise `StoreUnavailable` or `StoreFull`, and `KeyError` for an unknown handle.
    """

    @property
    def folder(self) -> Path | None:
        """The folder of the objects; `None` if they are not files."""

    @property
    def expires_by_handle(self) -> bool:
        """Whether objects are removed at the end of their handle's lifetime class, even if they expire later."""

    @property
    def log(self) -> LineLog: ...
    @property
    def call_counts(self) -> CountTable: ...
    def check(self) -> None:
        """Raise `StoreUnavailable` if the storage does not answer."""

    def create(self, handle: str) -> Upload: ...
    def open(self, handle: str, version: object = None) -> Blob:
        """Open an object. With a version that the caller knows, a remote backend makes no request."""

    def is_committed(self, handle: str, version: object) -> bool:
        """Return whether an open object will stay. If its writer was killed too early, a sweep removes it later."""

    def list(self) -> Iterator[Listed]:
        """Iterate over all objects, in bounded memory.

        Objects may be added and deleted meanwhile; every other object is listed once.
        """

    def delete(self, handle: str, size: int, accounts: Collection[str]) -> bool:
        """Delete an object, subtract its size from accounts, and return whether the object existed."""

    def usage(self, accounts: Collection[str] | None = None) -> dict[str, int]:
        """Return the stored bytes of these accounts, or of all.

        Accounts of 0 bytes may be missing. `TOTAL_ACCOUNT` is missing only before the first recount.
        """

    def begin_recount(self) -> Recount:
        """Begin to count all objects."""

    def remove_leftovers(self) -> int:
        """Remove the unfinished objects of crashed writers, and return their number."""

    def lock(self, *, wait: bool) -> AbstractContextManager[bool]:
        """Hold the store's lock and yield true. Without `wait`, yield false if another process holds the lock."""

    def close(self) -> None: ...
