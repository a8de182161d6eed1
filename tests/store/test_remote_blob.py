"""Reads of a remote object: the same bytes as those of the object, in few requests."""

import pytest
from forebay import HandleNotFound
from forebay.store.backends import remote_blob
from forebay.store.backends.remote_blob import RemoteBlob
from hypothesis import given
from hypothesis import strategies as st


class Remote:
    """An object that counts the requests for it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.requests: list[tuple[int, int]] = []
        self.checks = 0
        self.is_gone = False

    def fetch(self, start: int, length: int) -> bytes:
        if self.is_gone:
            raise HandleNotFound("gone")
        assert length > 0
        assert start + length <= len(self.data)
        self.requests.append((start, length))
        return self.data[start : start + length]

    def check(self) -> None:
        self.checks += 1
        if self.is_gone:
            raise HandleNotFound("gone")

    def open(self, tail_bytes: int = 0) -> RemoteBlob:
        tail = self.data[len(self.data) - tail_bytes :]
        return RemoteBlob(self.fetch, self.check, size=len(self.data), modified_at=0, version=1, tail=tail)


@given(
    size=st.integers(0, 300),
    tail_bytes=st.integers(0, 300),
    piece_bytes=st.integers(1, 100),
    reads=st.lists(
        st.tuples(st.sampled_from(["any", "next", "inside", "ahead"]), st.integers(0, 310), st.integers(0, 60))
    ),
)
def test_reads_return_the_bytes_of_the_object(
    size: int, tail_bytes: int, piece_bytes: int, reads: list[tuple[str, int, int]]
) -> None:
    remote = Remote(bytes(number % 251 for number in range(size)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote_blob, "READ_AHEAD_BYTES", piece_bytes)
        blob = remote.open(min(tail_bytes, size))
        position = 0
        for kind, start, length in reads:
            if kind == "ahead":
                blob.read_ahead()
            start = {"next": position, "inside": max(0, position - length // 2)}.get(kind, start)
            assert blob.read(start, length) == remote.data[start : start + length]
            position = start + length


def test_an_object_that_is_read_in_order_is_fetched_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_blob, "READ_AHEAD_BYTES", 1000)
    for tail_bytes, hint, expected in ((0, False, 3 + 10), (300, True, 10), (0, True, 10)):
        remote = Remote(bytes(10_000))
        blob = remote.open(tail_bytes)
        if hint:
            blob.read_ahead()
        assert b"".join(blob.read(start, 7) for start in range(0, 10_000, 7)) == remote.data
        assert len(remote.requests) <= expected


def test_reads_here_and_there_are_exact() -> None:
    remote = Remote(bytes(10_000))
    blob = remote.open(300)
    for start in (5000, 100, 5000, 9900):
        blob.read(start, 50)
    assert remote.requests == [(5000, 50), (100, 50), (5000, 50)]


def test_a_read_shows_that_the_object_exists() -> None:
    remote = Remote(bytes(1000))
    blob = remote.open(100)
    blob.check()
    blob = remote.open()
    blob.read(5, 5)
    blob.check()
    assert remote.checks == 0
    remote.is_gone = True
    blob = remote.open()
    with pytest.raises(HandleNotFound):
        blob.check()
    with pytest.raises(HandleNotFound):
        blob.read(0, 1)
