"""Uploads to a bucket: one conditional request, or for large objects a multipart upload in bounded memory."""

import bisect
import concurrent.futures
import contextlib
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence

from typing_extensions import Buffer

from forebay.errors import StoreFull, StoreUnavailable
from forebay.store.backends.object_accounts import ObjectAccounts
from forebay.store.backends.object_client import COMPARED_BYTES, CREATE, ObjectClient, Version
from forebay.store.backends.object_errors import Conflict, OutcomeUnknown
from forebay.store.backends.object_index import ObjectIndex
from forebay.store.entries import Entry
from forebay.store.threads import start_in_thread
from forebay.system import files

__all__ = ["ObjectUpload"]

_MAX_SINGLE_BYTES = 16 << 20
"""Maximum size of an object that is written by one request, from memory."""

_PART_BYTES = 8 << 20
_MAX_PARTS_IN_FLIGHT = 2
_ABORT_SECONDS = 6.0
"""How long an aborted upload waits for the removal of its parts. The bucket's lifecycle rule removes the others."""


class ObjectUpload:
    """An object being written: in memory, or in a temporary file if it is large."""

    def __init__(
        self, client: ObjectClient, accounts: ObjectAccounts, index: ObjectIndex, handle: str, key: str
    ) -> None:
        self._client = client
        self._accounts = accounts
        self._index = index
        self._handle = handle
        self._key = key
        self._size = 0
        self._parts: list[bytes] = []
        self._starts: list[int] = []
        self._multipart: _MultipartUpload | None = None
        self._is_open = True
        accounts.note_upload(+1)

    def write(self, parts: Sequence[Buffer]) -> None:
        # Copy buffers that the caller may change before the commit.
        data = [part if type(part) is bytes else bytes(part) for part in parts]
        if self._multipart is not None:
            self._multipart.write(data)
            self._size += sum(map(len, data))
            return
        for part in data:
            self._starts.append(self._size)
            self._parts.append(part)
            self._size += len(part)
        if self._size > _MAX_SINGLE_BYTES:
            self._multipart = _MultipartUpload(self._client, self._key)
            self._multipart.write(self._parts)
            self._parts, self._starts = [], []

    def read(self, start: int, length: int) -> bytes:
        if self._multipart is not None:
            return self._multipart.read(start, length)
        end = min(start + length, self._size)
        first = max(0, bisect.bisect_right(self._starts, start) - 1)
        found = [
            part[max(0, start - part_start) : end - part_start]
            for part, part_start in zip(self._parts[first:], self._starts[first:], strict=True)
            if part_start < end
        ]
        return b"".join(found)

    def commit(self, extension: str, limits: Mapping[str, int | None], entry: Entry) -> None:  # noqa: ARG002 - keys have no extension
        with self._accounts.reserve(self._size, limits) as reservation:
            try:
                self._put()
            except OutcomeUnknown:
                # The object may appear later, so it stays counted until a recount.
                reservation.keep()
                raise
            except Conflict:
                raise StoreUnavailable(f"an object {self._handle!r} exists in the store already; call again") from None
            # If a recount has dropped the reservation and there is no room now, the object must not stay.
            reservation.settle(lambda: self._client.delete(self._key))
        self._index.add(self._handle, entry)
        self._end()

    def _put(self) -> Version:
        if self._multipart is not None:
            return self._multipart.finish(self._size)
        return self._client.put(self._key, self._parts, CREATE)

    def abort(self) -> None:
        if self._is_open:
            if self._multipart is not None:
                self._multipart.abort()
            self._end()

    def _end(self) -> None:
        self._is_open = False
        self._accounts.note_upload(-1)
        if self._multipart is not None:
            self._multipart.close()
        self._parts, self._starts = [], []


class _Aborted(Exception):
    """Ends a multipart upload."""


class _MultipartUpload:
    """A multipart upload by a thread, which reads each complete part from an unlinked temporary file.

    It cannot be conditional, because the library has no conditional completion. Handles are random, so no payload is
    overwritten; another process may overwrite a sidecar with the same sidecar.
    """

    def __init__(self, client: ObjectClient, key: str) -> None:
        self._client = client
        self._key = key
        self._changed = threading.Condition()
        self._written = 0
        self._is_complete = self._is_aborted = self._is_fully_read = False
        with _translate_file_errors():
            self._file = tempfile.TemporaryFile(prefix="forebay-")  # noqa: SIM115 - closed by `close`
        self._future: concurrent.futures.Future[Version] = start_in_thread(self._run, daemon=True)

    def _run(self) -> Version:
        return self._client.put_stream(
            self._key, self._iter_chunks(), chunk_bytes=_PART_BYTES, max_in_flight=_MAX_PARTS_IN_FLIGHT
        )

    def _iter_chunks(self) -> Iterator[bytes]:
        start = 0
        while True:
            with self._changed:
                while not (self._is_aborted or self._is_complete or self._written >= start + _PART_BYTES):
                    self._changed.wait()
                if self._is_aborted:
                    raise _Aborted
                length = min(_PART_BYTES, self._written - start)
                if not length:
                    self._is_fully_read = True
                    return
            yield self.read(start, length)
            start += length

    def write(self, parts: Sequence[bytes]) -> None:
        if self._future.done():
            # It has failed: before `finish`, nothing else ends it.
            self._future.result()
        size = 0
        with _translate_file_errors():
            for part in parts:
                view = memoryview(part)
                while len(view):
                    count = files.write_at(self._file.fileno(), view, self._written + size)
                    view, size = view[count:], size + count
        with self._changed:
            self._written += size
            self._changed.notify_all()

    def read(self, start: int, length: int) -> bytes:
        with _translate_file_errors():
            return files.read_at(self._file.fileno(), length, start)

    def finish(self, size: int) -> Version:
        """Complete the upload. If the answer is lost, the end of the object tells whether it was completed."""
        with self._changed:
            self._is_complete = True
            self._changed.notify_all()
        try:
            return self._client.wait(self._future)
        except StoreUnavailable as error:
            with self._changed:
                self._is_aborted = True
                if not self._is_fully_read:
                    # The library completes an upload only after it has read all chunks.
                    raise StoreUnavailable(str(error)) from None
            length = min(size, COMPARED_BYTES)
            written = self._client.find_written(self._key, size, [self.read(size - length, length)])
            if written is None:
                raise OutcomeUnknown(str(error)) from None
            return written.version

    def abort(self) -> None:
        with self._changed:
            self._is_aborted = True
            self._changed.notify_all()
        concurrent.futures.wait([self._future], _ABORT_SECONDS)

    def close(self) -> None:
        # While the thread may read, the file stays open: another file could get its descriptor.
        if self._future.done():
            self._file.close()


@contextlib.contextmanager
def _translate_file_errors() -> Iterator[None]:
    """Raise `StoreFull` for errors of the temporary file."""
    try:
        yield
    except OSError as error:
        raise StoreFull(
            f"the temporary file that holds a large object while it is uploaded failed: {error.strerror}; make room in "
            f"{tempfile.gettempdir()}, or set TMPDIR"
        ) from None
