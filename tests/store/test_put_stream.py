"""Streams are read in chunks of one size, whatever they consist of."""

import io
import os
from collections.abc import Iterator
from pathlib import Path

import forebay
import pytest
from forebay.store.payload import CHUNK_BYTES, iter_chunks


@pytest.fixture
def store(tmp_path: Path) -> Iterator[forebay.Store]:
    with forebay.open_store((tmp_path / "store").as_uri()) as store:
        yield store


class RecordingFile(io.BytesIO):
    """A file that records the sizes it was read with, and cannot be read by lines."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.sizes: list[int | None] = []

    def read(self, size: int | None = -1, /) -> bytes:
        self.sizes.append(size)
        return super().read(size)

    def __next__(self) -> bytes:
        raise AssertionError("one line of a file may be all of it")


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES + 7])
def test_a_file_is_read_in_pieces(size: int) -> None:
    data = (b"0123456789" * (size // 10 + 1))[:size]
    file = RecordingFile(data)
    pieces = [bytes(piece) for piece in iter_chunks(file)]
    assert b"".join(pieces) == data
    assert all(len(piece) == CHUNK_BYTES for piece in pieces[:-1])
    assert set(file.sizes) == {CHUNK_BYTES}


def test_a_stored_file_is_returned_unchanged(store: forebay.Store) -> None:
    data = b'["' + b"a long line, " * (CHUNK_BYTES // 5) + b'"]'
    descriptor = store.put(RecordingFile(data))
    assert descriptor.mime_type == "application/json"
    with store.open(descriptor.output_handle) as file:
        assert file.read() == data


@pytest.mark.posix
def test_a_non_blocking_file_without_data_is_an_error(store: forebay.Store) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.write(writer, b"the first half")
    with (
        os.fdopen(reader, "rb", buffering=0) as file,
        pytest.raises(forebay.InvalidArgument, match="nothing to read yet"),
    ):
        store.put(file)
    os.close(writer)
    assert list(store.list()) == []
