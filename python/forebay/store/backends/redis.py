"""Objects as strings on Redis or Valkey: a server, a cluster, or a server that Sentinel watches.

The string of an object begins with a header that is unique to the upload. To `zstd` it is a frame to skip.
"""

import contextlib
import secrets
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from typing_extensions import Buffer

from forebay.errors import ForebayError, InvalidArgument, StoreUnavailable
from forebay.store.address import RemoteAddress
from forebay.store.backends import AccountFull, Listed
from forebay.store.backends.redis_accounts import Record, RedisAccounts, RedisRecount, read_index
from forebay.store.backends.redis_address import parse_redis_address
from forebay.store.backends.redis_client import MAX_STRING_BYTES, RedisClient, make_too_long_error
from forebay.store.backends.redis_counts import RedisCountTable
from forebay.store.backends.redis_keys import RedisKeys
from forebay.store.backends.redis_leases import UPLOAD_SECONDS, RedisLeases
from forebay.store.backends.redis_log import RedisLog
from forebay.store.backends.redis_scripts import (
    DELETE,
    DELETE_OBJECT,
    END_UPLOAD,
    FORGET_RECORDS,
    MOVE,
    PUBLISH,
    RESERVE,
    SETTLE,
)
from forebay.store.backends.remote_blob import RemoteBlob
from forebay.store.catalog import make_not_found_error
from forebay.store.entries import Entry
from forebay.store.handles import LIFETIMES, get_lifetime_class

__all__ = ["RedisBackend"]

_SKIPPABLE_MAGIC = 0x184D2A50
_HEADER = struct.Struct("<II16sd")
"""A skippable frame of zstd: magic number, length of the rest, id of the upload, time of the upload."""

_ID = slice(8, 24)
"""The position of the upload's id in the header."""

_TAIL_BYTES = 128 << 10
"""How much of the end of an object is read when it is opened."""

_WRITE_BYTES = 1 << 20
"""How much is written in one request. More would not be faster, and other clients of the server wait for it."""

_GRACE_SECONDS = 600
"""How long Redis keeps expired objects, so that a sweep can record their expiry. Readers check the exact time."""

_MAX_UPLOAD_SECONDS = 366 * 24 * 3600
"""How long an upload stays at most if no sweep removes it."""

_MAX_OPEN_ATTEMPTS = 5


