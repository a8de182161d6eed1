"""Stored payloads by handle: opening them, their metadata, and caches of what was read."""

import dataclasses
from collections.abc import Callable, Hashable
from typing import Any, Self, TypeVar, cast

from typing_extensions import Buffer

from forebay.arguments import short_repr
from forebay.errors import HandleCorrupt, HandleNotFound
from forebay.store.backends import Backend, Blob
from forebay.store.cache import LRUCache
from forebay.store.frames import Footer, read_footer
from forebay.store.handles import OPERATOR, Principal, format_timestamp, is_handle, is_sidecar_handle
from forebay.store.reader import PayloadReader, RecentReads
from forebay.store.threads import fork_safe_lock

__all__ = ["Catalog", "StoredOutput", "make_not_found_error"]

_MAX_CACHED_FOOTERS = 256
_MAX_CACHED_PAYLOAD_BYTES = 256 << 20
_MAX_REMEMBERED = 1024

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True)
class StoredOutput:
    """The metadata of a stored payload."""

    output_handle: str
    mime_type: str
    nature: str
    """Type of the payload: `json`, `ndjson`, `text` or `binary`."""
    size_bytes: int
    stored_bytes: int
    """Size of the file on disk."""
    item_count: int | None
    items_path: str | None
    line_count: int | None
    outline: str | None
    created_at: str
    expires_at: str
    source_tool: str | None
    principal: str | None
    decoded_from: str | None = None
    """What the text of the payload was decoded from, such as `gzip`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary."""
        return dataclasses.asdict(self)

    @classmethod
    def from_reader(cls, reader: PayloadReader) -> Self:
        """Return the metadata of an open payload."""
        meta, lines = reader.footer.meta, reader.lines
        return cls(
            output_handle=meta["handle"],
            mime_type=meta["mime_type"],
            nature=meta["nature"],
            size_bytes=meta["size_bytes"],
            stored_bytes=reader.stored_bytes,
            item_count=meta["item_count"],
            items_path=meta["items_path"],
            line_count=None if lines is None else len(lines),
            outline=meta["outline"],
            created_at=format_timestamp(meta["created_at"]),
            expires_at=format_timestamp(meta["expires_at"]),
            source_tool=meta["source_tool"],
            principal=meta["principal"],
            decoded_from=reader.decoded_from,
        )


class Catalog:
    """Access to payloads by handle, with caches of recent footers, reads, searched payloads and totals of searches.

    Each cache entry has the version of its file, and is ignored once the file has another version.
    """

    def __init__(self, backend: Backend, clock: Callable[[], float]) -> None:
        self._backend = backend
        self._clock = clock
        self._lock = fork_safe_lock()
        self._footers: LRUCache[str, tuple[object, Footer]] = LRUCache(_MAX_CACHED_FOOTERS)
        self._recent_reads = RecentReads()
        self._payloads: LRUCache[str, tuple[object, Buffer]] = LRUCache(_MAX_CACHED_PAYLOAD_BYTES, _get_payload_size)
        self._remembered: LRUCache[Hashable, tuple[object, Any]] = LRUCache(_MAX_REMEMBERED)

    def open(self, handle: str, principal: Principal) -> PayloadReader:
        """Open a payload. Raises `HandleNotFound` if it does not exist, has expired or belongs to someone else."""
        if not is_handle(handle) or is_sidecar_handle(handle):
            raise make_not_found_error(handle)
        with self._lock:
            version, _ = self._footers.get(handle, (None, None))
        try:
            blob = self._backend.open(handle, version)
        except KeyError:
            raise make_not_found_error(handle) from None
        try:
            footer = self.read_footer(handle, blob)
            is_owner = principal is OPERATOR or footer.meta["principal"] == principal
            if not is_owner or footer.meta["expires_at"] <= self._clock():
                raise make_not_found_error(handle)
        except BaseException:
            blob.close()
            raise
        return PayloadReader(blob, footer, self._recent_reads)

    def read_footer(self, handle: str, blob: Blob) -> Footer:
        """Return the footer of a stored object, from the cache if the object has not changed."""
        with self._lock:
            version, footer = self._footers.get(handle, (None, None))
        if footer is not None and version == blob.version:
            return footer
        footer = read_footer(blob)
        if footer.meta["handle"] != handle:
            raise HandleCorrupt("the stored file is that of another handle; call the tool again")
        with self._lock:
            self._footers[handle] = (blob.version, footer)
        return footer

    def get_cached_payload(self, reader: PayloadReader) -> Buffer | None:
        """Return a whole payload from the cache, or `None` if it is not there."""
        with self._lock:
            version, data = self._payloads.get(reader.footer.meta["handle"], (None, None))
        return data if version == reader.version else None

    def read_payload(self, reader: PayloadReader) -> Buffer:
        """Return a whole payload and cache it: one search is often followed by another."""
        data = self.get_cached_payload(reader)
        if data is None:
            data = reader.read_all()
            with self._lock:
                self._payloads[reader.footer.meta["handle"]] = (reader.version, data)
        return data

    def remember(self, reader: PayloadReader, key: Hashable, compute: Callable[[], _T]) -> _T:
        """Return a small value that is computed from a payload, and remember it by the key."""
        key = (reader.footer.meta["handle"], key)
        with self._lock:
            version, value = self._remembered.get(key, (None, None))
        if version != reader.version:
            value = compute()
            with self._lock:
                self._remembered[key] = (reader.version, value)
        return cast("_T", value)

    def forget(self, handle: str) -> None:
        """Remove a handle from the caches."""
        with self._lock:
            self._footers.remove(handle)
            self._payloads.remove(handle)
        self._recent_reads.remove(handle)


def _get_payload_size(entry: tuple[object, Buffer]) -> int:
    return memoryview(entry[1]).nbytes


def make_not_found_error(handle: object) -> HandleNotFound:
    # A model may send any value; only a short text is repeated in full.
    text = repr(handle) if isinstance(handle, str) and len(handle) <= 40 else short_repr(handle)
    return HandleNotFound(
        f"nothing is stored under {text} here: it has expired, or it is a handle of another server; read it with that "
        "server's tools, or call the tool again for a new handle"
    )
