"""A file swapped between the check and the open is never read."""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from forebay import FileRefDenied, FileRefNotFound, ForebayError
from forebay.outputs.references import files
from forebay.outputs.references.files import FileRoots
from refs_files import SECRET, read, read_refused

pytestmark = pytest.mark.slow


@pytest.mark.posix
@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "folder"])
def test_a_file_swapped_after_the_check_is_refused(
    root: Path, outside: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, checks = files._check_regular, []

    def check_and_swap(status: os.stat_result, path: str) -> None:
        check(status, path)
        checks.append(status)
        if len(checks) > 1:
            return
        (root / "file").unlink()
        match kind:
            case "link":
                (root / "file").symlink_to(outside / "file")
            case "hard link":
                (root / "file").hardlink_to(outside / "file")
            case "pipe":
                os.mkfifo(root / "file")
            case "folder":
                (root / "file").mkdir()

    monkeypatch.setattr(files, "_check_regular", check_and_swap)
    assert read_refused(FileRoots([root], None), "file")
    assert len(checks) == 1


@pytest.mark.posix
def test_a_constantly_swapped_file_never_reads_outside(root: Path, outside: Path) -> None:
    def swap(number: int) -> None:
        new = root / f"new{number}"
        if number % 2:
            new.symlink_to(outside / "file")
        else:
            new.write_bytes(b"inside")
        new.replace(root / "swapped")

    swap(0)
    assert_never_outside(FileRoots([root], None), "swapped", swap, lambda: (root / "swapped").read_bytes())


@pytest.mark.posix
def test_a_constantly_swapped_folder_never_reads_outside(root: Path, outside: Path) -> None:
    folder, saved = root / "a" / "swapped", root / "a" / "saved"
    saved.mkdir()
    (saved / "file").write_bytes(b"inside")

    def swap(number: int) -> None:
        if number % 2:
            folder.rename(saved)
            folder.symlink_to(outside)
        else:
            folder.unlink(missing_ok=True)
            saved.rename(folder)

    swap(0)
    assert_never_outside(FileRoots([root], None), "a/swapped/file", swap, lambda: (folder / "file").read_bytes())


def assert_never_outside(
    roots: FileRoots,
    path: str,
    swap: Callable[[int], None],
    read_naively: Callable[[], bytes],
    min_attempts: int = 4000,
) -> None:
    is_finished = threading.Event()

    def keep_swapping() -> None:
        number = 1
        while not is_finished.is_set():
            swap(number)
            number += 1

    outcomes: set[bytes | type] = set()
    is_exposed = False
    thread = threading.Thread(target=keep_swapping)
    thread.start()
    try:
        deadline = time.monotonic() + 60
        attempts = 0
        # Go on until both outcomes occurred and a plain open was fooled.
        while attempts < min_attempts or not (is_exposed and b"inside" in outcomes and FileRefDenied in outcomes):
            assert time.monotonic() < deadline, (outcomes, is_exposed)
            with contextlib.suppress(OSError):
                is_exposed = is_exposed or read_naively() == SECRET
            try:
                outcomes.add(read(roots, path))
            except ForebayError as error:
                outcomes.add(type(error))
            attempts += 1
    finally:
        is_finished.set()
        thread.join()
    assert outcomes <= {b"inside", FileRefDenied, FileRefNotFound}
