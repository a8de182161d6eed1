"""Storing a payload: whole, or not at all."""

import dataclasses
import functools
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from typing_extensions import Buffer

from forebay._core import Findings, ItemIndex, Survey, outline
from forebay.arguments import short_repr
from forebay.errors import ForebayError, InvalidArgument, StoreFull
from forebay.store.backends import Backend, Upload
from forebay.store.cache import LRUCache
from forebay.store.decoding import CannotOpen, find_decoding
from forebay.store.entries import Entry
from forebay.store.frames import (
    WriteProgress,
    build_footer,
    read_written,
    read_written_range,
    write_frames,
)
from forebay.store.handles import (
    MAX_NAME_LENGTH,
    Descriptor,
    check_handle_length,
    fit_descriptor,
    format_timestamp,
    is_valid_name,
    is_valid_time,
    new_handle,
)
from forebay.store.journal import Journal
from forebay.store.options import Options, check_ttl
from forebay.store.payload import (
    CHUNK_BYTES,
    Payload,
    choose_extension,
    detect_mime_type,
    get_row_format,
    is_compressed,
    is_json_mime_type,
    is_mostly_items,
    iter_chunks,
    needs_json_encoding,
    outline_first_items,
    rechunk,
    sanitize_mime_type,
    to_buffer,
)
from forebay.store.previews import MAX_PREVIEW_BYTES, PreviewSource, make_preview_source
from forebay.store.quota import Quota, QuotaExceeded
from forebay.store.redaction import apply_redactions
from forebay.store.sweep import Sweeper
from forebay.store.threads import fork_safe_lock

__all__ = ["PayloadWriter", "PutRequest"]

_log = logging.getLogger("forebay")

_MAX_DESCRIPTOR_BYTES = 4096 - 512
"""Budget of a descriptor as text in a JSON-RPC message: 4,096 bytes, less 512 for the rest of the message."""

_MAX_OUTLINE_BYTES = 512

_SAMPLE_BYTES = 16 * 1024
"""Bytes of first items that a preview is made from."""

_MAX_EVICTION_ATTEMPTS = 10
"""Maximum number of times that payloads are evicted for a new one before it is refused."""

_MAX_WATCHED_PRINCIPALS = 4096
"""Maximum number of principals whose stored bytes are counted for the warning at `warn_bytes`."""

_SNIFFED_BYTES = 16384
"""Bytes at the start of a payload from which its MIME type is detected."""


_GZIP_MIME_TYPES = {"application/gzip", "application/x-gzip"}
_OPAQUE_MIME_TYPES = {*_GZIP_MIME_TYPES, "application/octet-stream"}
"""MIME types that say nothing of the text in a gzip payload."""


@dataclasses.dataclass(slots=True, kw_only=True)
class PutRequest:
    """The parameters of `Store.put`, except the payload."""

    mime_type: str | None = None
    source_tool: str | None = None
    principal: str | None = None
    ttl: float | None = None
    progress: Callable[[int], None] | None = None
    handle_length: int | None = None

    def check(self) -> None:
        """Raise `InvalidArgument` for an invalid parameter."""
        if self.handle_length is not None:
            check_handle_length(self.handle_length)
        if self.ttl is not None:
            check_ttl(self.ttl)
        for name, value in (("source_tool", self.source_tool), ("principal", self.principal)):
            if value is not None and not is_valid_name(value):
                raise InvalidArgument(f"{name} is at most {MAX_NAME_LENGTH} characters of text, not {value!r:.64}")
        if self.mime_type is not None and not isinstance(self.mime_type, str):
            raise InvalidArgument(f"mime_type must be a text, such as text/plain, not {short_repr(self.mime_type)}")
        if self.progress is not None and not callable(self.progress):
            raise InvalidArgument(f"progress must be a function of the bytes done, not {short_repr(self.progress)}")


