"""Requests to a bucket: bounded in time, and repeated after errors that may pass."""

import contextlib
import hashlib
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from forebay.errors import StoreUnavailable
from forebay.store.address import RemoteAddress
from forebay.store.backends.object_errors import Absent, Conflict, EmptyObject, OutcomeUnknown, Temporary, translate
from forebay.store.backends.object_settings import make_settings
from forebay.store.threads import start_in_thread

__all__ = ["COMPARED_BYTES", "CREATE", "ObjectClient", "ObjectState", "Version"]

if TYPE_CHECKING:
    from concurrent.futures import Future

_CONNECT_TIMEOUT = timedelta(seconds=2)
_READ_TIMEOUT = timedelta(seconds=2.5)
"""How long a short request may wait for its answer, and a download for its next bytes."""

_SHORT_REQUEST_TIMEOUT = timedelta(seconds=120)
_LONG_REQUEST_TIMEOUT = timedelta(seconds=600)

_RETRY_SECONDS = 3.0
"""How long after the first attempt another one may begin. With `_READ_TIMEOUT`, a call fails within 6 seconds."""

_RETRY_DELAYS = (0.05, 0.2, 0.5)
_LONG_RETRIES: Any = {"max_retries": 4, "retry_timeout": timedelta(seconds=8)}

_PROBE_SECONDS = 1.0
"""How often the caller of a long request checks whether the server still answers."""

_MAX_SHORT_BYTES = 256 << 10
"""Maximum size of an object that is written by a short request."""

_LIST_PAGE_OBJECTS = 1000
_MAX_REPLACE_ATTEMPTS = 5
_MAX_READ_ATTEMPTS = 50

COMPARED_BYTES = 64 << 10
"""How many bytes at the end of an object are compared, to find out whether it is the one that was written."""

_T = TypeVar("_T")

_first_pid = 0
"""The process that made the first request. The library's threads do not exist in a child forked from it."""


class Version(NamedTuple):
    """What identifies a version of an object to the server."""

    etag: str | None
    generation: str | None


class ObjectState(NamedTuple):
    """What the server knows of an object without its content."""

    size: int
    modified_at: float
    version: Version


CREATE: Final = Version(None, None)
"""The condition that an object does not exist."""


