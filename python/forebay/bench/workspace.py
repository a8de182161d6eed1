"""What the benchmarks of a run share: the payload, the peers, a folder, a store with the payload, and what to close."""

import contextlib
import functools
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from forebay.bench.contest import MEMCPY, Contender
from forebay.bench.memcpy import Memcpy
from forebay.bench.payloads import Payload
from forebay.bench.peers import Peer
from forebay.bench.readers import Reader, list_readers
from forebay.store import Store, open_store

__all__ = ["NotApplicable", "Workspace", "get_available_bytes"]


class NotApplicable(Exception):
    """A group of benchmarks does not apply to the payload; the message says why."""


class Workspace:
    """A context manager for everything that the benchmarks of a run need. Whatever it makes is removed at the end."""

    def __init__(self, payload: Payload, peers: Mapping[str, Peer]) -> None:
        self.payload = payload
        self.peers = peers
        self.stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stack.close()

    def has(self, peer: str) -> bool:
        """Return whether a peer is installed."""
        return self.peers[peer].version is not None

    @functools.cached_property
    def folder(self) -> Path:
        """A temporary folder."""
        return Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="forebay-bench-")))

    @functools.cached_property
    def path(self) -> Path:
        """A file with the payload, for peers that read files."""
        if self.payload.path is not None:
            return self.payload.path.absolute()
        path = self.folder / f"payload.{self.payload.extension}"
        path.write_bytes(self.payload.data)
        return path

    @functools.cached_property
    def store(self) -> Store:
        """A store in the folder, without quotas."""
        return self.stack.enter_context(self.open_store())

    def open_store(self) -> Store:
        """Open the store once more. A store that was just opened has nothing in its caches."""
        options: dict[str, Any] = {"quota_bytes": None, "principal_quota_bytes": None, "sweep_interval": 0}
        return open_store(self.folder / "store", warn_bytes=sys.maxsize, **options)

    def put(self) -> str:
        """Store the payload, and return its handle."""
        return self.store.put(self.payload.data, mime_type=self.payload.mime_type).output_handle

    @functools.cached_property
    def memcpy(self) -> Contender:
        """The baseline of all work that reads the whole payload."""
        copy = Memcpy(self.payload.data)
        return Contender(MEMCPY, copy, lambda _: copy.is_equal(), is_baseline=True)

    @functools.cached_property
    def readers(self) -> list[Reader]:
        """Readers of items that are installed and can read the payload."""
        return list_readers(self.payload, self.peers, self.path)


def get_available_bytes() -> int:
    """Return an estimate of the memory that a peer may take."""
    # Windows has no names for it.
    names: Mapping[str, int] = getattr(os, "sysconf_names", {})
    pages = next((name for name in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES") if name in names), None)
    if sys.platform == "win32" or pages is None:
        return 4 << 30
    available = os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")
    # Where only the size of the memory is known, other programs have some of it.
    return available if pages == "SC_AVPHYS_PAGES" else available // 2