class PayloadWriter:
    """Writer of payloads to a backend, within the quota."""

    def __init__(
        self,
        backend: Backend,
        quota: Quota,
        journal: Journal,
        options: Options,
        sweeper: Sweeper,
    ) -> None:
        self._backend = backend
        self._quota = quota
        self._journal = journal
        self._options = options
        self._redactions = options.redactions
        self._sweeper = sweeper
        self._lock = fork_safe_lock()
        self._pool: ThreadPoolExecutor | None = None
        self._pool_pid = 0
        self._stored_bytes: LRUCache[str | None, int] = LRUCache(_MAX_WATCHED_PRINCIPALS)

    def put(self, payload: Payload, request: PutRequest) -> Descriptor:
        """Store a payload, record that in the journal, and return its descriptor."""
        request.check()
        try:
            descriptor = self._store(payload, request, self._backend.create, self._commit)
        except ForebayError as error:
            self._journal.record(
                "store_failed", principal=request.principal, source_tool=request.source_tool, code=error.code
            )
            raise
        self._journal.record(
            "output_handle_created",
            principal=request.principal,
            handle=descriptor.output_handle,
            source_tool=request.source_tool,
            size_bytes=descriptor.size_bytes,
            mime_type=descriptor.mime_type,
            shown_bytes=len(descriptor.to_json()),
        )
        self._warn_if_large(request.principal, descriptor.size_bytes)
        return descriptor

    def describe(self, payload: Payload, request: PutRequest) -> Descriptor:
        """Return the descriptor that a small payload would get, with a handle that nothing is stored under."""
        request.check()
        return self._store(payload, request, create=lambda _: _MemoryUpload(), commit=lambda *_: None)

    def _store(
        self,
        payload: Payload,
        request: PutRequest,
        create: Callable[[str], Upload],
        commit: Callable[[str, Upload, Entry, str], None],
    ) -> Descriptor:
        mime_type = sanitize_mime_type(request.mime_type)
        if mime_type is None and needs_json_encoding(payload):
            mime_type = "application/json"
        if self._redactions:
            payload = apply_redactions(payload, self._redactions, mime_type)
            # If a gzip payload has secrets, its redacted text is stored instead.
            if mime_type in _GZIP_MIME_TYPES and not is_compressed(payload[:16]):
                mime_type = None
        data = to_buffer(payload)
        ttl = self._options.ttl if request.ttl is None else request.ttl
        handle = new_handle(request.handle_length or self._options.handle_length, ttl)

        def on_progress(progress: WriteProgress) -> None:
            self._check_quota(request.principal, progress.stored_bytes)
            if request.progress is not None:
                request.progress(progress.payload_bytes)

        upload = create(handle)
        try:
            chunks = iter_chunks(payload if data is None else data)
            encoded_chunks: list[Buffer] = []
            if data is None and isinstance(payload, str):
                # Keep the encoded text, which is outlined as a whole, as bytes are.
                chunks = _collect(chunks, encoded_chunks)
            original = content = self._write(chunks, mime_type, upload, on_progress)
            if encoded_chunks:
                data = b"".join(encoded_chunks)
            if original.parts and request.progress is not None:
                request.progress(original.progress.payload_bytes)
            frames, stored_bytes = original.progress.frames, original.progress.stored_bytes
            decoding_meta: dict[str, Any] = {}
            if original.findings.nature == "binary":
                content, decoding_meta = self._write_text(original, upload, mime_type, request.principal)
            if content is not original:
                frames, stored_bytes = frames + content.progress.frames, stored_bytes + content.progress.stored_bytes
                mime_type, data = _get_text_mime_type(mime_type), None
            written, findings, parts = content
            items = findings.items if is_mostly_items(findings.items, written.payload_bytes) else None
            base = 0 if content is original else original.progress.stored_bytes
            source = make_preview_source(
                functools.partial(_read_written, data, written, upload, base),
                written.payload_bytes,
                findings.nature,
                items,
                # The outline of a stream is made from the same sample.
                sample_bytes=_SAMPLE_BYTES if data is not None else CHUNK_BYTES,
            )
            created_at, expires_at = self._get_lifetime(ttl)
            meta: dict[str, Any] = {
                "handle": handle,
                "mime_type": _resolve_mime_type(mime_type, findings.nature, written.first_chunk),
                "size_bytes": original.progress.payload_bytes,
                "nature": findings.nature,
                "item_count": None if items is None else len(items),
                "items_path": None if items is None else items.path,
                "outline": _make_outline(data, written, findings, source),
                "created_at": created_at,
                "expires_at": expires_at,
                "principal": request.principal,
                "source_tool": request.source_tool,
                **decoding_meta,
            }
            footer = build_footer(meta, findings.items, findings.lines, frames)
            upload.write([*parts, footer])
            extension = choose_extension(meta["mime_type"], findings.nature, meta.get("decoded_from", ""))
            stored_bytes += len(footer)
            entry = Entry(created_at, expires_at, stored_bytes, request.principal)
            commit(handle, upload, entry, extension)
        finally:
            upload.abort()
        lines = findings.lines if findings.nature == "text" else None
        return _make_descriptor(meta, lines, source)

    def _write(
        self,
        chunks: Iterator[Buffer],
        mime_type: str | None,
        upload: Upload,
        on_progress: Callable[[WriteProgress], None],
        *,
        is_text: bool = False,
    ) -> "_Content":
        return _Content(
            *write_frames(
                chunks,
                Survey(is_json_mime_type(mime_type), get_row_format(mime_type)),
                upload,
                compress=self._options.compression == "zstd",
                get_pool=self._get_pool,
                on_progress=on_progress,
                is_text=is_text,
            )
        )

    def _write_text(
        self,
        original: "_Content",
        upload: Upload,
        mime_type: str | None,
        principal: str | None,
    ) -> "tuple[_Content, dict[str, Any]]":
        """Decode a payload that is not UTF-8, and write its text after it. Return the text and its metadata.

        If the payload has no text, return the original.
        """
        read_chunks = functools.partial(_read_again, original, upload)
        try:
            decoding = find_decoding(read_chunks, mime_type)
        except CannotOpen as error:
            return original, {"note": f"not opened: this gzip payload {error}"}
        if decoding is None:
            return original, {}
        if original.parts:
            upload.write(original.parts)
        mime_type = _get_text_mime_type(mime_type)
        text = self._write(
            rechunk(decoding.decode(read_chunks())),
            mime_type,
            upload,
            lambda progress: self._check_quota(principal, original.progress.stored_bytes + progress.stored_bytes),
            is_text=True,
        )
        return text, {"decoded_from": decoding.name, "text_bytes": text.progress.payload_bytes}

    def _get_lifetime(self, ttl: float) -> tuple[float, float]:
        """Return the times at which a payload is created and expires."""
        created_at = self._options.clock()
        expires_at = created_at + ttl
        if not is_valid_time(expires_at):
            raise InvalidArgument("this payload would expire after the year 9999; pass a shorter ttl")
        return created_at, expires_at

    def _check_quota(self, principal: str | None, size: int) -> None:
        """Raise `StoreFull` early if a payload will not fit. Other payloads are evicted only after it is written."""
        if self._options.on_full == "evict":
            shortage = self._quota.explain_oversize(principal, size)
        else:
            shortage = self._quota.explain_shortage(principal, size)
            if shortage is not None:
                self._sweeper.make_space(principal, size)
                shortage = self._quota.explain_shortage(principal, size)
        if shortage is not None:
            raise StoreFull(shortage)

    def _commit(self, handle: str, upload: Upload, entry: Entry, extension: str) -> None:
        self._commit_within_quota(upload, entry, extension)
        self._sweeper.note_stored(handle, entry)

    def _commit_within_quota(self, upload: Upload, entry: Entry, extension: str) -> None:
        attempts = _MAX_EVICTION_ATTEMPTS if self._options.on_full == "evict" else 1
        while True:
            try:
                self._quota.commit(upload, entry, extension)
                return
            except QuotaExceeded:
                if attempts == 0:
                    raise
            # Another writer may take the freed space first; the next attempt frees more.
            self._sweeper.make_space(entry.principal, entry.size)
            attempts -= 1

    def _warn_if_large(self, principal: str | None, size: int) -> None:
        """Log a warning when a principal's total passes `warn_bytes`."""
        with self._lock:
            before = self._stored_bytes.get(principal, 0)
            after = self._stored_bytes[principal] = before + size
        if before <= self._options.warn_bytes < after:
            owner = "this process" if principal is None else f"principal {principal!r}"
            _log.warning(
                "forebay: %s has stored %s bytes, more than warn_bytes=%s",
                owner,
                f"{after:,}",
                f"{self._options.warn_bytes:,}",
            )
            self._journal.record("store_warning", principal=principal, size_bytes=after)

    def _get_pool(self) -> ThreadPoolExecutor:
        with self._lock:
            # A forked child does not inherit the threads of a pool.
            if self._pool is None or self._pool_pid != os.getpid():
                self._pool_pid = os.getpid()
                self._pool = ThreadPoolExecutor(min(4, os.cpu_count() or 1), "forebay-frames")
            return self._pool

    def close(self) -> None:
        """End the threads that build frames."""
        with self._lock:
            if self._pool is not None and self._pool_pid == os.getpid():
                self._pool.shutdown()


