"""The journal: events as JSON lines in daily files, written by any number of processes."""

import contextlib
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from forebay.arguments import check_integer
from forebay.errors import InvalidArgument
from forebay.store.backends.filesystem import (
    SAFE_OPEN_FLAGS,
    Folders,
    close_quietly,
    ensure_private,
    ignore_missing,
    list_names,
    translate_os_errors,
)
from forebay.store.handles import format_date, format_timestamp
from forebay.store.threads import fork_safe_lock

__all__ = ["BYTES_PER_TOKEN", "Journal"]

_JOURNAL_FOLDER = "journal"
_ARTIFACT_PATTERN = re.compile(r"ax://[^/]+(?=/)")
_FILE_PATTERN = re.compile(r"\d{4}-\d\d-\d\d(?:\.\d+)?\.jsonl", re.ASCII)
_APPEND_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | SAFE_OPEN_FLAGS
_READ_FLAGS = os.O_RDONLY | SAFE_OPEN_FLAGS
BYTES_PER_TOKEN = 4
"""Estimate of the size of a token."""


class Journal:
    """A journal of at most `max_files` files of about `max_file_bytes`. If it cannot be written, events are lost."""

    def __init__(
        self, folders: Folders, clock: Callable[[], float], *, max_file_bytes: int = 8 << 20, max_files: int = 16
    ) -> None:
        self._folders = folders
        self._clock = clock
        self._max_file_bytes = max_file_bytes
        self._max_files = max_files
        self._lock = fork_safe_lock()
        self._fd = -1
        self._day = ""

    def record(self, event: str, /, *, principal: str | None = None, **details: object) -> None:
        """Append an event."""
        # The recorded operation must not fail because of the journal, nor of a clock without a valid time.
        with self._lock, contextlib.suppress(OSError, InvalidArgument):
            now = self._clock()
            line = orjson.dumps(
                {"event": event, **details, "principal": principal, "ts": format_timestamp(now)},
                option=orjson.OPT_APPEND_NEWLINE,
            )
            day = format_date(now)
            if day != self._day or self._needs_rotation():
                self._rotate(day)
            if os.write(self._fd, line) < len(line):
                # The next event opens the file again, and adds a line break after the incomplete line.
                self._close()

    def _needs_rotation(self) -> bool:
        status = os.fstat(self._fd)
        return status.st_size >= self._max_file_bytes or status.st_nlink == 0

    def _rotate(self, day: str) -> None:
        """Open the last file of the day, or a new one if it is full, and remove the oldest files beyond the limit."""
        self._close()
        self._folders.refresh()
        folder_fd = self._folders.get_fd(_JOURNAL_FOLDER, create=True)
        newest = next(iter(self._list_file_names()), "")
        # Start at the newest number. A lower number is free if its file was removed, but would sort as older.
        number = _make_sort_key(newest)[1] if newest.startswith(day) else 0
        while True:
            name = f"{day}.{number}.jsonl" if number else f"{day}.jsonl"
            fd = os.open(name, _APPEND_FLAGS, 0o600, dir_fd=folder_fd)
            # Before anything else can fail, so that the descriptor is closed then.
            self._fd = fd
            if ensure_private(fd).st_size < self._max_file_bytes:
                break
            self._close()
            number += 1
        _terminate_last_line(fd)
        self._day = day
        # The file in use must stay, even if the clock was set back and files of later days count as newer.
        for old in [old for old in self._list_file_names()[self._max_files :] if old != name]:
            with ignore_missing:
                os.unlink(old, dir_fd=folder_fd)

    def _list_file_names(self) -> list[str]:
        """Return the names of the journal files, newest first."""
        with translate_os_errors, ignore_missing:
            names = self._folders.retry(lambda: list_names(self._folders.get_fd(_JOURNAL_FOLDER)))
            return sorted(filter(_FILE_PATTERN.fullmatch, names), key=_make_sort_key, reverse=True)
        return []

    def recent(
        self, count: int = 50, *, principal: str | tuple[str, ...] | None = None, is_operator: bool = True
    ) -> list[dict[str, Any]]:
        """Return the last `count` events, newest first.

        An operator gets the events of everyone. A principal gets only its own; `principal` may be several names of it.
        """
        check_integer("count", count, 0)
        events = self.events(principal=principal, is_operator=is_operator)
        return [event for _, event in zip(range(count), events, strict=False)]

    def events(
        self, *, principal: str | tuple[str, ...] | None = None, is_operator: bool = True
    ) -> Iterator[dict[str, Any]]:
        """Return all events, newest first. The arguments are those of `recent`."""
        principals = principal if isinstance(principal, tuple) else (principal,)
        return (event for event in self._read_backward() if is_operator or event.get("principal") in principals)

    def summary(self, *, principal: str | tuple[str, ...] | None = None, is_operator: bool = True) -> dict[str, Any]:
        """Return totals over all events: bytes stored, pages read, and bytes that the model did not have to read."""
        events: Counter[str] = Counter()
        tools: dict[str, dict[str, int]] = {}
        stored = shown = 0
        for event in self.events(principal=principal, is_operator=is_operator):
            kind = event.get("event")
            events[str(kind)] += 1
            size = event.get("size_bytes")
            if kind == "output_handle_created" and isinstance(size, int):
                stored += size
                shown += _to_int_or_zero(event.get("shown_bytes"))
                tool = tools.setdefault(_get_group(event.get("source_tool")), {"handles": 0, "bytes": 0})
                tool["handles"] += 1
                tool["bytes"] += size
            elif kind == "output_handle_fetched":
                shown += _to_int_or_zero(event.get("returned_bytes"))
        kept_out = max(0, stored - shown)
        return {
            "handles": events["output_handle_created"],
            "bytes_stored": stored,
            "bytes_kept_out": kept_out,
            "tokens_kept_out": kept_out // BYTES_PER_TOKEN,
            "pages_read": events["output_handle_fetched"],
            "events": dict(events),
            "by_tool": tools,
        }

    def _read_backward(self) -> Iterator[dict[str, Any]]:
        for name in self._list_file_names():
            for line in reversed(self._read_lines(name)):
                # A crash or a full disk may have left an incomplete line.
                with contextlib.suppress(orjson.JSONDecodeError):
                    event = orjson.loads(line)
                    if isinstance(event, dict):
                        yield event

    def _read_lines(self, name: str) -> list[bytes]:
        with translate_os_errors, ignore_missing:
            fd = os.open(name, _READ_FLAGS, dir_fd=self._folders.get_fd(_JOURNAL_FOLDER))
            try:
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    with open(fd, "rb", closefd=False) as file:
                        return file.read().splitlines()
            finally:
                close_quietly(fd)
        return []

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        fd, self._fd, self._day = self._fd, -1, ""
        if fd >= 0:
            close_quietly(fd)


def _terminate_last_line(fd: int) -> None:
    """Terminate an incomplete last line, so that the next event starts a new line."""
    size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        os.write(fd, b"\n")


def _get_group(source_tool: object) -> str:
    """Return the tool that stored a payload, or the domain of an artifact, since artifacts may have unique ids."""
    match = _ARTIFACT_PATTERN.match(str(source_tool))
    return match[0] if match else str(source_tool or "unknown")


def _to_int_or_zero(value: object) -> int:
    """Return a number from a journal line, or 0 if the line was damaged."""
    return value if isinstance(value, int) else 0


def _make_sort_key(name: str) -> tuple[str, int]:
    """Return the day and the number of a journal file."""
    day, _, rest = name.partition(".")
    return day, int(rest.partition(".")[0]) if rest != "jsonl" else 0
