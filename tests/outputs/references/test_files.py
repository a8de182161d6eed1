"""Files below the roots can be read; every way around the roots is refused."""

import contextlib
import errno
import os
import socket
from pathlib import Path

import pytest
from forebay import FileRefDenied, FileRefNotFound, ForebayError, InvalidArgument
from forebay.outputs.references.files import FileRoots
from forebay.system import files
from forebay.system.files import is_pseudo_device
from refs_files import SECRET, read, read_refused


@pytest.mark.parametrize("path", ["a/b/file", "./a/b/file", "a//b/./file", "a/b/file/"])
def test_a_path_is_relative_to_the_first_root(root: Path, outside: Path, path: str) -> None:
    assert read(FileRoots([root, outside], None), path) == b"deep"


def test_an_absolute_path_is_below_any_root(root: Path, outside: Path) -> None:
    roots = FileRoots([str(root), outside], None)
    assert read(roots, str(root / "file")) == b"top"
    assert read(roots, str(outside / "file")) == SECRET


@pytest.mark.posix
def test_a_root_may_be_a_link_or_relative(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(root)
    monkeypatch.chdir(tmp_path)
    for named in (tmp_path / "link", "link", "root"):
        roots = FileRoots([named], None)
        assert read(roots, "file") == b"top"
        assert read(roots, str(tmp_path / Path(named).name / "file")) == b"top"
        assert read(roots, str(root / "file")) == b"top"


def test_the_filesystem_root_may_be_a_root(root: Path) -> None:
    assert read(FileRoots([root.anchor], None), str(root / "file")) == b"top"
    assert read(FileRoots([root.anchor], None), str((root / "file").relative_to(root.anchor))) == b"top"


@pytest.mark.parametrize(
    "path",
    ["../outside/file", "a/../file", "a/b/../../../outside/file", "..", "a/..", "/../etc/passwd", "file\0", "\ud800"],
)
def test_a_path_with_dots_or_bad_characters_is_refused(root: Path, outside: Path, path: str) -> None:
    assert outside.exists()
    assert "write a plain path" in read_refused(FileRoots([root], None), path)


@pytest.mark.posix
def test_errors_reveal_nothing_outside_the_roots(root: Path, outside: Path) -> None:
    roots = FileRoots([root], None)
    existing, missing = str(outside / "file"), str(outside / "none")
    assert read_refused(roots, existing).replace("file", "none") == read_refused(roots, missing).replace("file", "none")
    assert read_refused(roots, f"{root}side/file")
    assert str(root) in read_refused(roots, existing)
    assert (
        "symbolic link"
        in read_through_link(root, outside / "file", roots)
        == read_through_link(root, outside / "none", roots)
    )


def read_through_link(root: Path, target: Path, roots: FileRoots) -> str:
    link = root / "link"
    link.symlink_to(target)
    try:
        return read_refused(roots, "link")
    finally:
        link.unlink()


def test_without_roots_every_file_is_refused() -> None:
    assert "file_roots is empty" in read_refused(FileRoots([], None), "file")
    assert "file_roots is empty" in read_refused(FileRoots([], None), "/etc/passwd")


@pytest.mark.parametrize("path", ["none", "a/none", "none/file", "file/none", "n" * 10_000 + "/b"])
def test_a_missing_file_is_not_found(root: Path, path: str) -> None:
    with pytest.raises((FileRefNotFound, FileRefDenied)) as caught:
        read(FileRoots([root], None), path)
    assert len(str(caught.value)) < 600
    assert isinstance(caught.value, FileRefNotFound) or len(path) > 10_000


@pytest.mark.posix
@pytest.mark.parametrize("link", ["link", "a/link", "a/b/link"])
@pytest.mark.parametrize("inside", [True, False])
def test_a_symbolic_link_is_refused(root: Path, outside: Path, link: str, inside: bool) -> None:
    target = root / "file" if inside else outside / "file"
    (root / link).symlink_to(target)
    assert (root / link).read_bytes()
    assert "symbolic link" in read_refused(FileRoots([root], None), link)


@pytest.mark.posix
@pytest.mark.parametrize("link_path", ["link", "a/link", "a/b/link"])
def test_a_link_in_the_path_is_refused(root: Path, outside: Path, link_path: str) -> None:
    (root / link_path).symlink_to(outside)
    assert (root / link_path / "file").read_bytes() == SECRET
    assert "symbolic link" in read_refused(FileRoots([root], None), f"{link_path}/file")
    assert "symbolic link" in read_refused(FileRoots([root], None), f"{link_path}/none")


@pytest.mark.posix
def test_a_root_that_becomes_a_link_is_refused(root: Path, outside: Path, tmp_path: Path) -> None:
    roots = FileRoots([root], None)
    root.rename(tmp_path / "moved")
    root.symlink_to(outside)
    assert "symbolic link" in read_refused(roots, "file")


@pytest.mark.posix
def test_a_pipe_is_refused_without_blocking(root: Path) -> None:
    os.mkfifo(root / "pipe")
    assert "a pipe" in read_refused(FileRoots([root], None), "pipe")


@pytest.mark.posix
def test_a_socket_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        assert "a socket" in read_refused(FileRoots([root], None), "socket")


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/dev/tty"])
def test_a_device_is_refused(path: str) -> None:
    assert read_refused(FileRoots(["/"], None), path)


@pytest.mark.posix
@pytest.mark.parametrize("path", ["version", "{pid}/environ", "{pid}/status", "{pid}/mountinfo"])
def test_proc_files_are_refused(path: str) -> None:
    path = "/proc/" + path.format(pid=os.getpid())
    assert Path(path).read_bytes()
    assert "not a file on a disk" in read_refused(FileRoots(["/"], None), path)


@pytest.mark.posix
def test_a_file_of_size_zero_with_content_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "is_pseudo_device", lambda device: not device)
    assert "not a file on a disk" in read_refused(FileRoots(["/"], None), "/proc/version")


