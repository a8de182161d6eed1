"""Large messages on a disk that fails, and what is known of a message that was lost."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from forebay.errors import StoreFull, StoreUnavailable
from forebay.store import Store, open_store
from forebay.wire.framing import HeadTail, LineBuffer, LostMessage, Spool, create_spool
from forebay.wire.lazy_json import as_lazy, dump
from forebay.wire.messages import replace_result


def _fail(*_: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_line_that_cannot_be_written_keeps_its_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = LineBuffer(10, lambda: Spool(tmp_path))
    monkeypatch.setattr(os, "write", _fail)
    lines.append(b'{"id":1,"result"')
    lines.append(b":2}")
    line = lines.take()
    assert isinstance(line, LostMessage)
    assert isinstance(line.error, StoreFull)
    assert (line.size, line.head_tail.find_id()) == (19, 1)
    assert line.head_tail.tail.endswith(b'"result":2}')


def test_an_incomplete_line_is_dropped_with_its_file(tmp_path: Path) -> None:
    spools: list[Spool] = []

    def make_spool() -> Spool:
        spools.append(Spool(tmp_path))
        return spools[-1]

    lines = LineBuffer(10, make_spool)
    for content in (b"short", b"longer than ten bytes"):
        lines.append(content)
        assert lines
        lines.discard()
        assert not lines
    assert [spool._finalizer.alive for spool in spools] == [False]
    assert [*tmp_path.iterdir()] == []


@pytest.mark.posix
def test_a_spool_is_in_the_temporary_folder_if_the_store_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    store: Store
    with open_store(tmp_path / "store") as store:
        (tmp_path / "store").rename(tmp_path / "elsewhere")
        (tmp_path / "store").write_bytes(b"no folder")
        with create_spool(store) as spool:
            assert spool.folder == str(tmp_path)
        with pytest.raises(StoreUnavailable):
            Spool(tmp_path / "store")


@pytest.mark.parametrize("head", [b'{"id":"\\ud8', b'{"id":"\\x",', b'{"id":"\x01","method"'])
def test_an_id_that_is_no_json_is_not_found(head: bytes) -> None:
    assert HeadTail(head, b"").find_id() is None


def test_a_result_that_is_no_object_is_replaced_with_its_message() -> None:
    raw = b'{"jsonrpc":"2.0","id":1,"result":[1]}'
    message = {"jsonrpc": "2.0", "id": 7, "result": {"tools": []}}
    assert replace_result(raw, message, [1]) == dump(message)


def test_an_unparsed_value_shows_its_size_but_not_its_content(tmp_path: Path) -> None:
    with Spool(tmp_path) as spool:
        spool.write(b'"secret"')
        assert [repr(as_lazy(b'"secret"')), repr(as_lazy(spool))] == [
            "LazyJSON(8 bytes in memory)",
            "LazyJSON(8 bytes in a spool)",
        ]
