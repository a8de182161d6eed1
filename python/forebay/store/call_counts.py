"""Counts of tool calls and of bytes saved, by day, principal and tool, kept for all processes that use a store."""

import atexit
import contextlib
import fcntl
import os
import re
import stat
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import orjson

from forebay.errors import ForebayError, InvalidArgument
from forebay.store.backends.filesystem import (
    SAFE_OPEN_FLAGS,
    Folders,
    close_quietly,
    ensure_private,
    ignore_missing,
    list_names,
    translate_os_errors,
    unlock,
)
from forebay.store.handles import format_date, is_valid_name
from forebay.store.journal import BYTES_PER_TOKEN
from forebay.store.threads import fork_safe_lock

__all__ = ["CallCounts", "summarize_calls"]

_FOLDER = "calls"
_FILE_PATTERN = re.compile(r"(\d{4}-\d\d-\d\d)\.json", re.ASCII)
_TEMPORARY_NAME = ".unfinished"
_READ_FLAGS = os.O_RDONLY | SAFE_OPEN_FLAGS
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | SAFE_OPEN_FLAGS

_COUNTERS = ("calls", "handles", "stored_bytes", "shown_bytes")

_FLUSH_SECONDS = 2.0
"""How long counts stay in memory. A process that is killed loses the counts of this time."""

_LOCK_TIMEOUT_SECONDS = 1.0
"""How long to wait for another process that writes counts. After that they stay in memory."""

_MAX_ROWS = 1000
"""Maximum number of principals and tools that are counted in a day. Further ones are counted together."""

_OTHER_TOOLS = "others"
_MAX_TOOL_LENGTH = 256
_MAX_COUNT = 1 << 62
"""A larger count in a file is damaged: adding to it could exceed what JSON can hold."""

_MAX_DAYS = 400
_MAX_TOTAL_BYTES = 16 << 20

_Key = tuple[str | None, str]
"""Principal and tool."""

_open_counts: "weakref.WeakSet[CallCounts]" = weakref.WeakSet()


