"""What is swapped between the look and the opening is never read."""

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


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_bytes(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "file").write_bytes(b"top")
    (root / "a" / "b" / "file").write_bytes(b"deep")
    return root


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "folder"])
def test_what_is_put_in_its_place_after_the_first_look_is_refused(
    root: Path, outside: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, looks = files._check_regular, []

    def check_and_swap(status: os.stat_result, path: str) -> None:
        check(status, path)
        looks.append(status)
        if len(looks) > 1:
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
    assert len(looks) == 1


def test_a_file_that_is_swapped_all_the_time_is_never_another_one(root: Path, outside: Path) -> None:
    def swap(number: int) -> None:
        new = root / f"new{number}"
        if number % 2:
            new.symlink_to(outside / "file")
        else:
            new.write_bytes(b"inside")
        new.replace(root / "swapped")

    swap(0)
    assert_never_outside(FileRoots([root], None), "swapped", swap, lambda: (root / "swapped").read_bytes())


def test_a_folder_that_is_swapped_all_the_time_is_never_another_one(root: Path, outside: Path) -> None:
    folder, kept = root / "a" / "swapped", root / "a" / "kept"
    kept.mkdir()
    (kept / "file").write_bytes(b"inside")

    def swap(number: int) -> None:
        if number % 2:
            folder.rename(kept)
            folder.symlink_to(outside)
        else:
            folder.unlink(missing_ok=True)
            kept.rename(folder)

    swap(0)
    assert_never_outside(FileRoots([root], None), "a/swapped/file", swap, lambda: (folder / "file").read_bytes())


def assert_never_outside(
    roots: FileRoots, path: str, swap: Callable[[int], None], naively: Callable[[], bytes], tries: int = 4000
) -> None:
    is_over = threading.Event()

    def keep_swapping() -> None:
        number = 1
        while not is_over.is_set():
            swap(number)
            number += 1

    seen: set[bytes | type] = set()
    is_exposed = False
    thread = threading.Thread(target=keep_swapping)
    thread.start()
    try:
        ends = time.monotonic() + 60
        done = 0
        # As long as it takes to have met both, and to have seen that a plain opening falls for it.
        while done < tries or not (is_exposed and b"inside" in seen and FileRefDenied in seen):
            assert time.monotonic() < ends, (seen, is_exposed)
            with contextlib.suppress(OSError):
                is_exposed = is_exposed or naively() == SECRET
            try:
                seen.add(read(roots, path))
            except ForebayError as error:
                seen.add(type(error))
            done += 1
    finally:
        is_over.set()
        thread.join()
    assert seen <= {b"inside", FileRefDenied, FileRefNotFound}
