"""Copying the payloads of one store to another: the same bytes under the same handles."""

import contextlib
import dataclasses
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal

from forebay.errors import ForebayError, HandleCorrupt, HandleNotFound, StoreFull, StoreUnavailable
from forebay.store.backends import Backend, Blob, ObjectTooLarge, Upload
from forebay.store.catalog import Catalog
from forebay.store.entries import Entry
from forebay.store.frames import Footer, read_footer, read_verified
from forebay.store.handles import LIFETIMES, get_lifetime_class, is_sidecar_handle
from forebay.store.payload import CHUNK_BYTES, choose_extension
from forebay.store.quota import Quota, QuotaExceeded

__all__ = ["CannotMirror", "Mirror", "MirrorReport"]

_THREADS = 4
_MAX_WAITING = 2 * _THREADS
"""Maximum number of payloads that were listed and are not copied yet."""


class CannotMirror(ForebayError):
    """A payload that is not damaged, but cannot be copied to this store."""

    code = "cannot_mirror"


@dataclasses.dataclass(slots=True)
class MirrorReport:
    """Numbers of payloads, and bytes."""

    copied: int = 0
    skipped: int = 0
    """Payloads that the target had already."""
    expired: int = 0
    failed: int = 0
    bytes: int = 0
    """Written bytes, as they are stored. While the mirror runs, those of unfinished payloads are included."""


class _Stopped(Exception):
    """Ends the copy of a payload because the whole run was stopped."""


