"""A file that is changed still belongs to whom it did."""

import os
import stat
from pathlib import Path

import pytest
from forebay.config.files import FileNotChanged, replace_file

pytestmark = pytest.mark.posix

OLD, NEW = b'{"a": 1}', b'{"a": 2}'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of another owner if the tests run as root, else of another group."""
    file = tmp_path / "clients.json"
    file.write_bytes(OLD)
    is_root = os.geteuid() == 0
    os.chown(file, 12345 if is_root else -1, 12345 if is_root else os.getgroups()[-1])
    file.chmod(0o640)
    return file


def test_the_owner_the_group_and_the_permissions_stay(file: Path) -> None:
    before = file.stat()
    backup = replace_file(str(file), OLD, NEW)
    assert (file.read_bytes(), backup.read_bytes()) == (NEW, OLD)
    for path in (file, backup):
        after = path.stat()
        assert (after.st_uid, after.st_gid, stat.S_IMODE(after.st_mode)) == (before.st_uid, before.st_gid, 0o640)


def test_what_cannot_be_given_back_is_not_written(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "fchown", refuse)
    with pytest.raises(FileNotChanged, match="belongs to another user or group; run this as its owner"):
        replace_file(str(file), OLD, NEW)
    assert file.read_bytes() == OLD
    assert [*file.parent.iterdir()] == [file]