class _MemoryUpload:
    """An upload of a payload that is only described, and so never committed."""

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, parts: Sequence[Buffer]) -> None:
        for part in parts:
            self._data += part

    def read(self, start: int, length: int) -> bytes:
        return bytes(self._data[start : start + length])

    def commit(self, extension: str, limits: Mapping[str, int | None], entry: Entry) -> None:
        raise NotImplementedError

    def abort(self) -> None:
        self._data.clear()


class _Content(NamedTuple):
    """What `write_frames` returns for a payload, or for its text."""

    progress: WriteProgress
    findings: Findings
    parts: list[Buffer]
    """Parts of a short payload, which are written later."""


def _read_again(original: _Content, upload: Upload) -> Iterator[Buffer]:
    """Return the chunks of a payload that was just written, or is about to be."""
    progress = original.progress
    if original.parts or not progress.frames:
        return iter([progress.first_chunk] if progress.frames else [])
    return rechunk(read_written(progress.frames, upload))


def _get_text_mime_type(mime_type: str | None) -> str | None:
    """Return the MIME type of the text in a payload, or `None` to detect it."""
    return None if mime_type in _OPAQUE_MIME_TYPES else mime_type


def _collect(chunks: Iterator[Buffer], into: list[Buffer]) -> Iterator[Buffer]:
    for chunk in chunks:
        into.append(chunk)
        yield chunk


