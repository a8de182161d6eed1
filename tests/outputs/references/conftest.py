"""Folders with files that references may and may not read."""

from pathlib import Path

import pytest
from refs_files import SECRET


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
