"""Counts of tool calls and of bytes saved, by day, principal and tool, kept for all processes that use a store."""

import atexit
import contextlib
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from forebay.errors import ForebayError, InvalidArgument
from forebay.store.backends import CountTable
from forebay.store.backends.count_rows import COUNTERS, OTHER_TOOLS, CountKey, add_counts
from forebay.store.handles import format_date, is_valid_name
from forebay.store.journal import BYTES_PER_TOKEN
from forebay.store.threads import fork_safe_lock, run_in_forked_child

__all__ = ["CallCounts", "summarize_calls"]

_FLUSH_SECONDS = 2.0
"""How long counts stay in memory. A process that is killed loses the counts of this time."""

_MAX_TOOL_LENGTH = 256

_open_counts: "weakref.WeakSet[CallCounts]" = weakref.WeakSet()


class CallCounts:
    """Counts of a store by day. `add` only changes memory; a thread writes to the backend soon after.

    If the counts cannot be written, they stay in memory for the next time. A call never fails because of them.
    """

    def __init__(self, table: CountTable, clock: Callable[[], float]) -> None:
        self._table = table
        self._clock = clock
        self._lock = fork_safe_lock()
        self._write_lock = fork_safe_lock()
        self._counts: dict[str, dict[CountKey, list[int]]] = {}
        self._has_timer = False
        _open_counts.add(self)

    def add(
        self,
        tool: str,
        principal: str | None = None,
        *,
        calls: int = 0,
        handles: int = 0,
        stored_bytes: int = 0,
        shown_bytes: int = 0,
    ) -> None:
        """Add to the counts of a tool: its calls, and the sizes of stored results and of what was sent instead."""
        # A client may call a tool by any name, including one that is very long or not valid Unicode.
        is_valid = is_valid_name(tool[:_MAX_TOOL_LENGTH]) and (principal is None or is_valid_name(principal))
        key = (principal, tool[:_MAX_TOOL_LENGTH]) if is_valid else (None, OTHER_TOOLS)
        # The counted call must not fail because of a clock without a valid time.
        with self._lock, contextlib.suppress(InvalidArgument):
            day = format_date(self._clock())
            add_counts(self._counts.setdefault(day, {}), key, (calls, handles, stored_bytes, shown_bytes))
            if not self._has_timer:
                self._start_timer()

    def forget(self) -> None:
        """Drop the counts of a forked child, because its parent process writes them."""
        self._counts, self._has_timer = {}, False

    def _start_timer(self) -> None:
        timer = threading.Timer(_FLUSH_SECONDS, self.flush)
        timer.daemon = True
        # No thread can start while the interpreter exits; the counts are written at the end.
        with contextlib.suppress(RuntimeError):
            timer.start()
            self._has_timer = True

    def flush(self) -> None:
        """Write the counts to the backend. If that fails, they stay in memory."""
        with self._write_lock:
            with self._lock:
                counts, self._counts, self._has_timer = self._counts, {}, False
            try:
                for day in sorted(counts):
                    self._table.add(day, counts[day])
                    del counts[day]
            except ForebayError:
                with self._lock:
                    for day, rows in counts.items():
                        for key, values in rows.items():
                            add_counts(self._counts.setdefault(day, {}), key, values)

    def read(self, principals: Collection[str | None] | None = None) -> Iterator[dict[str, Any]]:
        """Return the counts of each day, principal and tool, newest day first. `None` stands for all principals."""
        self.flush()
        for day, rows in self._table.read():
            for (principal, tool), values in rows.items():
                if principals is None or principal in principals:
                    counts = dict(zip(COUNTERS, values, strict=True))
                    yield {"day": day, "principal": principal, "tool": tool, **counts}

    def close(self) -> None:
        """Write the counts to the backend."""
        self.flush()
        _open_counts.discard(self)


@atexit.register
def _flush_all() -> None:
    for counts in list(_open_counts):
        counts.flush()


def _forget_in_child() -> None:
    for counts in list(_open_counts):
        counts.forget()


# Not by comparing process ids in `add`: that would be a system call for each call of a tool.
run_in_forked_child(_forget_in_child)


def summarize_calls(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the sums of all rows, of each tool (the one that saved most first) and of each day (newest first).

    What was saved is the size of stored results, less the size of descriptors and pages that were sent instead.
    """
    total = dict.fromkeys(COUNTERS, 0)
    by_tool: dict[str, dict[str, int]] = {}
    by_day: dict[str, dict[str, int]] = {}
    for row in rows:
        of_tool = by_tool.setdefault(row["tool"], dict.fromkeys(COUNTERS, 0))
        of_day = by_day.setdefault(row["day"], dict.fromkeys(COUNTERS, 0))
        for name in COUNTERS:
            for sums in (total, of_tool, of_day):
                sums[name] += row[name]
    for sums in (total, *by_tool.values(), *by_day.values()):
        sums["saved_bytes"] = sums["stored_bytes"] - sums["shown_bytes"]
        # Rounded towards zero, for what was saved as for what was read back.
        sums["saved_tokens"] = int(sums["saved_bytes"] / BYTES_PER_TOKEN)
    tools = sorted(by_tool, key=lambda tool: (-by_tool[tool]["saved_bytes"], -by_tool[tool]["calls"], tool))
    days = sorted(by_day, reverse=True)
    return {**total, "by_tool": {tool: by_tool[tool] for tool in tools}, "by_day": {day: by_day[day] for day in days}}
