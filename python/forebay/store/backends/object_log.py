"""A log of lines in a bucket: segments `journal/<time>-<replica>`, each of which one replica replaces as it grows.

A line is stored behind the time at which it was appended, so that the segments of all replicas can be merged.
"""

import atexit
import contextlib
import heapq
import os
import secrets
import threading
import time
import weakref
from collections.abc import Iterator

from forebay.errors import ForebayError
from forebay.store.backends.object_client import ObjectClient, ObjectState, Version
from forebay.store.threads import fork_safe_lock

__all__ = ["ObjectLog"]

_FOLDER = "journal"
_FLUSH_SECONDS = 2.0
"""How long lines stay in memory. A process that is killed loses the lines of this time."""

_MAX_SEGMENT_BYTES = 256 << 10
_MAX_BUFFER_BYTES = 1 << 20
"""Lines that are kept for a server that is away; older ones are dropped."""

_MAX_LOG_BYTES = 128 << 20
_MAX_SEGMENTS = 4096

_MAX_CLOCK_DIFFERENCE_SECONDS = 5.0
"""How much a line may be newer than its segment by the server's clock. Beyond, lines may be read in another order."""

_open_logs: "weakref.WeakSet[ObjectLog]" = weakref.WeakSet()


class ObjectLog:
    """A log of bounded size. `append` only changes memory; a thread writes to the bucket soon after."""

    def __init__(self, client: ObjectClient) -> None:
        self._client = client
        self._replica = secrets.token_hex(6)
        self._lock = fork_safe_lock()
        self._write_lock = fork_safe_lock()
        self._buffer: list[bytes] = []
        self._buffered_bytes = 0
        self._segment: list[bytes] = []
        self._segment_bytes = 0
        self._segment_key = ""
        self._segment_version: Version | None = None
        self._has_timer = False
        self._last_time = 0
        _open_logs.add(self)

    def append(self, line: bytes) -> None:
        """Append a line, which ends with a line break."""
        with self._lock:
            # Each line has a time of its own, which keeps the order of lines of one replica.
            self._last_time = max(self._last_time + 1, time.time_ns() // 1000)
            self._buffer.append(b"%016d %b" % (self._last_time, line))
            self._buffered_bytes += len(self._buffer[-1])
            while self._buffered_bytes > _MAX_BUFFER_BYTES:
                self._buffered_bytes -= len(self._buffer.pop(0))
            if not self._has_timer:
                self._start_timer()

    def _start_timer(self) -> None:
        timer = threading.Timer(_FLUSH_SECONDS, self._flush_quietly)
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
            if not self._segment_key:
                self._segment_key = f"{_FOLDER}/{lines[0][:16].decode()}-{self._replica}"
            try:
                # A segment that was written although the answer was lost is replaced by one with the same lines.
                parts = [*self._segment, *lines]
                self._segment_version = self._client.replace(self._segment_key, parts, self._segment_version)
            except BaseException:
                with self._lock:
                    self._buffer[:0] = lines
                    self._buffered_bytes += sum(map(len, lines))
                raise
            self._segment += lines
            self._segment_bytes += sum(map(len, lines))
            if self._segment_bytes > _MAX_SEGMENT_BYTES:
                self._segment, self._segment_bytes, self._segment_key = [], 0, ""
                self._segment_version = None

    def read_backward(self) -> Iterator[bytes]:
        """Return the lines, newest first."""
        self.flush()
        segments = sorted(self._client.list(_FOLDER), key=lambda found: found[1].modified_at)
        # A heap of the lines to return next: of each segment that was read, the newest that is left.
        heads: list[tuple[int, int, bytes]] = []
        rest: dict[int, list[bytes]] = {}

        def push(number: int) -> None:
            with contextlib.suppress(IndexError, ValueError):
                line = rest[number].pop()
                heapq.heappush(heads, (-int(line[:16]), number, line))

        while segments or heads:
            # The lines of a segment are older than its last write.
            while segments and (not heads or -heads[0][0] / 1e6 <= _get_newest_time(segments[-1][1])):
                key, _ = segments.pop()
                found = self._client.read_all(key)
                if found is not None:
                    rest[len(segments)] = found[1].splitlines(keepends=True)
                    push(len(segments))
            if heads:
                _, number, line = heapq.heappop(heads)
                yield line[17:]
                push(number)

    def remove_old(self) -> None:
        """Remove the oldest segments beyond the limit."""
        total = 0
        for count, (key, state) in enumerate(sorted(self._client.list(_FOLDER), reverse=True)):
            total += state.size
            if total > _MAX_LOG_BYTES or count >= _MAX_SEGMENTS:
                self._client.delete(key)

    def forget(self) -> None:
        """Drop the lines of a forked child, because its parent process writes them."""
        self._buffer, self._buffered_bytes, self._has_timer = [], 0, False

    def close(self) -> None:
        """Write the lines in memory. If that fails, they are lost."""
        self._flush_quietly()
        _open_logs.discard(self)


def _get_newest_time(state: ObjectState) -> float:
    return state.modified_at + _MAX_CLOCK_DIFFERENCE_SECONDS


@atexit.register
def _flush_all() -> None:
    for log in list(_open_logs):
        log.close()


def _forget_in_child() -> None:
    for log in list(_open_logs):
        log.forget()


os.register_at_fork(after_in_child=_forget_in_child)
