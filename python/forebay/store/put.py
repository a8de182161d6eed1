"""A payload on its way into the store: whole, or not at all."""

import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import orjson
from typing_extensions import Buffer

from forebay._core import Findings, ItemIndex, Survey, outline, preview, read_items
from forebay.arguments import short_repr
from forebay.errors import ForebayError, InvalidArgument, RedactionFailed, StoreFull
from forebay.store.backends import Backend, Upload
from forebay.store.frames import build_footer
from forebay.store.handles import Descriptor, new_handle
from forebay.store.journal import Journal
from forebay.store.options import Options, check_handle_length, check_ttl
from forebay.store.pages import escaped_size, is_mostly_items
from forebay.store.payload import (
    CHUNK_BYTES,
    Payload,
    Redaction,
    choose_extension,
    detect_mime_type,
    is_json_mime_type,
    iter_chunks,
    needs_json_encoding,
    read_all,
    sanitize_mime_type,
    to_buffer,
)
from forebay.store.principals import MAX_NAME_LENGTH, is_valid_name
from forebay.store.quota import Quota, QuotaExceeded
from forebay.store.threads import ForkSafeLock
from forebay.store.times import format_timestamp, is_valid_time
from forebay.store.write import WriteProgress, write_frames

__all__ = ["PayloadWriter", "apply_redactions"]

_log = logging.getLogger("forebay")

_MAX_MESSAGE_BYTES = 4096
"""What a message with a descriptor may weigh."""
_ENVELOPE_BYTES = 512
"""What of that is not the descriptor."""
_MAX_OUTLINE_BYTES = 512
_MAX_EVICTION_ATTEMPTS = 10
"""How often others are evicted for a payload before it is refused."""
_MAX_WATCHED_PRINCIPALS = 4096
"""How many principals one open store knows the sums of, for its warning."""
_MAX_PREVIEW_BYTES = 2048


