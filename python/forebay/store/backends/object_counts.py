"""Counts of tool calls in a bucket: `calls/<day>/<id>`, objects that only one replica writes each."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from forebay.store.backends.count_rows import CountKey, add_counts, decode_counts, encode_counts
from forebay.store.backends.object_client import ObjectClient, Version
from forebay.store.threads import fork_safe_lock

__all__ = ["ObjectCountTable"]

_FOLDER = "calls"
_MAX_DAYS = 400
_DAYS_IN_MEMORY = 2
"""Days whose objects this replica replaces. Later counts of other days go to new objects."""


class _DayObject(NamedTuple):
    key: str
    version: Version | None
    rows: dict[CountKey, list[int]]


class ObjectCountTable:
    """Counts of all replicas. A replica keeps its own counts of a day in memory, and replaces its object."""

    def __init__(self, client: ObjectClient) -> None:
        self._client = client
        self._lock = fork_safe_lock()
        self._days: dict[str, _DayObject] = {}
        """This replica's objects of the last days."""

    def add(self, day: str, rows: Mapping[CountKey, Sequence[int]]) -> None:
        """Add to the counts of a day."""
        with self._lock:
            counted = self._days.setdefault(day, _DayObject(f"{_FOLDER}/{day}/{secrets.token_hex(6)}", None, {}))
            totals = {key: list(values) for key, values in counted.rows.items()}
            for key, values in rows.items():
                add_counts(totals, key, values)
            # If this fails, the caller adds the same counts again, and the object is replaced by the same totals.
            version = self._client.replace(counted.key, [encode_counts(totals)], counted.version)
            self._days[day] = _DayObject(counted.key, version, totals)
            while len(self._days) > _DAYS_IN_MEMORY:
                del self._days[min(self._days)]

    def read(self) -> Iterator[tuple[str, dict[CountKey, list[int]]]]:
        """Return the days and their counts, newest first."""
        days: dict[str, list[str]] = {}
        for key, _ in self._client.list(_FOLDER):
            days.setdefault(key.split("/")[1], []).append(key)
        for day in sorted(days, reverse=True):
            totals: dict[CountKey, list[int]] = {}
            for key in days[day]:
                found = self._client.read_all(key)
                for row, values in decode_counts(found[1]).items() if found is not None else ():
                    add_counts(totals, row, values)
            yield day, totals

    def remove_old(self) -> None:
        """Remove the counts of days beyond the limit."""
        keys = [key for key, _ in self._client.list(_FOLDER)]
        days = sorted({key.split("/")[1] for key in keys}, reverse=True)
        expired = set(days[_MAX_DAYS:])
        for key in keys:
            if key.split("/")[1] in expired:
                self._client.delete(key)
