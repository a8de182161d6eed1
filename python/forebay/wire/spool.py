"""A file for a message that is too large for memory."""

import contextlib
import os
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from typing_extensions import Buffer

from forebay.errors import ForebayError
from forebay.store.os_errors import structured
from forebay.store.payload import PIECE

if TYPE_CHECKING:
    from forebay.store import Store

__all__ = ["Spool", "spool_beside"]


class Spool:
    """Takes pieces, is read by spans, and is gone once it is closed.

    Raises `StoreFull` or `StoreUnavailable` where the disk does not do its part.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = str(folder)
        """Where it is, and where there is room for another one."""
        with structured:
            self._file, self.path, name = _opened(self.folder)
        self.size = 0
        # Messages have no place where they end: one that nobody has any more is closed.
        self._gone = weakref.finalize(self, _delete, self._file, name)

    def __len__(self) -> int:
        return self.size

    def fileno(self) -> int:
        return self._file

    def write(self, piece: Buffer) -> None:
        """Appends a piece, all of it."""
        view = memoryview(piece).cast("B")
        with structured:
            while view:
                written = os.write(self._file, view)
                self.size += written
                view = view[written:]

    def pieces(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """What is between two places, in pieces."""
        end = self.size if end is None else end
        with structured, Path(self.path).open("rb", buffering=0) as file:
            file.seek(start)
            while start < end and (piece := file.read(min(PIECE, end - start))):
                start += len(piece)
                yield piece

    def close(self) -> None:
        """Deletes the file; whoever reads it now still can, but nobody later."""
        with structured:
            self._gone()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _opened(folder: str) -> tuple[int, str, str | None]:
    """A file, what it is opened by again, and its name if it has one.

    Without a name nothing is left of it whatever happens to this process.
    """
    if hasattr(os, "O_TMPFILE"):
        with contextlib.suppress(OSError):
            file = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
            return file, f"/proc/self/fd/{file}", None
    file, name = tempfile.mkstemp(prefix="message-", suffix=".spool", dir=folder)
    return file, name, name


def spool_beside(store: "Store") -> Spool:
    """Where there is room for what is in it; but a store that is gone is no reason to lose what is not stored."""
    with contextlib.suppress(ForebayError):
        return Spool(store.folder or tempfile.gettempdir())
    return Spool(tempfile.gettempdir())


def _delete(file: int, name: str | None) -> None:
    os.close(file)
    if name is not None:
        Path(name).unlink(missing_ok=True)
