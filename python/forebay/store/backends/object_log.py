"""A log of lines in a bucket: segments in the folder `journal`.

A line is stored behind the time at which it was appended, so that the segments of all replicas can be merged.
"""

import contextlib
import heapq
import time
from collections.abc import Iterator

from forebay.store.backends.object_client import ObjectClient, ObjectState
from forebay.store.backends.object_segments import SegmentWriter
from forebay.store.threads import fork_safe_lock

__all__ = ["ObjectLog"]

_FOLDER = "journal"
_FLUSH_SECONDS = 2.0
_MAX_BUFFER_BYTES = 1 << 20

_MAX_LOG_BYTES = 128 << 20
_MAX_SEGMENTS = 4096

_MAX_CLOCK_DIFFERENCE_SECONDS = 5.0
"""How much a line may be newer than its segment by the server's clock. Beyond, lines may be read in another order."""


class ObjectLog:
    """A log of bounded size."""

    def __init__(self, client: ObjectClient) -> None:
        self._client = client
        self._writer = SegmentWriter(
            client, lambda: _FOLDER, flush_seconds=_FLUSH_SECONDS, max_buffer_bytes=_MAX_BUFFER_BYTES
        )
        self._lock = fork_safe_lock()
        self._last_time = 0

    def append(self, line: bytes) -> None:
        """Append a line, which ends with a line break."""
        with self._lock:
            # Each line has a time of its own, which keeps the order of lines of one replica.
            self._last_time = max(self._last_time + 1, time.time_ns() // 1000)
            self._writer.append(b"%016d %b" % (self._last_time, line))

    def flush(self) -> None:
        """Write the lines in memory."""
        self._writer.flush()

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

    def close(self) -> None:
        """Write the lines in memory. If that fails, they are lost."""
        self._writer.close()


def _get_newest_time(state: ObjectState) -> float:
    return state.modified_at + _MAX_CLOCK_DIFFERENCE_SECONDS
