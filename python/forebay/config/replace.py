"""Changes a file at once or not at all, and keeps what it was."""

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from forebay.errors import ForebayError, InvalidArgument

__all__ = ["FileNotChanged", "replaced"]

_SUFFIX = ".forebay-backup"


class FileNotChanged(ForebayError, OSError):
    """A file could not be written; it is as it was."""

    code = "file_not_changed"


class _NotOurs(OSError):
    """A new file cannot be given to whom the old one belongs, who could not read it then."""


def replaced(path: str, old: bytes, new: bytes) -> Path:
    """Writes `new` in place of `old`, and says where the backup is. Its owner and permissions stay.

    Raises `InvalidArgument` if someone changed the file since `old` was read.
    """
    # A link to the file stays a link.
    file = Path(os.path.realpath(path))
    try:
        backup = _kept(file, old)
        temporary = _written(file, new)
        try:
            if file.read_bytes() != old:
                raise InvalidArgument(f"{path} was changed meanwhile, and is as it was left; run this again")
            temporary.replace(file)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except _NotOurs:
        raise FileNotChanged(f"{path} belongs to another user or group; run this as its owner") from None
    except OSError as error:
        raise FileNotChanged(f"{path} cannot be changed: {error.strerror}; it is as it was") from None
    return backup


def _kept(file: Path, old: bytes) -> Path:
    """A backup beside the file: one that has these bytes already, else a new one."""
    for backup in _names(file):
        try:
            descriptor = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            if backup.read_bytes() == old:
                return backup
            continue
        _fill(descriptor, backup, file, old)
        return backup
    raise AssertionError("names do not end")


def _names(file: Path) -> Iterator[Path]:
    yield file.with_name(file.name + _SUFFIX)
    number = 2
    while True:
        yield file.with_name(f"{file.name}{_SUFFIX}-{number}")
        number += 1


def _written(file: Path, new: bytes) -> Path:
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    _fill(descriptor, Path(name), file, new)
    return Path(name)


def _fill(descriptor: int, new: Path, like: Path, data: bytes) -> None:
    """Writes a new file whole, or takes it away again: half of a backup is none."""
    try:
        with open(descriptor, "wb") as out:
            _own_like(descriptor, like.stat())
            out.write(data)
            out.flush()
            os.fsync(descriptor)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _own_like(descriptor: int, like: os.stat_result) -> None:
    try:
        os.fchown(descriptor, like.st_uid, like.st_gid)
    except PermissionError:
        raise _NotOurs from None
    # A change of owners may take permissions away.
    os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
