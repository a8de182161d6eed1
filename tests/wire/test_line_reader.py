"""The lines of a file descriptor, however they are cut into reads."""

import os
from pathlib import Path
from unittest import mock

import pytest
from forebay.wire import framing
from forebay.wire.framing import LineReader, Spool
from hypothesis import given
from hypothesis import strategies as st


@given(
    st.lists(st.sampled_from([b"\n", b"a", b"bc", b"\r", b"x" * 30]), max_size=40).map(b"".join),
    st.integers(1, 40),
    st.sampled_from([20, 1000]),
)
def test_lines_are_those_between_newlines(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, read_bytes: int, spool_above_bytes: int
) -> None:
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)

    def make_spool() -> Spool:
        return Spool(Path(tmp_path_factory.getbasetemp()))

    with mock.patch.object(framing, "_READ_BYTES", read_bytes), os.fdopen(reading) as file:
        reader = LineReader(file.fileno(), spool_above_bytes=spool_above_bytes, make_spool=make_spool)
        batches = [*reader.batches()]
    assert all(batches)
    lines = [
        b"".join(line.chunks()) if isinstance(line, Spool) else bytes(line)  # type: ignore[arg-type]
        for lines in batches
        for line in lines
    ]
    assert lines == [line for line in data.split(b"\n") if line]
