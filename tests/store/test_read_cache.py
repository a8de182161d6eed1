"""The cache of remote reads: the bytes of the object whatever becomes of the cache, and bounded."""

import errno
import os
import threading
from pathlib import Path

import pytest
from forebay import HandleNotFound, InvalidArgument
from forebay.store.backends import read_cache
from forebay.store.backends.read_cache import CachedBlob, ReadCache
from forebay.store.backends.remote_blob import RemoteBlob
from forebay.system import files
from hypothesis import given
from hypothesis import strategies as st
from stores import noise

PIECE = 10


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_cache, "PIECE_BYTES", PIECE)


class Remote:
    """An object that counts the requests for it."""

    def __init__(self, data: bytes, version: int = 0) -> None:
        self.data = data
        self.version = version
        self.fetched_bytes = self.checks = 0
        self.is_gone = False

    def fetch(self, start: int, length: int) -> bytes:
        self.check(is_counted=False)
        self.fetched_bytes += length
        return self.data[start : start + length]

    def check(self, *, is_counted: bool = True) -> None:
        self.checks += is_counted
        if self.is_gone:
            raise HandleNotFound("gone")

    def open(self, cache: ReadCache, tail_bytes: int = 0) -> CachedBlob:
        tail = self.data[len(self.data) - tail_bytes :]
        blob = RemoteBlob(self.fetch, self.check, size=len(self.data), modified_at=0, version=self.version, tail=tail)
        return CachedBlob(blob, "oh_A", cache)


def file_size(cache: ReadCache) -> int:
    assert cache._file is not None
    return os.fstat(cache._file.fileno()).st_size


reads = st.tuples(
    st.integers(0, 1),
    st.integers(0, 95),
    st.integers(0, 110),
    st.integers(0, 60),
    st.sampled_from(["", "ahead", "damage"]),
)


@given(slots=st.integers(0, 6), steps=st.lists(reads, max_size=25))
def test_reads_return_the_bytes_of_the_object(slots: int, steps: list[tuple[int, int, int, int, str]]) -> None:
    objects = [Remote(noise(95, number), number) for number in range(2)]
    cache = ReadCache(slots * PIECE + 3)
    for number, tail_bytes, start, length, event in steps:
        remote = objects[number]
        if event == "damage" and cache._slots:
            slot = next(iter(cache._slots.values()))
            assert cache._file is not None
            files.write_at(cache._file.fileno(), b"wrong", slot.number * PIECE)
        with remote.open(cache, tail_bytes) as blob:
            if event == "ahead":
                blob.read_ahead()
            for shift in (0, 4):
                assert blob.read(start + shift, length) == remote.data[start + shift : start + shift + length]
        assert file_size(cache) <= slots * PIECE
        assert len(cache._slots) <= slots
    cache.close()


def test_what_is_in_the_cache_takes_one_short_request() -> None:
    remote, cache = Remote(noise(95)), ReadCache(1000)
    remote.open(cache).read(25, 30)
    assert (remote.fetched_bytes, remote.checks) == (40, 0)
    with remote.open(cache) as blob:
        assert blob.read(31, 20) == remote.data[31:51]
        assert blob.read(20, 5) == remote.data[20:25]
        blob.check()
    assert (remote.fetched_bytes, remote.checks) == (40, 1)
    with remote.open(cache) as blob:
        # Only what is missing is fetched.
        assert blob.read(0, 95) == remote.data
    assert (remote.fetched_bytes, remote.checks) == (95, 1)
    with remote.open(cache, tail_bytes=10) as blob:
        blob.read(85, 10)
    assert (remote.fetched_bytes, remote.checks) == (95, 1)
    cache.close()


def test_what_is_deleted_is_not_found() -> None:
    remote, cache = Remote(noise(95)), ReadCache(1000)
    remote.open(cache).read(0, 95)
    remote.is_gone = True
    with remote.open(cache) as blob, pytest.raises(HandleNotFound):
        blob.read(30, 5)
    cache.close()