def _read_written(
    data: Buffer | None, progress: WriteProgress, upload: Upload, base: int, start: int, end: int
) -> Buffer:
    """Return a range of a payload: from memory, or from its frames, which begin at `base` in the upload."""
    if data is None and end <= len(memoryview(progress.first_chunk)):
        data = progress.first_chunk
    return read_written_range(progress, upload, start, end, base) if data is None else memoryview(data)[start:end]


def _make_descriptor(meta: dict[str, Any], lines: ItemIndex | None, source: PreviewSource | None) -> Descriptor:
    fields = {
        "output_handle": meta["handle"],
        "mime_type": meta["mime_type"],
        "size_bytes": meta["size_bytes"],
        "item_count": meta["item_count"],
        "expires_at": format_timestamp(meta["expires_at"]),
        "items_path": meta["items_path"],
        "outline": meta["outline"],
        "line_count": None if lines is None else len(lines),
        "decoded_from": meta.get("decoded_from"),
        "note": meta.get("note"),
        "preview_source": source,
    }
    return fit_descriptor(fields, _MAX_DESCRIPTOR_BYTES)


def _resolve_mime_type(mime_type: str | None, nature: str, first_chunk: Buffer) -> str:
    """Return the given MIME type, or the detected one if none is given or it wrongly claims JSON."""
    if mime_type is None or (is_json_mime_type(mime_type) and nature not in ("json", "ndjson")):
        return detect_mime_type(nature, memoryview(first_chunk)[:_SNIFFED_BYTES])
    return mime_type


def _make_outline(
    data: Buffer | None, progress: WriteProgress, findings: Findings, source: PreviewSource | None
) -> str | None:
    # A payload that fits into the preview needs no outline.
    if progress.payload_bytes <= MAX_PREVIEW_BYTES:
        return None
    if findings.nature not in ("json", "ndjson"):
        return outline_first_items(progress.first_chunk, findings.items, _MAX_OUTLINE_BYTES)
    if data is None and progress.payload_bytes == len(memoryview(progress.first_chunk)):
        data = progress.first_chunk
    if data is not None:
        return outline(data, _MAX_OUTLINE_BYTES, items=findings.items)
    shape = None if source is None else source.outline(findings.items, _MAX_OUTLINE_BYTES)
    return shape or outline_first_items(progress.first_chunk, findings.items, _MAX_OUTLINE_BYTES)