class PayloadWriter:
    """Takes payloads in."""

    def __init__(
        self,
        backend: Backend,
        quota: Quota,
        journal: Journal,
        options: Options,
        free_space: Callable[[str | None, int], None],
    ) -> None:
        self._backend = backend
        self._quota = quota
        self._journal = journal
        self._options = options
        self._free_space = free_space
        self._lock = ForkSafeLock()
        self._pool: ThreadPoolExecutor | None = None
        self._pool_pid = 0
        self._stored_bytes: dict[str | None, int] = {}

    def put(
        self,
        payload: Payload,
        *,
        mime_type: str | None,
        source_tool: str | None,
        principal: str | None,
        ttl: float | None,
        progress: Callable[[int], None] | None,
        handle_length: int | None = None,
    ) -> Descriptor:
        """Stores a payload, and says what it is."""
        if handle_length is not None:
            check_handle_length(handle_length)
        if ttl is not None:
            check_ttl(ttl)
        for name, given in (("source_tool", source_tool), ("principal", principal)):
            if given is not None and not is_valid_name(given):
                raise InvalidArgument(f"{name} is at most {MAX_NAME_LENGTH} characters of text, not {given!r:.64}")
        if mime_type is not None and not isinstance(mime_type, str):
            raise InvalidArgument(f"mime_type must be a text, such as text/plain, not {short_repr(mime_type)}")
        if progress is not None and not callable(progress):
            raise InvalidArgument(f"progress must be a function of the bytes done, not {short_repr(progress)}")
        try:
            descriptor = self._store(payload, mime_type, source_tool, principal, ttl, progress, handle_length)
        except ForebayError as error:
            self._journal.record("store_failed", principal=principal, source_tool=source_tool, code=error.code)
            raise
        self._journal.record(
            "output_handle_created",
            principal=principal,
            handle=descriptor.output_handle,
            source_tool=source_tool,
            size_bytes=descriptor.size_bytes,
            mime_type=descriptor.mime_type,
            shown_bytes=len(descriptor.to_json()),
        )
        self._warn_if_large(principal, descriptor.size_bytes)
        return descriptor

    def _store(
        self,
        payload: Payload,
        mime_type: str | None,
        source_tool: str | None,
        principal: str | None,
        ttl: float | None,
        progress: Callable[[int], None] | None,
        handle_length: int | None,
    ) -> Descriptor:
        mime_type = sanitize_mime_type(mime_type) or ("application/json" if needs_json_encoding(payload) else None)
        if self._options.redactions:
            payload = apply_redactions(payload, self._options.redactions)
        data = to_buffer(payload)
        handle = new_handle(handle_length or self._options.handle_length)

        def watch(written: WriteProgress) -> None:
            self._check_quota(principal, written.stored_bytes)
            if progress is not None:
                progress(written.payload_bytes)

        upload = self._backend.create(handle)
        outlining = self._start_outline(data)
        try:
            written, findings, parts = write_frames(
                iter_chunks(payload if data is None else data),
                Survey(is_json_mime_type(mime_type)),
                upload,
                compress=self._options.compression == "zstd",
                get_pool=self._get_pool,
                on_progress=watch,
            )
            items = findings.items if is_mostly_items(findings.items, written.payload_bytes) else None
            if parts and progress is not None:
                progress(written.payload_bytes)
            now = self._options.clock()
            expires_at = now + (self._options.ttl if ttl is None else ttl)
            if not is_valid_time(now) or not is_valid_time(expires_at):
                raise InvalidArgument("this payload would expire, or was made, in no year there is; mend ttl or clock")
            meta: dict[str, Any] = {
                "handle": handle,
                "mime_type": _resolve_mime_type(
                    mime_type, findings.nature, bytes(memoryview(written.first_chunk)[:16384])
                ),
                "size_bytes": written.payload_bytes,
                "nature": findings.nature,
                "item_count": None if items is None else len(items),
                "items_path": None if items is None else items.path,
                "outline": _finish_outline(outlining, data, written, findings),
                "created_at": now,
                "expires_at": expires_at,
                "principal": principal,
                "source_tool": source_tool,
            }
            tail = build_footer(meta, findings.items, findings.lines, written.frames)
            stored = written.stored_bytes + len(tail)
            upload.write([*parts, tail])
            self._commit(upload, principal, stored, choose_extension(meta["mime_type"], findings.nature))
        finally:
            upload.abort()
        return make_descriptor(meta, written.first_chunk)

    def _start_outline(self, data: Buffer | None) -> Future[str] | None:
        """A pass of its own over a large payload, beside those that write it; in vain if it is not JSON."""
        if data is None or len(view := memoryview(data)) <= CHUNK_BYTES or view[0] not in b"[{":
            return None
        return self._get_pool().submit(outline, data, _MAX_OUTLINE_BYTES)

    def _check_quota(self, principal: str | None, size: int) -> None:
        """Ends a payload early that will have no room; nothing is evicted for it before it is all there."""
        if self._options.on_full == "evict":
            short = self._quota.explain_oversize(principal, size)
        else:
            short = self._quota.explain_shortage(principal, size)
            if short is not None:
                self._free_space(principal, size)
                short = self._quota.explain_shortage(principal, size)
        if short is not None:
            raise StoreFull(short)

    def _commit(self, upload: Upload, principal: str | None, size: int, extension: str) -> None:
        for _ in range(_MAX_EVICTION_ATTEMPTS if self._options.on_full == "evict" else 1):
            with contextlib.suppress(QuotaExceeded), self._quota.reserve(principal, size):
                upload.commit(extension)
                return
            # Whoever is quicker may take the room that was made.
            self._free_space(principal, size)
        with self._quota.reserve(principal, size):
            upload.commit(extension)

    def _warn_if_large(self, principal: str | None, size: int) -> None:
        before = self._stored_bytes.pop(principal, 0)
        after = self._stored_bytes[principal] = before + size
        if len(self._stored_bytes) > _MAX_WATCHED_PRINCIPALS:
            # The one that has not stored anything for the longest time.
            self._stored_bytes.pop(next(iter(self._stored_bytes)), None)
        if before <= self._options.warn_bytes < after:
            whom = "this process" if principal is None else f"principal {principal!r}"
            told = f"forebay: {whom} has stored {after:,} bytes, more than warn_bytes={self._options.warn_bytes:,}"
            _log.warning("%s", told)
            self._journal.record("store_warning", principal=principal, size_bytes=after)

    def _get_pool(self) -> ThreadPoolExecutor:
        with self._lock:
            # The threads of a pool do not come along when a process is forked.
            if self._pool is None or self._pool_pid != os.getpid():
                self._pool_pid = os.getpid()
                self._pool = ThreadPoolExecutor(min(4, os.cpu_count() or 1), "forebay-frames")
            return self._pool

    def close(self) -> None:
        with self._lock:
            if self._pool is not None and self._pool_pid == os.getpid():
                self._pool.shutdown()


