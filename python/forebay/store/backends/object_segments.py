"""Segments: objects `<folder>/<time>-<replica>` of lines, each of which one replica replaces as it appends to it."""

import atexit
import contextlib
import secrets
import threading
import time
import weakref
from collections.abc import Callable

from forebay.errors import ForebayError
from forebay.store.backends.object_client import ObjectClient, Version
from forebay.store.threads import fork_safe_lock, run_in_forked_child

__all__ = ["SegmentWriter"]

_MAX_SEGMENT_BYTES = 256 << 10
"""Size from which on a segment is not appended to. The lines of one flush come on top."""

_open_writers: "weakref.WeakSet[SegmentWriter]" = weakref.WeakSet()


class SegmentWriter:
    """The lines that a replica appends. `append` only changes memory; a thread writes to the bucket soon after."""

    def __init__(
        self, client: ObjectClient, get_folder: Callable[[], str], *, flush_seconds: float, max_buffer_bytes: int
    ) -> None:
        """Write to the folder that `get_folder` names at each flush.

        `flush_seconds` is how long lines stay in memory; a process that is killed loses the lines of this time. For a
        server that is away, `max_buffer_bytes` of lines are kept, and older ones are dropped.
        """
        self._client = client
        self._get_folder = get_folder
        self._flush_seconds = flush_seconds
        self._max_buffer_bytes = max_buffer_bytes
        self._replica = secrets.token_hex(6)
        self._lock = fork_safe_lock()
        self._write_lock = fork_safe_lock()
        self._buffer: list[bytes] = []
        self._buffered_bytes = 0
        self._has_timer = False
        self._folder = ""
        self._begin_segment("")
        _open_writers.add(self)

    def _begin_segment(self, folder: str) -> None:
        self._folder = folder
        self._key = f"{folder}/{time.time_ns() // 1000:016d}-{self._replica}"
        self._version: Version | None = None
        self._segment: list[bytes] = []
        self._segment_bytes = 0

    def append(self, line: bytes) -> None:
        """Append a line, which ends with a line break."""
        with self._lock:
            self._buffer.append(line)
            self._buffered_bytes += len(line)
            while self._buffered_bytes > self._max_buffer_bytes:
                self._buffered_bytes -= len(self._buffer.pop(0))
            if not self._has_timer:
                self._start_timer()

    def _start_timer(self) -> None:
        timer = threading.Timer(self._flush_seconds, self._flush_quietly)
        timer.daemon = True
        # No thread can start while the interpreter exits; the lines are written at the end.
        with contextlib.suppress(RuntimeError):
            timer.start()
            self._has_timer = True

    def _flush_quietly(self) -> None:
        # Lines that cannot be written stay in memory until the next append.
        with contextlib.suppress(ForebayError):
            self.flush()

    def flush(self) -> None:
        """Write the lines in memory."""
        with self._write_lock:
            with self._lock:
                lines, self._buffer, self._buffered_bytes, self._has_timer = self._buffer, [], 0, False
            if not lines:
                return
            folder = self._get_folder()
            if folder != self._folder or self._segment_bytes > _MAX_SEGMENT_BYTES:
                self._begin_segment(folder)
            try:
                # A segment that was written although the answer was lost is replaced by one with the same lines.
                self._version = self._client.replace(self._key, [*self._segment, *lines], self._version)
            except BaseException:
                with self._lock:
                    self._buffer[:0] = lines
                    self._buffered_bytes += sum(map(len, lines))
                raise
            self._segment += lines
            self._segment_bytes += sum(map(len, lines))

    def forget(self) -> None:
        """Drop the lines of a forked child, because its parent process writes them."""
        self._buffer, self._buffered_bytes, self._has_timer = [], 0, False

    def close(self) -> None:
        """Write the lines in memory. If that fails, they are lost."""
        self._flush_quietly()
        _open_writers.discard(self)


@atexit.register
def _flush_all() -> None:
    for writer in list(_open_writers):
        writer.close()


def _forget_in_child() -> None:
    for writer in list(_open_writers):
        writer.forget()


run_in_forked_child(_forget_in_child)
