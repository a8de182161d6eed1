"""Counts of tool calls as files: `calls/<day>.json`, which any number of processes add to."""

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping, Sequence

from forebay.errors import ForebayError
from forebay.store.backends.count_rows import CountKey, add_counts, decode_counts, encode_counts
from forebay.store.backends.filesystem import (
    READ_FLAGS,
    Folders,
    ignore_missing,
    translate_os_errors,
    unlock,
)
from forebay.system import files
from forebay.system.descriptors import close_quietly

__all__ = ["LocalCountTable"]

_FOLDER = "calls"
_FILE_PATTERN = re.compile(r"(\d{4}-\d\d-\d\d)\.json", re.ASCII)
_TEMPORARY_NAME = ".unfinished"
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | files.SAFE_OPEN_FLAGS

_LOCK_TIMEOUT_SECONDS = 1.0
"""How long to wait for another process that writes counts."""

_MAX_DAYS = 400
_MAX_TOTAL_BYTES = 16 << 20


class LocalCountTable:
    """Counts of a root, in one file for each day."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders

    def add(self, day: str, rows: Mapping[CountKey, Sequence[int]]) -> None:
        """Add to the counts of a day."""
        with translate_os_errors:
            self._add(f"{day}.json", rows)

    def _add(self, name: str, rows: Mapping[CountKey, Sequence[int]]) -> None:
        self._folders.refresh()
        folder_fd = self._folders.get_fd(_FOLDER, create=True)
        with _lock_folder(folder_fd):
            totals = self._read_day(name)
            is_new = not totals
            for key, values in rows.items():
                add_counts(totals, key, values)
            data = encode_counts(totals)
            fd = files.open_file(_TEMPORARY_NAME, _WRITE_FLAGS, folder_fd)
            try:
                files.ensure_private(fd)
                if os.write(fd, data) < len(data):
                    raise OSError("the disk is full")
            finally:
                close_quietly(fd)
            files.rename(_TEMPORARY_NAME, folder_fd, name, folder_fd)
            if is_new:
                # The counts are written: an error must not make the caller add them again.
                with contextlib.suppress(OSError, ForebayError):
                    self._remove_old_days(folder_fd)

    def _remove_old_days(self, folder_fd: int) -> None:
        total = 0
        for number, name in enumerate(self._list_file_names()):
            with ignore_missing:
                total += files.stat_file(name, folder_fd).st_size
                if number >= _MAX_DAYS or (number and total > _MAX_TOTAL_BYTES):
                    files.remove_file(name, folder_fd)

    def _list_file_names(self) -> list[str]:
        """Return the names of the files, newest first."""
        with translate_os_errors, ignore_missing:
            names = self._folders.retry(lambda: files.list_names(self._folders.get_fd(_FOLDER)))
            return sorted(filter(_FILE_PATTERN.fullmatch, names), reverse=True)
        return []

    def _read_day(self, name: str) -> dict[CountKey, list[int]]:
        """Return the counts in a file; none if it is missing or damaged."""
        with translate_os_errors, ignore_missing:
            fd = files.open_file(name, READ_FLAGS, self._folders.get_fd(_FOLDER))
            try:
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    with open(fd, "rb", closefd=False) as file:
                        return decode_counts(file.read())
            finally:
                close_quietly(fd)
        return {}

    def read(self) -> Iterator[tuple[str, dict[CountKey, list[int]]]]:
        """Return the days and their counts, newest first."""
        for name in self._list_file_names():
            yield name.removesuffix(".json"), self._read_day(name)


@contextlib.contextmanager
def _lock_folder(folder_fd: int) -> Iterator[None]:
    """Lock a folder against other processes. Raises `BlockingIOError` if one of them holds the lock for too long."""
    fd = files.open_lock(folder_fd)
    try:
        deadline = time.monotonic() + _LOCK_TIMEOUT_SECONDS
        while True:
            try:
                files.lock(fd, wait=False)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(0.01)
        yield
    finally:
        if unlock(fd):
            close_quietly(fd)
