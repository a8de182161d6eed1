"""Counts of tool calls on Redis, in one hash for each day."""

import secrets
from collections.abc import Iterator, Mapping, Sequence

import orjson

from forebay.store.backends.count_rows import COUNTERS, MAX_ROWS, OTHER_TOOLS, CountKey
from forebay.store.backends.redis_client import RedisClient
from forebay.store.backends.redis_keys import RedisKeys
from forebay.store.backends.redis_scripts import ADD_COUNTS

__all__ = ["RedisCountTable"]

_MAX_DAYS = 400


class RedisCountTable:
    """Counts of a store. A field of a hash is a row, as JSON, and the number of a counter."""

    def __init__(self, client: RedisClient, keys: RedisKeys) -> None:
        self._client = client
        self._keys = keys

    def add(self, day: str, rows: Mapping[CountKey, Sequence[int]]) -> None:
        """Add to the counts of a day."""
        # Without a principal, so that nobody gets the counts of somebody else.
        other = orjson.dumps([None, OTHER_TOOLS])
        arguments = [day, other, MAX_ROWS * len(COUNTERS), len(COUNTERS)]
        counts = [value for key, values in rows.items() for value in (orjson.dumps(key), *values)]
        keys = [self._keys.get_once(secrets.token_hex(8)), self._keys.get_counts(day), self._keys.days]
        self._client.run(ADD_COUNTS, keys, [*arguments, *counts])
        self._remove_old_days()

    def _remove_old_days(self) -> None:
        for day in self._client.call("ZRANGE", self._keys.days, 0, -_MAX_DAYS - 1):
            self._client.call("UNLINK", self._keys.get_counts(day.decode()))
            self._client.call("ZREM", self._keys.days, day)

    def read(self) -> Iterator[tuple[str, dict[CountKey, list[int]]]]:
        """Return the days and their counts, newest first."""
        for day in self._client.call("ZREVRANGE", self._keys.days, 0, -1):
            rows: dict[CountKey, list[int]] = {}
            for field, count in self._client.call("HGETALL", self._keys.get_counts(day.decode())).items():
                row, _, column = field.rpartition(b" ")
                principal, tool = orjson.loads(row)
                rows.setdefault((principal, tool), [0] * len(COUNTERS))[int(column)] = int(count)
            yield day.decode(), rows
