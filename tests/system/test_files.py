"""Files and folders by descriptors behave the same on all systems."""

import errno
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from forebay.system import files
from forebay.system.descriptors import close_quietly
from on_wine import IS_WINE

NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | files.SAFE_OPEN_FLAGS
READ = os.O_RDONLY | files.SAFE_OPEN_FLAGS


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    files.create_private_folder(tmp_path / "folder")
    fd = files.open_folder(tmp_path / "folder")
    yield fd
    close_quietly(fd)


def write(name: str, data: bytes, folder: int) -> None:
    fd = files.open_file(name, NEW, folder)
    assert files.write_parts(fd, [data[:1], data[1:]]) == len(data)
    os.close(fd)


def read(name: str, folder: int) -> bytes:
    fd = files.open_file(name, READ, folder)
    try:
        return files.read_at(fd, 1000, 0)
    finally:
        os.close(fd)


def test_bytes_are_written_and_read_unchanged(folder: int) -> None:
    data = bytes(range(256)) + b"\r\n\x1a\n"
    write("file", data, folder)
    assert read("file", folder) == data


def test_each_read_and_write_has_its_own_position(folder: int) -> None:
    fd = files.open_file("file", NEW, folder)
    assert files.write_at(fd, b"abc", 4) == 3
    assert files.read_at(fd, 10, 4) == b"abc"
    assert files.read_at(fd, 10, 7) == b""
    assert files.read_at(fd, 0, 0) == b""
    assert files.read_at(fd, 2, 5) == b"bc"
    os.close(fd)


def test_an_existing_name_is_not_created_again(folder: int) -> None:
    write("file", b"one", folder)
    with pytest.raises(FileExistsError):
        files.open_file("file", NEW, folder)
    with pytest.raises(FileExistsError):
        files.make_private_folder("file", folder)


