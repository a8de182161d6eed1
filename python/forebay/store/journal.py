"""What happened to handles: one JSON line an event, in a file a day, by any number of processes."""

import contextlib
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from forebay.arguments import check_integer
from forebay.store.backends.filesystem import (
    SAFE_OPEN_FLAGS,
    Folders,
    ensure_private,
    ignore_missing,
    list_names,
    translate_os_errors,
)
from forebay.store.threads import ForkSafeLock
from forebay.store.times import format_date, format_timestamp

__all__ = ["Journal"]

_FOLDER = "journal"
_FILE_PATTERN = re.compile(r"\d{4}-\d\d-\d\d(?:\.\d+)?\.jsonl", re.ASCII)
_APPEND_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | SAFE_OPEN_FLAGS
_READ_FLAGS = os.O_RDONLY | SAFE_OPEN_FLAGS
_BYTES_PER_TOKEN = 4


class Journal:
    """Files of `max_file_bytes` each at the most, `max_files` of them. A journal that cannot be written stops nothing."""

    def __init__(
        self, folders: Folders, clock: Callable[[], float], *, max_file_bytes: int = 8 << 20, max_files: int = 16
    ) -> None:
        self._folders = folders
        self._clock = clock
        self._max_file_bytes = max_file_bytes
        self._max_files = max_files
        self._lock = ForkSafeLock()
        self._fd = -1
        self._day = ""

    def record(self, event: str, /, *, principal: str | None = None, **details: object) -> None:
        """Appends an event."""
        now = self._clock()
        line = orjson.dumps(
            {"event": event, **details, "principal": principal, "ts": format_timestamp(now)},
            option=orjson.OPT_APPEND_NEWLINE,
        )
        # It only tells of what was done: that must not fail for it.
        with self._lock, contextlib.suppress(OSError):
            day = format_date(now)
            if day != self._day or self._needs_rotation():
                self._rotate(day)
            if os.write(self._fd, line) < len(line):
                # The next one starts on a line of its own.
                self._close()

    def _needs_rotation(self) -> bool:
        status = os.fstat(self._fd)
        return status.st_size >= self._max_file_bytes or status.st_nlink == 0

    def _rotate(self, day: str) -> None:
        """Opens the last file of the day, or the next if it is full, and removes the oldest if there are too many."""
        self._close()
        self._folders.refresh()
        folder = self._folders.get_fd(_FOLDER, make=True)
        newest = next(iter(self._file_names()), "")
        # Not the first that has room: the number of one that was removed would be that of the oldest again.
        number = _sort_key(newest)[1] if newest.startswith(day) else 0
        while True:
            name = f"{day}.{number}.jsonl" if number else f"{day}.jsonl"
            fd = os.open(name, _APPEND_FLAGS, 0o600, dir_fd=folder)
            if ensure_private(fd).st_size < self._max_file_bytes:
                break
            os.close(fd)
            number += 1
        self._fd, self._day = fd, day
        _terminate_last_line(fd)
        # Files of days to come, if the clock was set back, are not older than the one in use.
        for old in [old for old in self._file_names()[self._max_files :] if old != name]:
            with ignore_missing:
                os.unlink(old, dir_fd=folder)

    def _file_names(self) -> list[str]:
        """The files, newest first."""
        with translate_os_errors, ignore_missing:
            found = self._folders.retry(lambda: list_names(self._folders.get_fd(_FOLDER)))
            return sorted(filter(_FILE_PATTERN.fullmatch, found), key=_sort_key, reverse=True)
        return []

    def recent(
        self, count: int = 50, *, principal: str | tuple[str, ...] | None = None, is_operator: bool = True
    ) -> list[dict[str, Any]]:
        """The last events, newest first: one's own (by any of one's names), or everyone's for an operator."""
        check_integer("count", count, 0)
        found: list[dict[str, Any]] = []
        for event in self.events(principal=principal, is_operator=is_operator):
            if len(found) >= count:
                break
            found.append(event)
        return found

    def events(
        self, *, principal: str | tuple[str, ...] | None = None, is_operator: bool = True
    ) -> Iterator[dict[str, Any]]:
        """All that is known to have happened, newest first: to oneself, or to everyone for an operator."""
        whose = principal if isinstance(principal, tuple) else (principal,)
        return (event for event in self._read_backward() if is_operator or event.get("principal") in whose)

    def summary(self, *, principal: str | tuple[str, ...] | None = None, is_operator: bool = True) -> dict[str, Any]:
        """What was kept out of the context, as far back as the journal goes."""
        events: Counter[str] = Counter()
        tools: dict[str, dict[str, int]] = {}
        stored = shown = 0
        for event in self.events(principal=principal, is_operator=is_operator):
            kind = event.get("event")
            events[str(kind)] += 1
            size = event.get("size_bytes")
            if kind == "output_handle_created" and isinstance(size, int):
                stored += size
                shown += _int_or_zero(event.get("shown_bytes"))
                tool = tools.setdefault(event.get("source_tool") or "unknown", {"handles": 0, "bytes": 0})
                tool["handles"] += 1
                tool["bytes"] += size
            elif kind == "output_handle_fetched":
                shown += _int_or_zero(event.get("returned_bytes"))
        kept = max(0, stored - shown)
        return {
            "handles": events["output_handle_created"],
            "bytes_stored": stored,
            "bytes_kept_out": kept,
            "tokens_kept_out": kept // _BYTES_PER_TOKEN,
            "pages_read": events["output_handle_fetched"],
            "events": dict(events),
            "by_tool": tools,
        }

    def _read_backward(self) -> Iterator[dict[str, Any]]:
        for name in self._file_names():
            for line in reversed(self._read_lines(name)):
                # A line that a crash or a full disk cut short tells nothing.
                with contextlib.suppress(orjson.JSONDecodeError):
                    event = orjson.loads(line)
                    if isinstance(event, dict):
                        yield event

    def _read_lines(self, name: str) -> list[bytes]:
        with translate_os_errors, ignore_missing:
            fd = os.open(name, _READ_FLAGS, dir_fd=self._folders.get_fd(_FOLDER))
            try:
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    with open(fd, "rb", closefd=False) as file:
                        return file.read().splitlines()
            finally:
                os.close(fd)
        return []

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        fd, self._fd, self._day = self._fd, -1, ""
        if fd >= 0:
            os.close(fd)


def _terminate_last_line(fd: int) -> None:
    """Ends a line that was cut short, so that it takes no other with it."""
    size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        os.write(fd, b"\n")


def _int_or_zero(value: object) -> int:
    """What a damaged line says is no number of ours."""
    return value if isinstance(value, int) else 0


def _sort_key(name: str) -> tuple[str, int]:
    day, _, rest = name.partition(".")
    return day, int(rest.partition(".")[0]) if rest != "jsonl" else 0
