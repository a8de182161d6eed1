r"""References on Windows: `C:\folder\file`, shares, and names that lead elsewhere."""

import sys
from pathlib import Path

import pytest
from forebay import FileRefDenied
from forebay.outputs.references.files import FileRoots
from refs_files import read, read_refused

pytestmark = pytest.mark.skipif(sys.platform != "win32", reason="needs Windows")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "Data" / "sub").mkdir(parents=True)
    (tmp_path / "Data" / "sub" / "a.txt").write_bytes(b"inside")
    (tmp_path / "b.txt").write_bytes(b"outside")
    return tmp_path / "Data"


def test_a_path_has_either_slash_and_any_case(folder: Path) -> None:
    roots = FileRoots([folder], None)
    path = folder / "sub" / "a.txt"
    for text in (str(path), path.as_posix(), str(path).upper(), r"sub\a.txt", "sub/A.TXT", r"sub/.\a.txt"):
        assert read(roots, text) == b"inside"


@pytest.mark.parametrize(
    "path",
    ["NUL", "sub/COM1.txt", "sub/a.txt:stream", "sub/a.txt::$DATA", "sub/a.txt.", "sub/a.txt ", "sub./a.txt", "a?.txt"],
)
def test_a_name_with_a_meaning_is_refused(path: str, folder: Path) -> None:
    assert "Windows" in read_refused(FileRoots([folder], None), path)


def test_no_path_leads_out(folder: Path) -> None:
    roots = FileRoots([folder], None)
    outside = folder.parent / "b.txt"
    drive = folder.drive
    for path in (
        str(outside),
        f"{drive}b.txt",
        rf"\{outside.relative_to(outside.anchor)}",
        rf"\\?\{outside}",
        rf"\\.\{outside}",
        r"\\.\pipe\x",
        r"\\server\share\b.txt",
        r"sub\..\..\b.txt",
    ):
        with pytest.raises(FileRefDenied), roots.open(path):
            pass