class ObjectClient:
    """The objects below a prefix of a bucket. The methods may be called from any thread."""

    def __init__(self, address: RemoteAddress) -> None:
        settings = make_settings(address)
        self.bucket = settings.bucket
        self._address = str(address)
        # Before the first use of the library.
        self._check_process()
        # Without retries by the library: a conditional write that was sent twice may conflict with itself.
        self._short = settings.open(
            {"connect_timeout": _CONNECT_TIMEOUT, "read_timeout": _READ_TIMEOUT, "timeout": _SHORT_REQUEST_TIMEOUT},
            {"max_retries": 0, "retry_timeout": timedelta(seconds=1)},
        )
        long_options = {"connect_timeout": _CONNECT_TIMEOUT, "timeout": _LONG_REQUEST_TIMEOUT}
        self._long = settings.open(long_options, {"max_retries": 0, "retry_timeout": timedelta(seconds=1)})
        self._multipart = settings.open(long_options, _LONG_RETRIES)
        self._has_suffixes = settings.has_suffixes
        self._has_hash_tags = True
        import obstore

        self._library = obstore

    def _check_process(self) -> None:
        global _first_pid
        _first_pid = _first_pid or os.getpid()
        if os.getpid() != _first_pid:
            raise StoreUnavailable(
                f"{self._address} was used before this process was forked, and cannot be used in the child: start "
                "worker processes with 'spawn' or 'forkserver', or open a store only after the fork"
            )

    def read_tail(self, key: str, length: int) -> tuple[ObjectState, bytes] | None:
        """Return the state of an object and its last bytes, or `None` if it does not exist."""

        def read() -> tuple[ObjectState, bytes]:
            if not self._has_suffixes:
                state = _to_state(self._library.head(self._short, key))
                start = max(0, state.size - length)
                return state, self._get_range(key, state, start, state.size) if state.size else b""
            result = self._library.get(self._short, key, options={"range": {"suffix": length}})
            return _to_state(result.meta), bytes(result.bytes())

        for _ in range(_MAX_READ_ATTEMPTS):
            try:
                return self._repeat(read)
            except Absent:
                return None
            except EmptyObject:
                state = self.head(key)
                return None if state is None else (state, b"")
            except Conflict:
                # The object was replaced between the two requests: read the new one.
                continue
        raise self._make_contention_error(key)

    def _make_contention_error(self, key: str) -> StoreUnavailable:
        return StoreUnavailable(f"the store {self._address} has too many writers of {key!r}; call again")

    def read_all(self, key: str) -> tuple[ObjectState, bytes] | None:
        """Return the state and the content of an object, or `None` if it does not exist.

        Some servers return the content of one version with the tag of another, if the object is replaced meanwhile.
        A tag that is not the hash of the content is believed only if a second read returns the same.
        """

        def read() -> tuple[ObjectState, bytes]:
            result = self._library.get(self._short, key)
            return _to_state(result.meta), bytes(result.bytes())

        found: tuple[ObjectState, bytes] | None = None
        for _ in range(_MAX_READ_ATTEMPTS):
            before = found
            try:
                found = self._repeat(read)
            except Absent:
                return None
            digest = hashlib.md5(found[1], usedforsecurity=False).hexdigest()
            if not self._has_hash_tags or digest in (found[0].version.etag or ""):
                return found
            if found == before:
                # Encrypted objects, for example, have other tags.
                self._has_hash_tags = False
                return found
        raise self._make_contention_error(key)

    def read_range(self, key: str, state: ObjectState, start: int, end: int) -> bytes | None:
        """Return a range of an object, or `None` if this version of it is gone."""
        try:
            return self._repeat(lambda: self._get_range(key, state, start, end))
        except (Absent, EmptyObject, Conflict):
            return None

    def _get_range(self, key: str, state: ObjectState, start: int, end: int) -> bytes:
        options: Any = {"range": (start, end), "if_match": state.version.etag}
        return bytes(self._library.get(self._short, key, options=options).bytes())

    def head(self, key: str) -> ObjectState | None:
        """Return the state of an object, or `None` if it does not exist.

        Some servers mix the states of two versions, if the object is replaced meanwhile.
        """
        try:
            return self._repeat(lambda: _to_state(self._library.head(self._short, key)))
        except Absent:
            return None

    def put(self, key: str, parts: Sequence[bytes], condition: Version) -> Version:
        """Write an object and return its version. Raises `Conflict` if the object there does not match the condition.

        Raises `OutcomeUnknown` if the write may have happened or may still happen.
        """
        fields = {"e_tag": condition.etag, "version": condition.generation}
        mode: Any = {name: value for name, value in fields.items() if value is not None} or "create"
        size = sum(map(len, parts))
        is_short = size <= _MAX_SHORT_BYTES
        store = self._short if is_short else self._long

        def put() -> Version:
            result = self._library.put(store, key, [*parts] or b"", mode=mode, use_multipart=False)
            return Version(result["e_tag"], result["version"])

        was_sent = False

        def note_sent(error: Temporary) -> None:
            nonlocal was_sent
            was_sent = was_sent or error.was_sent

        future = None
        try:
            if is_short:
                return self._repeat(put, note_sent)
            future = start_in_thread(lambda: self._repeat(put, note_sent), daemon=True)
            return self.wait(future)
        except Conflict:
            # An attempt whose answer was lost may have written the object that the write conflicts with.
            written = self.find_written(key, size, parts) if was_sent else None
            if written is None:
                raise
            return written.version
        except Absent:
            raise Conflict from None
        except StoreUnavailable as error:
            is_under_way = future is not None and not future.done()
            raise OutcomeUnknown(str(error)) if was_sent or is_under_way else error from None

    def replace(self, key: str, parts: Sequence[bytes], version: Version | None) -> Version:
        """Write an object that only this process writes; `version` is the last one that it wrote.

        The write is conditional, because otherwise a delayed earlier request could bring back older content.
        """
        condition = version or CREATE
        for _ in range(_MAX_REPLACE_ATTEMPTS):
            try:
                return self.put(key, parts, condition)
            except Conflict:
                state = self.head(key)
                condition = CREATE if state is None else state.version
        raise StoreUnavailable(f"the store {self._address} has other writers of {key!r}; call again")

    def find_written(self, key: str, size: int, parts: Sequence[bytes]) -> ObjectState | None:
        """Return the state of an object if its size and its end are those of the given parts, else `None`."""
        length = min(size, COMPARED_BYTES)
        end = b""
        for part in reversed(parts):
            if len(end) >= length:
                break
            end = part + end
        found = self.read_tail(key, max(1, length))
        if found is None:
            return None
        state, tail = found
        return state if state.size == size and tail == end[len(end) - length :] else None

    def put_stream(self, key: str, chunks: Iterator[bytes], *, chunk_bytes: int, max_in_flight: int) -> Version:
        """Write an object of any size in parts, which are removed if `chunks` raises."""
        self._check_process()
        try:
            result = self._library.put(
                self._multipart,
                key,
                chunks,
                use_multipart=True,
                chunk_size=chunk_bytes,
                max_concurrency=max_in_flight,
            )
        except Exception as error:
            failure = translate(error, self._address, self.bucket)
            if isinstance(failure, Temporary | Absent | Conflict):
                failure = StoreUnavailable(str(failure) or f"the store {self._address} lost an upload; call again")
            raise failure from None
        return Version(result["e_tag"], result["version"])

    def wait(self, future: "Future[_T]") -> _T:
        """Wait for a long request as long as the server answers short ones."""
        while True:
            try:
                return future.result(_PROBE_SECONDS)
            except TimeoutError:
                if future.done():
                    return future.result()
                # The key does not matter: this raises if the server does not answer.
                self.head("accounts")

    def delete(self, key: str) -> None:
        """Delete an object, if it exists."""
        with contextlib.suppress(Absent):
            self._repeat(lambda: self._library.delete(self._short, key))

    def list(self, prefix: str) -> Iterator[tuple[str, ObjectState]]:
        """Iterate over the objects below a folder in the order of their keys, in bounded memory."""
        last: str | None = None

        def begin() -> tuple[Iterator[Any], Any]:
            pages = iter(self._library.list(self._short, prefix, offset=last, chunk_size=_LIST_PAGE_OBJECTS))
            return pages, next(pages, None)

        while True:
            pages, page = self._repeat(begin)
            while page is not None:
                for meta in page:
                    last = meta["path"]
                    yield meta["path"], _to_state(meta)
                try:
                    page = next(pages, None)
                except Exception as error:
                    failure = translate(error, self._address, self.bucket)
                    if not isinstance(failure, Temporary):
                        raise failure from None
                    # Begin again after the last key.
                    break
            else:
                return

    def _repeat(self, request: Callable[[], _T], on_temporary: Callable[[Temporary], None] | None = None) -> _T:
        """Make a request, and again after an error that may pass, until it takes too long."""
        self._check_process()
        deadline = time.monotonic() + _RETRY_SECONDS
        for delay in itertools.chain(_RETRY_DELAYS, itertools.repeat(1.0)):
            try:
                return request()
            except Exception as error:
                failure = translate(error, self._address, self.bucket)
                if not isinstance(failure, Temporary):
                    raise failure from None
                if on_temporary is not None:
                    on_temporary(failure)
                if time.monotonic() + delay >= deadline:
                    raise StoreUnavailable(str(failure)) from None
            time.sleep(delay)
        raise AssertionError


def _to_state(meta: Any) -> ObjectState:
    return ObjectState(meta["size"], meta["last_modified"].timestamp(), Version(meta["e_tag"], meta["version"]))