class RedisBackend:
    """Objects under the keys of `RedisKeys`. Opening fails if the server cannot be reached, or may evict any key."""

    def __init__(self, address: RemoteAddress, *, clock: Callable[[], float]) -> None:
        parsed = parse_redis_address(address)
        self.clock = clock
        self.client = RedisClient(parsed)
        self.keys = RedisKeys(parsed.prefix)
        self.leases = RedisLeases(self.client, self.keys)
        self.accounts = RedisAccounts(self.client, self.keys)
        self.log = RedisLog(self.client, self.keys)
        self.call_counts = RedisCountTable(self.client, self.keys)
        try:
            self.accounts.ensure_counted()
            _check_eviction_policy(self.client)
        except BaseException:
            self.close()
            raise

    folder = None
    expires_by_handle = False

    def check(self) -> None:
        self.client.call("PING")

    def create(self, handle: str) -> "RedisUpload":
        return RedisUpload(self, handle)

    def open(self, handle: str, version: object = None) -> RemoteBlob:
        key = self.keys.get_object(handle)
        if isinstance(version, tuple):
            header, size, tail = *version, b""
        else:
            header, size, tail = self._read_tail(handle, key)
        *_, modified_at = _HEADER.unpack(header)

        def fetch(start: int, length: int) -> bytes:
            first = _HEADER.size + start
            # The header is read after the range: if it is unchanged, the range is of the same object.
            data, found = self.client.pipeline([("GETRANGE", key, first, first + length - 1), _get_header(key)])
            if found != header or len(data) != length:
                raise make_not_found_error(handle)
            return bytes(data)

        def check() -> None:
            if self.client.call(*_get_header(key)) != header:
                raise make_not_found_error(handle)

        return RemoteBlob(fetch, check, size=size, modified_at=modified_at, version=(header, size), tail=tail)

    def _read_tail(self, handle: str, key: str) -> tuple[bytes, int, bytes]:
        """Return the header, the size and the last bytes of an object, in one request."""
        commands = [_get_header(key), ("STRLEN", key), ("GETRANGE", key, -_TAIL_BYTES, -1), _get_header(key)]
        for _ in range(_MAX_OPEN_ATTEMPTS):
            header, length, tail, header_after = self.client.pipeline(commands)
            if len(header) < _HEADER.size:
                raise KeyError(handle)
            # They differ if the object was replaced meanwhile.
            if header == header_after:
                size = length - _HEADER.size
                return header, size, tail[max(0, len(tail) - size) :]
        raise KeyError(handle)

    def is_committed(self, handle: str, version: object) -> bool:
        if not self.client.is_cluster or not isinstance(version, tuple):
            return True
        # The object and its record in the index are on different nodes, so the record may be missing.
        header, _ = version
        record = f"{handle}:{header[_ID].hex()}"
        return bool(self.client.call("ZRANGEBYLEX", self.keys.index, f"[{record}:", f"({record};", "LIMIT", 0, 1))

    def list(self) -> Iterator[Listed]:
        for records in read_index(self.client, self.keys):
            found = self.client.pipeline([("EXISTS", self.keys.get_object(record.handle)) for record in records])
            now = self.clock()
            evicted = []
            for record, exists in zip(records, found, strict=True):
                if exists or record.expires_at <= now:
                    yield Listed(record.handle, record.entry)
                else:
                    evicted.append(record.text)
            if evicted:
                self.client.run(FORGET_RECORDS, [self.keys.index, self.keys.usage], evicted)

    def delete(self, handle: str, size: int, accounts: Collection[str]) -> bool:  # noqa: ARG002 - the index has both
        key, keys = self.keys.get_object(handle), [self.keys.index, self.keys.usage]
        token = secrets.token_hex(8)
        if not self.client.is_cluster:
            return bool(self.client.run(DELETE, [self.keys.get_once(token), *keys, key], [handle]))
        # Find the record first: later, it could be that of another object under the same handle. If this process is
        # killed before it removes the record, the next listing does that.
        records = self.client.call("ZRANGEBYLEX", self.keys.index, f"[{handle}:", f"({handle};")
        was_stored = self.client.run(DELETE_OBJECT, [self.keys.get_object_once(handle, token), key])
        if records:
            self.client.run(FORGET_RECORDS, keys, records)
        return bool(was_stored)

    def usage(self, accounts: Collection[str] | None = None) -> dict[str, int]:
        return self.accounts.read(accounts)

    def begin_recount(self) -> RedisRecount:
        return self.accounts.begin_recount()

    def remove_leftovers(self) -> int:
        """Remove the uploads of dead writers, and return their number."""
        seconds, microseconds = self.client.call("TIME")
        dead = self.client.call("ZRANGEBYSCORE", self.keys.uploads, "-inf", int(seconds) + int(microseconds) / 1e6)
        for member in dead:
            # The name of an upload, or the record of an object that was reserved in a cluster.
            handle, upload_id, *rest = member.decode().split(":", 2)
            self.client.call("UNLINK", self.keys.get_upload(handle, upload_id))
            if rest:
                self._remove_unsettled(handle, upload_id)
            self.client.run(END_UPLOAD, [self.keys.usage, self.keys.uploads], [member])
        return len(dead)

    def _remove_unsettled(self, handle: str, upload_id: str) -> None:
        """Remove an object whose writer was killed before it added the record to the index."""
        key = self.keys.get_object(handle)
        header = self.client.call(*_get_header(key))
        if header[_ID] == bytes.fromhex(upload_id):
            self.client.call("UNLINK", key)

    def lock(self, *, wait: bool) -> AbstractContextManager[bool]:
        return self.leases.lock(wait=wait)

    def close(self) -> None:
        self.log.close()
        self.leases.close()
        self.client.close()


def _check_eviction_policy(client: RedisClient) -> None:
    """Raise `InvalidArgument` if the server may evict the index and the accounts."""
    try:
        infos = client.call_everywhere("INFO", "memory")
    except StoreUnavailable:
        # The server has just answered another request, so this user may not be allowed to ask.
        return
    for info in infos:
        policy = info.get("maxmemory_policy", "noeviction")
        if policy.startswith("allkeys"):
            raise InvalidArgument(
                f"Redis at {client.address} has the maxmemory-policy {policy}, which evicts the store's index and "
                "accounts, too: set it to noeviction, or to volatile-ttl, which evicts what expires first"
            )


def _get_header(key: str) -> tuple[str, str, int, int]:
    """Return the command that reads the header of an object."""
    return "GETRANGE", key, 0, _HEADER.size - 1


