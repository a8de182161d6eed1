"""With `durability="power"` the folders that lead to a new root are synced too."""

import os
from pathlib import Path

import pytest
from faults import opened


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files and folders that were synced, as their paths at that time."""
    paths: list[Path] = []
    sync = os.fsync

    def watched(fd: int) -> None:
        paths.append(Path(f"/proc/self/fd/{fd}").readlink())
        sync(fd)

    monkeypatch.setattr(os, "fsync", watched)
    return paths


@pytest.mark.posix
def test_the_parents_of_a_new_root_are_synced(tmp_path: Path, synced: list[Path]) -> None:
    with opened(tmp_path / "a" / "b" / "store", durability="power"):
        assert set(synced) == {tmp_path, tmp_path / "a", tmp_path / "a" / "b"}
    synced.clear()
    with opened(tmp_path / "a" / "b" / "store", durability="power") as store:
        assert synced == []
        store.put(b"payload")
        assert tmp_path / "a" / "b" / "store" in synced


@pytest.mark.posix
def test_a_root_that_is_created_again_is_synced_again(tmp_path: Path, synced: list[Path]) -> None:
    root = tmp_path / "store"
    with opened(root, durability="power") as store:
        root.rmdir()
        synced.clear()
        store.put(b"payload")
        assert tmp_path in synced


def test_nothing_is_synced_by_default(tmp_path: Path, synced: list[Path]) -> None:
    with opened(tmp_path / "a" / "store") as store:
        store.put(b"payload")
    assert synced == []
