"""An index of the objects in a bucket, so that a sweep need not read their footers.

Each replica appends a line for every object that it commits, to segments `index/<class>/<day>/<time>-<replica>`. The
index may be wrong: it lacks the last objects of a killed writer, and has objects that were deleted since.

It has no lines for sidecars and messages: an object of the same size may replace them under the same handle, and would
be taken for the object of the old line. They are few, so sweeps read their footers.
"""

import contextlib
import functools
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime

import orjson

from forebay.errors import ForebayError
from forebay.store.backends.object_client import ObjectClient, ObjectState
from forebay.store.backends.object_segments import SegmentWriter
from forebay.store.entries import Entry, EntryTable
from forebay.store.handles import LIFETIMES, format_date, get_lifetime_class, is_handle, is_sidecar_handle
from forebay.store.threads import call_in_threads, fork_safe_lock

__all__ = ["ObjectIndex"]

_FOLDER = "index"
_FLUSH_SECONDS = 5.0
_MAX_BUFFER_BYTES = 512 << 10
_MAX_READERS = 4
_DAY_SECONDS = 86400

_MARGIN_SECONDS = 86400.0
"""How long lines are kept after their objects have expired: the next sweep may come so late."""

_MAX_SIZE = 1 << 62


class ObjectIndex:
    """The index of a bucket. A process reads each segment once, and again only when it has grown."""

    def __init__(self, client: ObjectClient) -> None:
        self._client = client
        self._writers = [
            SegmentWriter(
                client,
                functools.partial(_make_folder, lifetime),
                flush_seconds=_FLUSH_SECONDS,
                max_buffer_bytes=_MAX_BUFFER_BYTES,
            )
            for lifetime in range(len(LIFETIMES))
        ]
        self._entries = EntryTable()
        self._lock = fork_safe_lock()
        self._read_states: dict[str, tuple[str | None, int]] = {}
        """The tag and size of each segment when it was read."""

    def add(self, handle: str, entry: Entry) -> None:
        """Add an object that was committed. This makes no request, and never fails."""
        if not is_sidecar_handle(handle):
            values = [handle, entry.created_at, entry.expires_at, entry.size, entry.principal]
            self._writers[get_lifetime_class(handle)].append(orjson.dumps(values) + b"\n")

    def read(self, now: float) -> int:
        """Read new lines, before the objects are listed. Return a number that the other methods need."""
        # Lines that cannot be written now are written later; until then, sweeps read the footers.
        with contextlib.suppress(ForebayError):
            self._flush()
        with self._lock:
            listing = self._entries.begin_sweep()
            found = dict(self._client.list(_FOLDER))
            changed = [key for key, state in found.items() if self._read_states.get(key) != _identify(state)]

            def read_segment(key: str) -> None:
                segment = self._client.read_all(key)
                for handle, entry in _parse_lines(b"" if segment is None else segment[1]):
                    # Old lines are skipped, so that they take no memory.
                    if entry.expires_at + _MARGIN_SECONDS > now:
                        self._entries.add(handle, entry, listing)
                self._read_states[key] = _identify(found[key])

            call_in_threads(read_segment, changed, _MAX_READERS)
            for key in self._read_states.keys() - found.keys():
                del self._read_states[key]
        return listing

    def find(self, handle: str, size: int, listing: int) -> Entry | None:
        """Return the entry of an object that is listed with this size, or `None` if the index lacks it."""
        entry, _ = self._entries.see(handle, listing)
        return entry if entry is not None and entry.size == size else None

    def forget_unlisted(self, listing: int) -> None:
        """Drop the entries of objects that are gone, after a complete listing."""
        self._entries.remove_unseen(listing)

    def remove_old(self, now: float) -> None:
        """Remove the segments whose objects have all expired. Those of the class without an end stay."""
        for key, _ in self._client.list(_FOLDER):
            if _get_end(key) + _MARGIN_SECONDS <= now:
                self._client.delete(key)

    def _flush(self) -> None:
        for writer in self._writers:
            writer.flush()

    def close(self) -> None:
        """Write the lines in memory. If that fails, they are lost."""
        # If the server is away, one attempt is enough: the writers below drop their lines.
        with contextlib.suppress(ForebayError):
            self._flush()
        for writer in self._writers:
            writer.forget()
            writer.close()


def _make_folder(lifetime: int) -> str:
    return f"{_FOLDER}/{lifetime}/{format_date(time.time())}"


def _get_end(key: str) -> float:
    """Return when the last object of a segment expires; infinity if never, or if the key is no segment's."""
    try:
        _, number, day, _ = key.split("/")
        lifetime = LIFETIMES[int(number)]
        began_at = datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC).timestamp()
    except (ValueError, IndexError):
        return float("inf")
    return float("inf") if lifetime is None else began_at + _DAY_SECONDS + lifetime


def _identify(state: ObjectState) -> tuple[str | None, int]:
    return state.version.etag, state.size


def _parse_lines(data: bytes) -> Iterator[tuple[str, Entry]]:
    """Return the handles and entries in the lines of a segment, without damaged lines."""
    for line in data.splitlines():
        with contextlib.suppress(ValueError, TypeError):
            handle, created_at, expires_at, size, principal = orjson.loads(line)
            if is_handle(handle) and type(size) is int and 0 <= size < _MAX_SIZE and isinstance(principal, str | None):
                yield handle, Entry(float(created_at), float(expires_at), size, principal)