class RedisUpload:
    """An object being written: a string under a key of its own, which the commit renames."""

    def __init__(self, backend: RedisBackend, handle: str) -> None:
        self._backend = backend
        self._handle = handle
        self._id = secrets.token_hex(16)
        self._name = f"{handle}:{self._id}"
        self._key = backend.keys.get_upload(handle, self._id)
        self._header = _HEADER.pack(_SKIPPABLE_MAGIC, _HEADER.size - 8, bytes.fromhex(self._id), backend.clock())
        # A sweep removes the upload of a killed writer. Without a sweep, it expires when its payload would have expired
        # at the latest: if it expired sooner, `volatile-ttl` would evict it before any payload.
        lifetime = LIFETIMES[get_lifetime_class(handle)] or _MAX_UPLOAD_SECONDS
        self._upload_milliseconds = (min(lifetime, _MAX_UPLOAD_SECONDS) + _GRACE_SECONDS) * 1000
        self._buffer = bytearray(self._header)
        self._written = 0
        self._is_registered = False
        self._is_done = False
        self._is_reserved = False

    @property
    def _length(self) -> int:
        return self._written + len(self._buffer)

    def write(self, parts: Sequence[Buffer]) -> None:
        for part in parts:
            view = memoryview(part).cast("B")
            if self._length + len(view) > MAX_STRING_BYTES:
                raise make_too_long_error()
            self._buffer += view
            if len(self._buffer) >= _WRITE_BYTES:
                self._flush()

    def _flush(self) -> None:
        if not self._buffer:
            return
        if not self._is_registered:
            self._is_registered = True
            self._backend.leases.register_upload(self._name)
        start, end = self._written, self._length
        with memoryview(self._buffer) as data:
            # SETRANGE at an offset, because the request may be sent twice.
            commands = [
                ("STRLEN", self._key),
                ("SETRANGE", self._key, start, data),
                ("PEXPIRE", self._key, self._upload_milliseconds),
            ]
            length, *_ = self._backend.client.pipeline(commands)
        if length not in (start, end):
            raise self._make_lost_error()
        self._written, self._buffer = end, bytearray()

    def read(self, start: int, length: int) -> bytes:
        first = _HEADER.size + start
        end = min(first + length, self._length)
        data = b""
        if first < min(end, self._written):
            data = bytes(self._backend.client.call("GETRANGE", self._key, first, min(end, self._written) - 1))
            if len(data) != min(end, self._written) - first:
                raise self._make_lost_error()
        buffered = max(first, self._written) - self._written
        return data + bytes(self._buffer[buffered : max(buffered, end - self._written)])

    def commit(self, extension: str, limits: Mapping[str, int | None], entry: Entry) -> None:  # noqa: ARG002
        self._flush()
        record = Record.make(self._handle, self._id, entry, limits)
        milliseconds = int((max(0, entry.expires_at - self._backend.clock()) + _GRACE_SECONDS) * 1000)
        move_arguments = [self._header, self._length, milliseconds]
        limit_arguments = ["" if value is None else value for pair in limits.items() for value in pair]
        commit = self._commit_in_cluster if self._backend.client.is_cluster else self._commit_on_server
        commit(record.text, move_arguments, limit_arguments)
        self._is_done = True
        self._backend.leases.end_upload(self._name)

    def _commit_on_server(self, record: str, move_arguments: Sequence[Any], limits: Sequence[Any]) -> None:
        keys = self._backend.keys
        names = [self._key, keys.get_object(self._handle), keys.index, keys.usage, keys.added, keys.uploads]
        arguments = [record, self._handle, self._name, *move_arguments, *limits]
        self._check_reply(self._backend.client.run(PUBLISH, names, arguments))

    def _commit_in_cluster(self, record: str, move_arguments: Sequence[Any], limits: Sequence[Any]) -> None:
        """Count the object, make it visible, and add it to the index: these steps are on different nodes.

        If this process is killed between them, a sweep gives back the bytes that were counted.
        """
        keys, client = self._backend.keys, self._backend.client
        names = [keys.index, keys.usage, keys.added, keys.uploads]
        arguments = [record, self._handle, self._name, UPLOAD_SECONDS, *limits]
        self._check_reply(client.run(RESERVE, names, arguments))
        self._backend.leases.end_upload(self._name)
        self._is_reserved = True
        if not client.run(MOVE, [self._key, keys.get_object(self._handle)], move_arguments):
            raise self._make_lost_error()
        if not client.run(SETTLE, [keys.index, keys.usage, keys.uploads], [record, self._handle]):
            raise self._make_lost_error()

    def _check_reply(self, reply: Sequence[bytes]) -> None:
        status, *usage = reply
        if status == b"full":
            names = [name.decode() for name in usage[::2]]
            raise AccountFull(dict(zip(names, map(int, usage[1::2]), strict=True)))
        if status == b"lost":
            raise self._make_lost_error()

    def _make_lost_error(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"Redis at {self._backend.client.address} has lost an unfinished payload: it was restarted, or evicted the "
            "payload to make room; call again, or raise maxmemory on the server"
        )

    def abort(self) -> None:
        if self._is_done:
            return
        self._is_done = True
        self._backend.leases.end_upload(self._name)
        # A reserved object may be visible already: a sweep finds out.
        if self._is_registered and not self._is_reserved:
            client, keys = self._backend.client, self._backend.keys
            # If the server is away, a sweep removes the upload later.
            with contextlib.suppress(ForebayError):
                client.pipeline([("UNLINK", self._key)], is_urgent=False)
                client.run(END_UPLOAD, [keys.usage, keys.uploads], [self._name], is_urgent=False)