def make_descriptor(meta: dict[str, Any], head: Buffer) -> Descriptor:
    """What is said of a payload in place of it, as long as the message it goes in allows."""

    said: dict[str, Any] = {
        "output_handle": meta["handle"],
        "mime_type": meta["mime_type"],
        "size_bytes": meta["size_bytes"],
        "item_count": meta["item_count"],
        "preview": "",
        "expires_at": format_timestamp(meta["expires_at"]),
        "fetch_with": "output_fetch",
        "items_path": meta["items_path"],
        "outline": meta["outline"],
    }
    room = _room(said)
    # A path of long keys can be too much by itself; pages find the items without it.
    for name in ("outline", "items_path"):
        if room < 0:
            said[name] = None
            room = _room(said)
    if meta["nature"] == "binary":
        said["preview"] = None
    else:
        said["preview"] = preview(head, _MAX_PREVIEW_BYTES, max_escaped_bytes=max(0, room), escape_levels=2)
    return Descriptor(**said)


def _room(said: dict[str, Any]) -> int:
    return _MAX_MESSAGE_BYTES - _ENVELOPE_BYTES - escaped_size(orjson.dumps(said), 1)


def apply_redactions(payload: Payload, redactions: Sequence[Redaction]) -> bytes:
    """A payload in one piece, without what must not be stored."""
    data = bytes(read_all(payload))
    for redact in redactions:
        try:
            data = redact(data)
        except Exception as error:
            # Whatever it says may quote the payload.
            raise RedactionFailed(f"a redaction failed with {type(error).__name__}; nothing was stored") from None
        if not isinstance(data, bytes):
            raise RedactionFailed(f"a redaction returned {type(data).__name__} in place of bytes; nothing was stored")
    return data


def _resolve_mime_type(mime_type: str | None, nature: str, head: bytes) -> str:
    """The type that was given, unless the payload is not what it says."""
    found = detect_mime_type(nature, head)
    if mime_type is None or (is_json_mime_type(mime_type) and nature not in ("json", "ndjson")):
        return found
    return mime_type


def _finish_outline(
    outlining: Future[str] | None, data: Buffer | None, written: WriteProgress, findings: Findings
) -> str | None:
    # What fits into the preview whole has no need of an outline.
    if findings.nature not in ("json", "ndjson") or written.payload_bytes <= _MAX_PREVIEW_BYTES:
        return None
    if outlining is not None:
        return outlining.result()
    if data is None and written.payload_bytes == len(memoryview(written.first_chunk)):
        data = written.first_chunk
    if data is not None:
        return outline(data, _MAX_OUTLINE_BYTES)
    return _outline_first_items(written.first_chunk, findings.items)


def _outline_first_items(head: Buffer, items: ItemIndex | None) -> str | None:
    """The shape of the first items of a payload that has streamed by; what is around them is `…`."""
    if items is None or items.kind is None or len(items) == 0:
        return None
    start = items.span(0, 1).start
    try:
        page = read_items(memoryview(head)[start:], items, 0, 100, len(memoryview(head)), base=start)
        shape = outline(page.content, _MAX_OUTLINE_BYTES - 24)
    except ForebayError:
        return None
    shape = f"{shape.rpartition(' ×')[0]} ×{len(items)}"
    for key in reversed((items.path or "").split("/")[1:]):
        shape = f"{{{key.replace('~1', '/').replace('~0', '~')}: {shape}, …}}"
    return shape if len(shape.encode()) <= _MAX_OUTLINE_BYTES else None
