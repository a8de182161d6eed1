"""A log of lines in daily files, which any number of processes append to."""

import os
import re
import stat
from collections.abc import Callable, Iterator

from forebay.store.backends.filesystem import (
    READ_FLAGS,
    Folders,
    ignore_missing,
    translate_os_errors,
)
from forebay.store.handles import format_date
from forebay.store.threads import fork_safe_lock
from forebay.system import files
from forebay.system.descriptors import close_quietly

__all__ = ["LocalLog"]

_FOLDER = "journal"
_FILE_PATTERN = re.compile(r"\d{4}-\d\d-\d\d(?:\.\d+)?\.jsonl", re.ASCII)
_APPEND_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | files.SAFE_OPEN_FLAGS


class LocalLog:
    """A log of at most `max_files` files of about `max_file_bytes`."""

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

    def append(self, line: bytes) -> None:
        """Append a line, which ends with a line break."""
        with self._lock:
            day = format_date(self._clock())
            if day != self._day or self._needs_rotation():
                self._rotate(day)
            if os.write(self._fd, line) < len(line):
                # The next line opens the file again, and adds a line break after the incomplete line.
                self._close()

    def _needs_rotation(self) -> bool:
        status = os.fstat(self._fd)
        return status.st_size >= self._max_file_bytes or files.is_removed(status, self._fd)

    def _rotate(self, day: str) -> None:
        """Open the last file of the day, or a new one if it is full, and remove the oldest files beyond the limit."""
        self._close()
        self._folders.refresh()
        folder_fd = self._folders.get_fd(_FOLDER, create=True)
        newest = next(iter(self._list_file_names()), "")
        # Start at the newest number. A lower number is free if its file was removed, but would sort as older.
        number = _make_sort_key(newest)[1] if newest.startswith(day) else 0
        while True:
            name = f"{day}.{number}.jsonl" if number else f"{day}.jsonl"
            fd = files.open_file(name, _APPEND_FLAGS, folder_fd)
            # Before anything else can fail, so that the descriptor is closed then.
            self._fd = fd
            if files.ensure_private(fd).st_size < self._max_file_bytes:
                break
            self._close()
            number += 1
        _terminate_last_line(fd)
        self._day = day
        # The file in use must stay, even if the clock was set back and files of later days count as newer.
        for old in [old for old in self._list_file_names()[self._max_files :] if old != name]:
            with ignore_missing:
                files.remove_file(old, folder_fd)

    def _list_file_names(self) -> list[str]:
        """Return the names of the files, newest first."""
        with translate_os_errors, ignore_missing:
            names = self._folders.retry(lambda: files.list_names(self._folders.get_fd(_FOLDER)))
            return sorted(filter(_FILE_PATTERN.fullmatch, names), key=_make_sort_key, reverse=True)
        return []

    def read_backward(self) -> Iterator[bytes]:
        """Return the lines, newest first."""
        for name in self._list_file_names():
            yield from reversed(self._read_lines(name))

    def _read_lines(self, name: str) -> list[bytes]:
        with translate_os_errors, ignore_missing:
            fd = files.open_file(name, READ_FLAGS, self._folders.get_fd(_FOLDER))
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
    """Terminate an incomplete last line, so that the next one starts a new line."""
    size = os.fstat(fd).st_size
    if size and files.read_at(fd, 1, size - 1) != b"\n":
        os.write(fd, b"\n")


def _make_sort_key(name: str) -> tuple[str, int]:
    """Return the day and the number of a file."""
    day, _, rest = name.partition(".")
    return day, int(rest.partition(".")[0]) if rest != "jsonl" else 0
