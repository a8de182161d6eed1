"""What is viewed: the bytes of a file, or the payload of a handle."""

import contextlib
import mmap
import os
import stat
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from typing_extensions import Buffer

from forebay.cli.errors import InputFailed
from forebay.cli.view.jobs import Job
from forebay.cli.view.parts import STEP_BYTES, BufferView, index_json, survey
from forebay.store.payload import get_row_format, guess_row_mime_type
from forebay.store.reader import View
from forebay.store.threads import start_in_thread

if TYPE_CHECKING:
    from concurrent.futures import Future

    from forebay.store import Store
    from forebay.store.handles import Principal

__all__ = ["FileSource", "Source", "Stored", "StoredSource"]

_FIRST_BYTES = 1 << 20
"""Bytes of a large file that are shown while all of it is indexed."""


class Stored(NamedTuple):
    """A payload in a store."""

    store: "Store"
    handle: str
    principal: "Principal"


class Source(Protocol):
    """A payload to view. Methods that take a job may run for long, and run in threads."""

    @property
    def name(self) -> str:
        """The file or handle, as the command line takes it."""

    @property
    def view(self) -> View:
        """The payload, or its beginning until it is loaded."""

    @property
    def options(self) -> Sequence[str]:
        """Options that commands need to find the payload."""

    @property
    def handle(self) -> str | None:
        """The handle that other commands and tools can read, if there is one."""

    def load(self, job: Job) -> None:
        """Find out what the payload is, and index it."""

    def map(self, job: Job) -> Buffer:
        """Return all bytes of the payload in one buffer that the system can take memory from."""

    def open_stored(self, job: Job) -> Stored:
        """Return the payload in a store, for queries and exports."""

    def close(self) -> None: ...


class FileSource:
    """A file, which is mapped into memory."""

    handle = None

    def __init__(self, path: str, mime_type: str | None = None) -> None:
        self.name = path
        self.options: list[str] = [] if mime_type is None else ["--mime-type", mime_type]
        self._mime_type = mime_type or guess_row_mime_type(path)
        self._stored: StoredSource | None = None
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - a path is what the user typed
                status = os.fstat(file.fileno())
                # An empty file cannot be mapped. Pipes and the files of /proc have no size either.
                if not status.st_size and not (stat.S_ISREG(status.st_mode) and file.read(1) == b""):
                    raise InputFailed(f"{path} cannot be mapped; pipe it into `forebay view -`")
                self._data: Buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if status.st_size else b""
        except OSError as error:
            raise InputFailed(f"{path} cannot be read: {error.strerror}") from None
        self._early: tuple[Job, Future[None]] | None = None
        self.view: View = self._read_beginning()

    def _read_beginning(self) -> View:
        """Return a view of the first lines."""
        head = bytes(memoryview(self._data)[:_FIRST_BYTES])
        whole_lines = head[: head.rfind(b"\n") + 1] or head
        return survey(whole_lines, Job("read"), is_json=False)

    def start_loading(self) -> None:
        """Begin to load in a thread, while the caller does something else."""
        self._early = (job := Job("index")), start_in_thread(lambda: self._load(job), daemon=True)

    def load(self, job: Job) -> None:
        if self._early is None:
            self._load(job)
            return
        early, self._early = self._early, None
        job.follow(*early)

    def _load(self, job: Job) -> None:
        data = memoryview(self._data)
        job.start("index", data.nbytes)
        rows = get_row_format(self._mime_type)
        view = None if rows else index_json(data, job)
        if view is None:
            view = survey(data, job, is_json=False if rows else None, rows=rows)
        if view.nature == "binary":
            # The store decodes gzip and other charsets than UTF-8.
            stored = self._store(job)
            self.view = view if stored.view.decoded_from is None else stored.view
        else:
            self.view = view

    def map(self, job: Job) -> Buffer:
        # Offsets of the view count no byte order mark.
        return self.view.data if isinstance(self.view, BufferView) else self._store(job).map(job)

    def open_stored(self, job: Job) -> Stored:
        return self._store(job).open_stored(job)

    def _store(self, job: Job) -> "StoredSource":
        if self._stored is None:
            data = memoryview(self._data)
            job.start("store", data.nbytes)
            chunks = (data[start : start + STEP_BYTES] for start in range(0, data.nbytes, STEP_BYTES))
            self._stored = StoredSource.put(chunks, self._mime_type, job.advance)
        return self._stored

    def close(self) -> None:
        if self._stored is not None:
            self._stored.close()


class StoredSource:
    """The payload of a handle, in the user's store or in a temporary one."""

    def __init__(
        self,
        stored: Stored,
        *,
        name: str | None = None,
        options: Sequence[str] = (),
        resources: contextlib.ExitStack | None = None,
    ) -> None:
        self._stored = stored
        self._resources = resources or contextlib.ExitStack()
        self.name = name or stored.handle
        self.handle = stored.handle if name is None else None
        self.options = list(options)
        self.view = self._resources.enter_context(stored.store.open_view(stored.handle, principal=stored.principal))
        self._mapped: Buffer | None = None

    @classmethod
    def put(cls, payload: Any, mime_type: str | None, progress: Callable[[int], None] | None) -> Self:
        """Store a payload in a store that is removed when the source is closed."""
        import sys

        from forebay.store import open_store

        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="forebay-", ignore_cleanup_errors=True))
            store = stack.enter_context(
                open_store(Path(folder), sweep_interval=0, warn_bytes=sys.maxsize, quota_bytes=None)
            )
            handle = store.put(payload, mime_type=mime_type, progress=progress).output_handle
            return cls(Stored(store, handle, None), name="-", resources=stack.pop_all())

    def load(self, job: Job) -> None:
        """Do nothing: the store has the index."""

    def map(self, job: Job) -> Buffer:
        if self._mapped is None:
            job.start("decompress", self.view.size)
            with tempfile.TemporaryFile(prefix="forebay-") as file:
                for start in range(0, self.view.size, STEP_BYTES):
                    job.advance(start)
                    file.write(self.view.read(start, min(start + STEP_BYTES, self.view.size)))
                file.flush()
                self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self.view.size else b""
        return self._mapped

    def open_stored(self, job: Job) -> Stored:  # noqa: ARG002 - of the protocol
        return self._stored

    def close(self) -> None:
        self._resources.close()
