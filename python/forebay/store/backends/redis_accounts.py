"""The index of objects on Redis, and the accounts of their bytes."""

from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple

import orjson

from forebay.store.backends import TOTAL_ACCOUNT
from forebay.store.backends.redis_client import RedisClient
from forebay.store.backends.redis_keys import RedisKeys
from forebay.store.backends.redis_scripts import CORRECT_ACCOUNTS
from forebay.store.entries import Entry

__all__ = ["Record", "RedisAccounts", "RedisRecount", "read_index"]

_PAGE_RECORDS = 500
_MAX_CORRECTIONS = 500
"""Maximum number of accounts that one script corrects: others wait for it."""


class Record(NamedTuple):
    """What the index has of an object."""

    text: str
    handle: str
    upload_id: str
    size: int
    created_at: float
    expires_at: float
    accounts: tuple[str, ...]
    principal: str | None

    @classmethod
    def make(cls, handle: str, upload_id: str, entry: Entry, accounts: Collection[str]) -> "Record":
        """Return the record of an object."""
        principal = orjson.dumps(entry.principal).decode()
        fields = handle, upload_id, entry.size, entry.created_at, entry.expires_at, " ".join(accounts), principal
        return cls.parse(":".join(map(str, fields)))

    @classmethod
    def parse(cls, text: str) -> "Record":
        """Return the record with this text."""
        handle, upload_id, size, created_at, expires_at, accounts, principal = text.split(":", 6)
        times = float(created_at), float(expires_at)
        return cls(text, handle, upload_id, int(size), *times, tuple(accounts.split()), orjson.loads(principal))

    @property
    def entry(self) -> Entry:
        return Entry(self.created_at, self.expires_at, self.size, self.principal)


def read_index(client: RedisClient, keys: RedisKeys) -> Iterator[list[Record]]:
    """Return the records in batches. Those that stay while this is done are returned once."""
    start = b"-"
    while True:
        found: list[bytes] = client.call("ZRANGEBYLEX", keys.index, start, "+", "LIMIT", 0, _PAGE_RECORDS)
        if not found:
            return
        yield [Record.parse(text.decode()) for text in found]
        start = b"(" + found[-1]


class RedisAccounts:
    """The accounts, in one hash. Scripts change them together with the index."""

    def __init__(self, client: RedisClient, keys: RedisKeys) -> None:
        self._client = client
        self._keys = keys

    def read(self, names: Collection[str] | None = None) -> dict[str, int]:
        """Return the stored bytes of these accounts, or of all."""
        if names is None:
            found = self._client.call("HGETALL", self._keys.usage)
            return {name.decode(): int(used) for name, used in found.items()}
        values = self._client.call("HMGET", self._keys.usage, *names)
        return {name: int(used) for name, used in zip(names, values, strict=True) if used is not None}

    def ensure_counted(self) -> None:
        """Count the objects of the index, unless this was done before."""
        if TOTAL_ACCOUNT not in self.read([TOTAL_ACCOUNT]):
            for _ in self.begin_recount().apply():
                pass

    def begin_recount(self) -> "RedisRecount":
        """Begin to count all objects."""
        return RedisRecount(self._client, self._keys)


class RedisRecount:
    """A count of the index and of uploads that are about to get there, which then lowers accounts that are too high.

    Objects may be stored and deleted meanwhile. An account is never set below what was counted and all that was added
    since the beginning.
    """

    def __init__(self, client: RedisClient, keys: RedisKeys) -> None:
        self._client = client
        self._keys = keys
        self._added_before = int(client.call("GET", keys.added) or 0)

    def add(self, principal: str | None, size: int) -> None:
        """Do nothing: `apply` reads the index, in which sizes and accounts are exact."""

    def apply(self) -> Iterator[None]:
        """Correct the accounts, some at each step of the iteration."""
        sums: Counter[str] = Counter()
        # First the uploads: those that are moved to the index now count twice, but never not at all.
        for record in self._read_reserved():
            sums.update(dict.fromkeys(record.accounts, record.size))
        for records in read_index(self._client, self._keys):
            for record in records:
                sums.update(dict.fromkeys(record.accounts, record.size))
            yield
        names = {*sums, *(name.decode() for name in self._client.call("HKEYS", self._keys.usage))} - {TOTAL_ACCOUNT}
        # The total comes last: until it is set, nobody relies on the other accounts.
        remaining = [TOTAL_ACCOUNT, *names]
        while remaining:
            batch = [remaining.pop() for _ in range(min(_MAX_CORRECTIONS, len(remaining)))]
            arguments = [value for name in batch for value in (name, sums[name])]
            keys = [self._keys.usage, self._keys.added]
            if not self._client.run(CORRECT_ACCOUNTS, keys, [self._added_before, *arguments]):
                # The data of the server was replaced meanwhile.
                return
            yield

    def _read_reserved(self) -> Iterator[Record]:
        for member in self._client.call("ZRANGE", self._keys.uploads, 0, -1):
            if member.count(b":") > 1:
                yield Record.parse(member.decode())