class Mirror:
    """A run that copies the payloads that the target lacks. It can be repeated after a kill."""

    def __init__(
        self,
        source: Backend,
        source_catalog: Catalog,
        target: Backend,
        target_quota: Quota,
        *,
        clock: Callable[[], float],
        sweep: Callable[[], object],
        delete: Callable[[str], None],
        progress: Callable[[MirrorReport], None] | None,
        on_failure: Callable[[str, ForebayError], None] | None,
    ) -> None:
        """`sweep` and `delete` are those of the target."""
        self._source = source
        self._catalog = source_catalog
        self._target = target
        self._quota = target_quota
        self._clock = clock
        self._sweep = sweep
        self._delete = delete
        self._progress = progress
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._report = MirrorReport()
        self._in_flight: set[str] = set()
        self._error: BaseException | None = None
        self._is_stopped = False
        self._sweep_lock = threading.Lock()
        self._is_swept = False

    def run(self) -> MirrorReport:
        """Copy the payloads. Raises `StoreFull` or `StoreUnavailable`; what was copied until then stays."""
        waiting: deque[Future[None]] = deque()
        with ThreadPoolExecutor(_THREADS, "forebay-mirror") as pool:
            try:
                for handle, entry in self._source.list():
                    if self._is_stopped:
                        break
                    if is_sidecar_handle(handle):
                        continue
                    if entry is not None and entry.expires_at <= self._clock():
                        self._count("expired")
                        continue
                    waiting.append(pool.submit(self._mirror, handle))
                    if len(waiting) >= _MAX_WAITING:
                        waiting.popleft().result()
                for future in waiting:
                    future.result()
            finally:
                # After an error, such as Ctrl-C, unfinished copies end early.
                self._is_stopped = True
                pool.shutdown(wait=False, cancel_futures=True)
        if self._error is not None:
            raise self._error
        return self._report

    def _mirror(self, handle: str) -> None:
        """Mirror a payload, unless the run was stopped."""
        with self._lock:
            # A folder that changes may list a name twice.
            if self._is_stopped or handle in self._in_flight:
                return
            self._in_flight.add(handle)
        try:
            self._mirror_payload(handle)
        except _Stopped:
            pass
        except (HandleCorrupt, CannotMirror, ObjectTooLarge) as error:
            self._fail(handle, error)
        except BaseException as error:
            with self._lock:
                self._error = self._error or error
                self._is_stopped = True
        finally:
            with self._lock:
                self._in_flight.discard(handle)

    def _fail(self, handle: str, error: ForebayError) -> None:
        with self._lock:
            if self._on_failure is not None:
                self._on_failure(handle, error)
        self._count("failed")

    def _count(self, name: str, number: int = 1) -> None:
        with self._lock:
            setattr(self._report, name, getattr(self._report, name) + number)
            if self._progress is not None:
                self._progress(dataclasses.replace(self._report))

    def _mirror_payload(self, handle: str) -> None:
        # A payload that is deleted meanwhile is not counted, like one that was deleted before.
        try:
            opened = self._source.open(handle)
        except KeyError:
            return
        with contextlib.suppress(HandleNotFound), opened as blob:
            footer = self._catalog.read_footer(handle, blob)
            entry = Entry(footer.meta["created_at"], footer.meta["expires_at"], blob.size, footer.meta["principal"])
            if entry.expires_at <= self._clock():
                self._count("expired")
                return
            found = self._compare(handle, blob, footer)
            if found == "same":
                self._count("skipped")
                return
            self._check_lifetime(handle, entry)
            self._ensure_room(entry)
            self._copy(handle, blob, footer, entry, is_replacing=found == "damaged")
            self._count("copied")

    def _compare(self, handle: str, blob: Blob, footer: Footer) -> Literal["same", "missing", "damaged"]:
        """Return how the target's object compares to the one in the source.

        The footer has the handle, the time of creation and the checksum of every frame, so equal footers are enough.
        """
        footer_bytes = blob.read(footer.start, blob.size - footer.start)
        try:
            with self._target.open(handle) as other:
                if other.size == blob.size and other.read(footer.start, len(footer_bytes)) == footer_bytes:
                    return "same" if self._target.is_committed(handle, other.version) else "missing"
                read_footer(other)
        except (KeyError, HandleNotFound):
            return "missing"
        except HandleCorrupt:
            return "damaged"
        raise CannotMirror(
            "the target has another payload under this handle, which is not replaced; remove one of them"
        )

    def _check_lifetime(self, handle: str, entry: Entry) -> None:
        lifetime = LIFETIMES[get_lifetime_class(handle)]
        remaining = entry.expires_at - self._clock()
        if self._target.expires_by_handle and lifetime is not None and remaining > lifetime:
            raise CannotMirror(
                f"a bucket would remove this payload too early: its handle is of the class that lives {lifetime:,} "
                f"seconds at most, and it expires in {remaining:,.0f}; put the payload again, or mirror it later"
            )

    def _ensure_room(self, entry: Entry) -> None:
        """Raise `StoreFull` before anything is written, if the payload does not fit."""
        oversize = self._quota.explain_oversize(entry.principal, entry.size)
        if oversize is not None:
            raise ObjectTooLarge(oversize)
        if self._quota.explain_shortage(entry.principal, entry.size) is not None:
            self._sweep_once()
            shortage = self._quota.explain_shortage(entry.principal, entry.size)
            if shortage is not None:
                raise StoreFull(shortage)

    def _sweep_once(self) -> None:
        """Sweep the target, once: a killed run may have left unfinished objects, and accounts that are too high."""
        with self._sweep_lock:
            if not self._is_swept:
                self._sweep()
                self._is_swept = True

    def _copy(self, handle: str, blob: Blob, footer: Footer, entry: Entry, *, is_replacing: bool) -> None:
        upload = self._target.create(handle)
        written = 0
        try:
            parts: list[bytes] = []
            for part in read_verified(blob, footer):
                if self._is_stopped:
                    raise _Stopped
                parts.append(part)
                if sum(map(len, parts)) >= CHUNK_BYTES:
                    written += self._write(upload, parts)
                    parts = []
            written += self._write(upload, parts)
            if is_replacing:
                with contextlib.suppress(HandleNotFound):
                    self._delete(handle)
            self._commit(handle, blob, footer, upload, entry)
        except BaseException:
            self._count("bytes", -written)
            raise
        finally:
            upload.abort()

    def _write(self, upload: Upload, parts: list[bytes]) -> int:
        upload.write(parts)
        size = sum(map(len, parts))
        self._count("bytes", size)
        return size

    def _commit(self, handle: str, blob: Blob, footer: Footer, upload: Upload, entry: Entry) -> None:
        meta = footer.meta
        extension = choose_extension(meta["mime_type"], meta["nature"], meta.get("decoded_from", ""))
        try:
            try:
                self._quota.commit(upload, entry, extension)
            except QuotaExceeded:
                self._sweep_once()
                self._quota.commit(upload, entry, extension)
        except StoreUnavailable:
            # The answer was lost, or another mirror was faster.
            if self._compare(handle, blob, footer) != "same":
                raise
