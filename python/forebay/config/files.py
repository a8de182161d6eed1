"""Replacement of a user's file: atomic, with a backup beside it."""

import itertools
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from forebay.errors import ForebayError, InvalidArgument
from forebay.system import files

__all__ = ["FileNotChanged", "read_backups", "replace_file"]

_BACKUP_SUFFIX = ".forebay-backup"
_WRITE_BITS = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


class FileNotChanged(ForebayError, OSError):
    """A file could not be written and is unchanged."""

    code = "file_not_changed"


class _OwnerMismatch(OSError):
    """The new file cannot be given to the owner of the old file, who could then not read the new file."""


def replace_file(path: str, old_content: bytes, new_content: bytes) -> Path:
    """Replace the content of a file atomically, and return the path of the backup. Owner and permissions are kept.

    Raises `InvalidArgument` if the file no longer holds `old_content`, and `FileNotChanged` if it cannot be written.
    """
    # If the path is a symbolic link, replace the file that it points to, not the link.
    file = Path(os.path.realpath(path))
    try:
        if not file.stat().st_mode & _WRITE_BITS:
            # Renaming would succeed, but whoever made the file read-only does not want it to change.
            raise FileNotChanged(f"{path} is read-only; run chmod u+w on it, or change it where it is made")
        backup = _write_backup(file, old_content)
        temporary = _write_temporary(file, new_content)
        try:
            if file.read_bytes() != old_content:
                raise InvalidArgument(f"{path} was changed meanwhile, and is as it was left; run this again")
            files.replace(temporary, file)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except _OwnerMismatch:
        raise FileNotChanged(f"{path} belongs to another user or group; run this as its owner") from None
    except FileNotChanged:
        raise
    except OSError as error:
        raise FileNotChanged(f"{path} cannot be changed: {error.strerror}; it is as it was") from None
    return backup


def read_backups(path: str) -> list[bytes]:
    """Return the contents of a file's backups, oldest name first."""
    file = Path(os.path.realpath(path))
    names = itertools.takewhile(Path.is_file, _iter_backup_names(file))
    return [backup.read_bytes() for backup in names]


def _write_backup(file: Path, content: bytes) -> Path:
    """Write a backup beside the file, unless there is one with the same bytes."""
    names = _iter_backup_names(file)
    while True:
        backup = next(names)
        try:
            descriptor = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            if backup.read_bytes() == content:
                return backup
        else:
            _write_file(descriptor, backup, file, content)
            return backup


def _iter_backup_names(file: Path) -> Iterator[Path]:
    yield file.with_name(file.name + _BACKUP_SUFFIX)
    for number in itertools.count(2):
        yield file.with_name(f"{file.name}{_BACKUP_SUFFIX}-{number}")


def _write_temporary(file: Path, content: bytes) -> Path:
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    _write_file(descriptor, Path(name), file, content)
    return Path(name)


def _write_file(descriptor: int, new_path: Path, old_path: Path, data: bytes) -> None:
    """Write a new file with the owner and permissions of the old one. If this fails, remove the new file."""
    try:
        with open(descriptor, "wb") as out:
            _copy_ownership(descriptor, old_path.stat())
            out.write(data)
            out.flush()
            os.fsync(descriptor)
    except BaseException:
        new_path.unlink(missing_ok=True)
        raise


def _copy_ownership(descriptor: int, old_status: os.stat_result) -> None:
    try:
        files.copy_ownership(descriptor, old_status)
    except PermissionError:
        raise _OwnerMismatch from None