def test_another_version_is_another_object() -> None:
    old, new, cache = Remote(noise(50, 1), 1), Remote(noise(50, 2), 2), ReadCache(1000)
    old.open(cache).read(0, 50)
    assert new.open(cache).read(0, 50) == new.data
    cache.close()


def test_the_least_recently_used_pieces_make_room() -> None:
    remote, cache = Remote(noise(95)), ReadCache(3 * PIECE)
    for start in (0, 10, 20, 0, 30):
        remote.open(cache).read(start, 10)
    fetched = remote.fetched_bytes
    for start in (20, 0, 30):
        remote.open(cache).read(start, 10)
    assert remote.fetched_bytes == fetched
    remote.open(cache).read(10, 10)
    assert remote.fetched_bytes == fetched + 10
    cache.close()


def test_a_scan_of_a_large_object_leaves_the_cache_alone() -> None:
    small, large, cache = Remote(noise(20), 1), Remote(noise(500), 2), ReadCache(30)
    small.open(cache).read(0, 20)
    with large.open(cache) as blob:
        blob.read_ahead()
        assert b"".join(blob.read(start, 7) for start in range(0, 500, 7)) == large.data
    small.open(cache).read(0, 20)
    assert small.fetched_bytes == 20
    cache.close()


@pytest.mark.parametrize("function", ["read_at", "write_at"])
def test_a_disk_that_fails_turns_the_cache_off(
    function: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    remote, cache = Remote(noise(95)), ReadCache(1000)
    remote.open(cache).read(0, 50)

    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files, function, fail)
        assert remote.open(cache).read(20, 60) == remote.data[20:80]
        assert remote.open(cache).read(20, 60) == remote.data[20:80]
    assert [record.message for record in caplog.records] == [
        f"forebay: the read cache is off: {os.strerror(errno.ENOSPC)}"
    ]
    assert remote.open(cache).read(20, 60) == remote.data[20:80]
    assert cache._file is None
    cache.close()


def test_a_short_write_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    remote, cache, write_at = Remote(noise(95)), ReadCache(1000), files.write_at
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_at", lambda fd, data, offset: write_at(fd, data[:3], offset))
        remote.open(cache).read(0, 50)
    assert not cache._slots
    assert remote.open(cache).read(0, 50) == remote.data[:50]
    assert len(cache._slots) == 5
    cache.close()


def test_threads_share_a_cache() -> None:
    remotes, cache = [Remote(noise(95, number), number) for number in range(4)], ReadCache(80)
    wrong: list[int] = []

    def read(seed: int) -> None:
        for step in range(300):
            remote, start = remotes[(seed + step) % 4], (seed * 31 + step * 17) % 95
            if remote.open(cache).read(start, 25) != remote.data[start : start + 25]:
                wrong.append(start)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert file_size(cache) <= 80
    cache.close()


@pytest.mark.posix
def test_a_forked_child_has_a_cache_of_its_own() -> None:
    remote, cache = Remote(noise(95)), ReadCache(1000)
    remote.open(cache).read(0, 95)
    child = os.fork()
    if child == 0:
        other = Remote(noise(95, 7), 7)
        is_right = all(each.open(cache).read(0, 95) == each.data for each in (remote, other, remote, other))
        os._exit(0 if is_right and remote.fetched_bytes == 190 and other.fetched_bytes == 95 else 1)
    assert os.waitpid(child, 0)[1] == 0
    fetched = remote.fetched_bytes
    assert remote.open(cache).read(0, 95) == remote.data
    assert remote.fetched_bytes == fetched
    cache.close()


@pytest.mark.posix
def test_a_closed_cache_is_a_cache_without_pieces(tmp_path: Path) -> None:
    remote, cache = Remote(noise(95)), ReadCache(1000, tmp_path)
    remote.open(cache).read(0, 95)
    # The file has no name.
    assert [*tmp_path.iterdir()] == []
    cache.close()
    cache.close()
    assert remote.open(cache).read(0, 95) == remote.data


def test_a_folder_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="name another folder as read_cache_folder"):
        ReadCache(1000, tmp_path / "missing")