def test_missing_files_and_folders_are_not_found(folder: int, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.open_file("file", READ, folder)
    with pytest.raises(FileNotFoundError):
        files.stat_file("file", folder)
    with pytest.raises(FileNotFoundError):
        files.remove_file("file", folder)
    with pytest.raises(FileNotFoundError):
        files.open_folder(tmp_path / "missing")


def test_a_file_is_not_opened_as_a_folder(folder: int, tmp_path: Path) -> None:
    write("file", b"one", folder)
    with pytest.raises(NotADirectoryError):
        files.open_subfolder("file", folder)
    with pytest.raises(NotADirectoryError):
        files.open_folder(tmp_path / "folder" / "file")


@pytest.mark.xfail(IS_WINE, reason="Wine does not replace an open file")
def test_an_open_file_is_replaced_and_stays_readable(folder: int) -> None:
    write("old", b"old", folder)
    write("new", b"new", folder)
    fd = files.open_file("old", READ, folder)
    files.rename("new", folder, "old", folder)
    assert files.read_at(fd, 10, 0) == b"old"
    os.close(fd)
    assert read("old", folder) == b"new"
    assert files.list_names(folder) == ["old"]


def test_an_open_file_is_removed_and_its_name_is_free(folder: int) -> None:
    write("file", b"old", folder)
    fd = files.open_file("file", READ, folder)
    assert not files.is_removed(os.fstat(fd), fd)
    files.remove_file("file", folder)
    assert files.is_removed(os.fstat(fd), fd)
    assert files.read_at(fd, 10, 0) == b"old"
    write("file", b"new", folder)
    os.close(fd)
    assert read("file", folder) == b"new"


def test_rename_new_never_replaces_a_file(folder: int) -> None:
    write("one", b"1", folder)
    write("two", b"2", folder)
    with pytest.raises(FileExistsError):
        files.rename_new("one", "two", folder)
    files.rename_new("one", "three", folder)
    assert (read("two", folder), read("three", folder)) == (b"2", b"1")


def test_files_move_between_folders(folder: int) -> None:
    files.make_private_folder("sub", folder)
    sub = files.open_subfolder("sub", folder)
    write("file", b"1", folder)
    files.rename("file", folder, "moved", sub)
    assert read("moved", sub) == b"1"
    with pytest.raises(OSError):  # noqa: PT011 - each system has its own error
        files.remove_folder("sub", folder)
    files.remove_file("moved", sub)
    os.close(sub)
    files.remove_folder("sub", folder)
    assert files.list_names(folder) == []


def test_an_open_folder_is_removed(folder: int) -> None:
    files.make_private_folder("sub", folder)
    sub = files.open_subfolder("sub", folder)
    files.remove_folder("sub", folder)
    assert files.is_removed(os.fstat(sub), sub)
    files.make_private_folder("sub", folder)
    os.close(sub)


def test_many_names_are_listed(folder: int) -> None:
    names = {f"file-{number}-{'x' * 100}" for number in range(500)}
    for name in names:
        write(name, b"1", folder)
    files.make_private_folder("folder", folder)
    assert set(files.iter_file_names(folder)) == names
    assert set(files.list_names(folder)) == names | {"folder"}
    assert len(files.list_names(folder)) == 501


def test_appended_lines_stay_whole(folder: int) -> None:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | files.SAFE_OPEN_FLAGS
    one, two = (files.open_file("log", flags, folder) for _ in range(2))
    for number in range(10):
        os.write(one, b"one %d\n" % number)
        os.write(two, b"two %d\n" % number)
    assert files.read_at(one, 10_000, 0).count(b"\n") == 20
    os.close(one)
    os.close(two)


def test_a_lock_excludes_other_descriptors_and_not_readers(folder: int) -> None:
    write("file", b"data", folder)
    one, two = (files.open_file("file", os.O_RDWR | files.SAFE_OPEN_FLAGS, folder) for _ in range(2))
    files.lock(one)
    # Locking a second time does nothing.
    files.lock(one)
    with pytest.raises(BlockingIOError):
        files.lock(two, wait=False)
    assert files.read_at(two, 10, 0) == b"data"
    assert files.write_at(two, b"more", 4) == 4
    files.unlock(one)
    files.lock(two, wait=False)
    os.close(two)
    files.lock(one, wait=False)
    os.close(one)


def test_a_folder_can_be_locked(folder: int) -> None:
    one, two = files.open_lock(folder), files.open_lock(folder)
    files.lock(one)
    with pytest.raises(BlockingIOError):
        files.lock(two, wait=False)
    os.close(one)
    files.lock(two, wait=False)
    os.close(two)


def test_a_temporary_file_is_read_by_its_path_and_leaves_nothing(tmp_path: Path) -> None:
    check_temporary(tmp_path)


def check_temporary(folder: Path) -> None:
    fd, path, name = files.create_temporary(str(folder))
    os.write(fd, b"data")
    with os.fdopen(files.open_shared(path), "rb") as file:
        assert file.read() == b"data"
    os.close(fd)
    if name is not None:
        Path(name).unlink()
    assert list(folder.iterdir()) == []


@pytest.mark.posix
def test_a_system_without_nameless_files_has_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    check_temporary(tmp_path)


@pytest.mark.posix
def test_folders_are_entered_without_o_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS has no such flag. There, entering a folder needs permission to read it."""
    from forebay.system import posix_files

    monkeypatch.delattr(os, "O_PATH", raising=False)
    spec = importlib.util.spec_from_file_location("without_o_path", posix_files.__file__)
    assert spec
    assert spec.loader
    without_o_path = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(without_o_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    root = without_o_path.enter_root(str(tmp_path))
    os.close(without_o_path.enter_folder("folder", root))
    with pytest.raises(NotADirectoryError):
        without_o_path.enter_folder("link", root)
    os.close(root)


class FakeFcntl(ModuleType):
    """The module `fcntl` of macOS, which has an operation that flushes the cache of the disk."""

    F_FULLFSYNC = 51

    def __init__(self, error_number: int) -> None:
        super().__init__("fcntl")
        self.error_number = error_number
        self.calls: list[int] = []

    def fcntl(self, _fd: int, operation: int) -> None:
        self.calls.append(operation)
        if self.error_number:
            raise OSError(self.error_number, os.strerror(self.error_number))


@pytest.mark.posix
@pytest.mark.parametrize(("error_number", "fsync_count"), [(0, 0), (errno.ENOTSUP, 1), (errno.EINVAL, 1)])
def test_macos_is_asked_to_write_through(
    error_number: int, fsync_count: int, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from forebay.system import posix_files

    fake, fsyncs = FakeFcntl(error_number), list[int]()
    monkeypatch.setattr(posix_files, "fcntl", fake)
    monkeypatch.setattr(os, "fsync", fsyncs.append)
    files.sync(folder)
    assert (fake.calls, len(fsyncs)) == ([51], fsync_count)


@pytest.mark.posix
def test_an_error_of_the_disk_is_not_taken_for_missing_support(folder: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from forebay.system import posix_files

    monkeypatch.setattr(posix_files, "fcntl", FakeFcntl(errno.EIO))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        files.sync(folder)


@pytest.mark.skipif(sys.platform != "win32", reason="needs Windows")
@pytest.mark.parametrize("name", ["NUL", "a:b", "a/b", r"a\b", "..", "x" * 300])
def test_a_special_name_of_windows_opens_nothing(name: str, folder: int) -> None:
    with pytest.raises(OSError):  # noqa: PT011 - not found, too long or not valid
        files.open_file(name, READ, folder)


@pytest.mark.skipif(sys.platform != "win32", reason="needs Windows")
def test_a_new_file_and_a_new_folder_are_private(folder: int, tmp_path: Path) -> None:
    write("file", b"secret", folder)
    fd = files.open_file("file", READ, folder)
    assert files.describe_readers(fd, "file") is None
    os.close(fd)
    assert files.describe_foreign_access(folder, tmp_path) is None