class CallCounts:
    """Counts of a store, in one file for each day. `add` only changes memory; a thread writes the file soon after.

    If the counts cannot be written, they stay in memory for the next time. A call never fails because of them.
    """

    def __init__(self, folders: Folders, clock: Callable[[], float]) -> None:
        self._folders = folders
        self._clock = clock
        self._lock = fork_safe_lock()
        self._write_lock = fork_safe_lock()
        self._counts: dict[str, dict[_Key, list[int]]] = {}
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
        key = (principal, tool[:_MAX_TOOL_LENGTH]) if is_valid else (None, _OTHER_TOOLS)
        # The counted call must not fail because of a clock without a valid time.
        with self._lock, contextlib.suppress(InvalidArgument):
            day = format_date(self._clock())
            _add_counts(self._counts.setdefault(day, {}), key, (calls, handles, stored_bytes, shown_bytes))
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
        """Write the counts to disk. If that fails, they stay in memory."""
        with self._write_lock:
            with self._lock:
                counts, self._counts, self._has_timer = self._counts, {}, False
            try:
                for day in sorted(counts):
                    self._write_day(day, counts[day])
                    del counts[day]
            except (OSError, ForebayError):
                with self._lock:
                    for day, rows in counts.items():
                        for key, values in rows.items():
                            _add_counts(self._counts.setdefault(day, {}), key, values)

    def _write_day(self, day: str, rows: dict[_Key, list[int]]) -> None:
        self._folders.refresh()
        folder_fd, name = self._folders.get_fd(_FOLDER, create=True), f"{day}.json"
        with _lock_folder(folder_fd):
            totals = self._read_day(name)
            is_new = not totals
            for key, values in rows.items():
                _add_counts(totals, key, values)
            data = orjson.dumps(
                [
                    {"principal": principal, "tool": tool, **dict(zip(_COUNTERS, values, strict=True))}
                    for (principal, tool), values in totals.items()
                ]
            )
            fd = os.open(_TEMPORARY_NAME, _WRITE_FLAGS, 0o600, dir_fd=folder_fd)
            try:
                ensure_private(fd)
                if os.write(fd, data) < len(data):
                    raise OSError("the disk is full")
            finally:
                close_quietly(fd)
            os.rename(_TEMPORARY_NAME, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
            if is_new:
                # The counts are written: an error must not make the caller add them again.
                with contextlib.suppress(OSError, ForebayError):
                    self._remove_old_days(folder_fd)

    def _remove_old_days(self, folder_fd: int) -> None:
        total = 0
        for number, name in enumerate(self._list_file_names()):
            with ignore_missing:
                total += os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_size
                if number >= _MAX_DAYS or (number and total > _MAX_TOTAL_BYTES):
                    os.unlink(name, dir_fd=folder_fd)

    def _list_file_names(self) -> list[str]:
        """Return the names of the files, newest first."""
        with translate_os_errors, ignore_missing:
            names = self._folders.retry(lambda: list_names(self._folders.get_fd(_FOLDER)))
            return sorted(filter(_FILE_PATTERN.fullmatch, names), reverse=True)
        return []

    def _read_day(self, name: str) -> dict[_Key, list[int]]:
        """Return the counts in a file; none if it is missing or damaged."""
        rows: dict[_Key, list[int]] = {}
        with translate_os_errors, ignore_missing:
            fd = os.open(name, _READ_FLAGS, dir_fd=self._folders.get_fd(_FOLDER))
            try:
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    with open(fd, "rb", closefd=False) as file, contextlib.suppress(orjson.JSONDecodeError):
                        for row in _select_valid(orjson.loads(file.read())):
                            values = [row[name] for name in _COUNTERS]
                            _add_counts(rows, (row["principal"], row["tool"]), values)
            finally:
                close_quietly(fd)
        return rows

    def read(self, principals: Collection[str] | None = None) -> Iterator[dict[str, Any]]:
        """Return the counts of each day, principal and tool, newest day first. `None` stands for all principals."""
        self.flush()
        for name in self._list_file_names():
            for (principal, tool), values in self._read_day(name).items():
                if principals is None or principal in principals:
                    counts = dict(zip(_COUNTERS, values, strict=True))
                    yield {"day": name.removesuffix(".json"), "principal": principal, "tool": tool, **counts}

    def close(self) -> None:
        """Write the counts to disk."""
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
os.register_at_fork(after_in_child=_forget_in_child)


@contextlib.contextmanager
def _lock_folder(folder_fd: int) -> Iterator[None]:
    """Lock a folder against other processes. Raises `BlockingIOError` if one of them holds the lock for too long."""
    fd = os.open(".", _READ_FLAGS, dir_fd=folder_fd)
    try:
        deadline = time.monotonic() + _LOCK_TIMEOUT_SECONDS
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(0.01)
        yield
    finally:
        if unlock(fd):
            close_quietly(fd)


def _add_counts(rows: dict[_Key, list[int]], key: _Key, values: Iterable[int]) -> None:
    """Add to a row. If there are too many rows for a new one, add to the row of all other tools."""
    if key not in rows and len(rows) >= _MAX_ROWS:
        # Without a principal, so that nobody gets the counts of somebody else.
        key = (None, _OTHER_TOOLS)
    rows[key] = [old + new for old, new in zip(rows.get(key, [0] * len(_COUNTERS)), values, strict=True)]


def _select_valid(value: object) -> Iterator[dict[str, Any]]:
    """Return the rows of a parsed file that have a principal, a tool and all counters."""
    for row in value if isinstance(value, list) else ():
        if (
            isinstance(row, dict)
            and isinstance(row.get("tool"), str)
            and isinstance(row.get("principal", 0), str | None)
            and all(isinstance(row.get(name), int) and 0 <= row[name] < _MAX_COUNT for name in _COUNTERS)
        ):
            yield row


def summarize_calls(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the sums of all rows, of each tool (the one that saved most first) and of each day (newest first).

    What was saved is the size of stored results, less the size of descriptors and pages that were sent instead.
    """
    total = dict.fromkeys(_COUNTERS, 0)
    by_tool: dict[str, dict[str, int]] = {}
    by_day: dict[str, dict[str, int]] = {}
    for row in rows:
        of_tool = by_tool.setdefault(row["tool"], dict.fromkeys(_COUNTERS, 0))
        of_day = by_day.setdefault(row["day"], dict.fromkeys(_COUNTERS, 0))
        for name in _COUNTERS:
            for sums in (total, of_tool, of_day):
                sums[name] += row[name]
    for sums in (total, *by_tool.values(), *by_day.values()):
        sums["saved_bytes"] = sums["stored_bytes"] - sums["shown_bytes"]
        # Rounded towards zero, for what was saved as for what was read back.
        sums["saved_tokens"] = int(sums["saved_bytes"] / BYTES_PER_TOKEN)
    tools = sorted(by_tool, key=lambda tool: (-by_tool[tool]["saved_bytes"], -by_tool[tool]["calls"], tool))
    days = sorted(by_day, reverse=True)
    return {**total, "by_tool": {tool: by_tool[tool] for tool in tools}, "by_day": {day: by_day[day] for day in days}}