def test_files_on_a_pseudo_device_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "is_pseudo_device", root.stat().st_dev.__eq__)
    assert "not a file on a disk" in read_refused(FileRoots([root], None), "file")


@pytest.mark.posix
def test_is_pseudo_device_reads_the_mounts(root: Path) -> None:
    assert is_pseudo_device(Path("/proc/version").stat().st_dev)
    assert not is_pseudo_device(root.stat().st_dev)


@pytest.mark.posix
def test_a_system_without_a_list_of_mounts_has_no_pseudo_devices(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.system.posix_files._MOUNT_INFO", root / "missing")
    assert not is_pseudo_device(Path("/proc/version").stat().st_dev)


@pytest.mark.posix
def test_proc_links_are_refused(root: Path) -> None:
    with (root / "file").open() as file:
        assert "symbolic link" in read_refused(FileRoots(["/"], None), "/proc/self/environ")
        assert read_refused(FileRoots(["/"], None), f"/proc/{os.getpid()}/fd/{file.fileno()}")
        assert read_refused(FileRoots(["/"], None), f"/proc/{os.getpid()}/root{root}/file")


@pytest.mark.parametrize("path", ["a", "a/b", ".", "", "a/"])
def test_a_folder_is_refused(root: Path, path: str) -> None:
    assert "is a folder" in read_refused(FileRoots([root], None), path)


def test_a_hard_link_is_refused(root: Path, outside: Path) -> None:
    os.link(outside / "file", root / "hard")
    assert "copy it" in read_refused(FileRoots([root], None), "hard")


def test_the_store_is_refused_below_any_root(root: Path) -> None:
    store = root / "a"
    for allowed in (root.anchor, root, store, store / "b"):
        roots = FileRoots([allowed], store)
        assert "$handle" in read_refused(roots, str(store / "b" / "file"))
    assert read(FileRoots([root], store), "file") == b"top"
    store.rename(root / "moved")
    assert read(FileRoots([root], store), "moved/b/file") == b"deep"


def test_a_root_has_to_be_a_folder(root: Path) -> None:
    for invalid in ("none", root / "file"):
        with pytest.raises(InvalidArgument, match="is no folder; make it"):
            FileRoots([invalid], None)
    with pytest.raises(InvalidArgument, match="a list of folders"):
        FileRoots(str(root), None)


def test_appended_bytes_are_not_read(root: Path) -> None:
    with FileRoots([root], None).open("file") as file:
        (root / "file").write_bytes(b"top and more")
        assert file.size == 3
        assert file.read(0, file.size) == b"top"


def test_a_read_error_is_reported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with FileRoots([root], None).open("file") as file:
        monkeypatch.setattr(files, "read_at", fail)
        with pytest.raises(FileRefDenied, match=f"cannot be read: {os.strerror(errno.EIO)}; name another one"):
            file.read(0, 3)


@pytest.mark.posix
def test_no_descriptor_leaks(root: Path, outside: Path) -> None:
    (root / "link").symlink_to(outside)
    before = len([*Path("/proc/self/fd").iterdir()])
    roots = FileRoots([root], None)
    for path in ("file", "a/b/file", "none", "a/none", "link/file", "a", "../x"):
        for _ in range(20):
            with contextlib.suppress(ForebayError):
                read(roots, path)
    assert len([*Path("/proc/self/fd").iterdir()]) == before
