"""The event-stream parser, compared with a naive parser and cut at every byte."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from forebay.wire.framing import LineBuffer, LostMessage, Spool
from forebay.wire.http_bodies import Event, EventParser
from hypothesis import given
from hypothesis import strategies as st

Outcome = tuple[list[tuple[str, bytes]], str, float | None]

FRAGMENTS = [
    b"data:", b"data", b"dat", b": ", b":", b" ", b"id:", b"id: 7", b"event:", b"event: other", b"retry:", b"retry: 25",
    b"\r", b"\n", b"\r\n", b"\n\n", b"\r\r", b"x", b'{"a": 1}', b"\xef\xbb\xbf", b"\xef", b"\xbb", b"\0", b"message",
    b"5", b"\xff",
]  # fmt: skip

TYPICAL = (
    b'\xef\xbb\xbf: a comment\r\nid: 1\r\nretry: 1500\r\ndata:\r\n\r\nevent: message\ndata: {"a":\ndata:  1}\nid: 2\n\n'
    b"event: other\rdata: x\r\rdata\n\ndata: whole\nid: 3\r\n\r\nid\ndatab: no\n\nid: 9\ndata: never ends\n"
)


def parse_naively(stream: bytes) -> Outcome:
    """Parse a complete stream as the specification says."""
    *lines, _ = re.split(rb"\r\n|\r|\n", stream.removeprefix(b"\xef\xbb\xbf"))
    events: list[tuple[str, bytes]] = []
    data: list[bytes] = []
    name, next_id, last_id, retry = b"", b"", b"", None
    for line in lines:
        field, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        if not line:
            last_id = next_id
            if data:
                events.append((name.decode(errors="replace") or "message", b" ".join(data)))
            data, name = [], b""
        elif field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
        elif field == b"id" and b"\0" not in value:
            next_id = value
        elif field == b"retry" and re.fullmatch(rb"[0-9]+", value):
            retry = int(value) / 1000
    return events, last_id.decode(errors="replace"), retry


def parse_chunks(chunks: Iterable[bytes]) -> Outcome:
    events = EventParser(LineBuffer(1 << 20, no_spool))
    found = [(event.name, content(event)) for chunk in chunks for event in events.feed(chunk)]
    return found, events.last_event_id, events.retry_seconds


def no_spool() -> Spool:
    raise AssertionError("nothing here is large")


def content(event: Event) -> bytes:
    assert not isinstance(event.data, LostMessage)
    return b"".join(event.data.chunks()) if isinstance(event.data, Spool) else bytes(event.data)


def test_a_typical_stream() -> None:
    events, last_id, retry = parse_chunks([TYPICAL])
    assert events == [
        ("message", b""),
        ("message", b'{"a":  1}'),
        ("other", b"x"),
        ("message", b""),
        ("message", b"whole"),
    ]
    assert (last_id, retry) == ("", 1.5)
    assert parse_naively(TYPICAL) == (events, last_id, retry)


def test_a_stream_is_the_same_wherever_it_is_cut() -> None:
    whole = parse_naively(TYPICAL)
    for first in range(len(TYPICAL) + 1):
        assert parse_chunks([TYPICAL[:first], TYPICAL[first:]]) == whole
        for second in range(first, min(first + 8, len(TYPICAL))):
            assert parse_chunks([TYPICAL[:first], TYPICAL[first:second], b"", TYPICAL[second:]]) == whole
    assert parse_chunks(TYPICAL[at : at + 1] for at in range(len(TYPICAL))) == whole


def test_a_stream_that_ends_anywhere_gives_the_complete_events() -> None:
    for end in range(len(TYPICAL) + 1):
        assert parse_chunks([TYPICAL[:end]]) == parse_naively(TYPICAL[:end])


@pytest.mark.slow
@given(st.lists(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map(b"".join), max_size=8))
def test_any_stream_is_parsed_as_specified(chunks: list[bytes]) -> None:
    assert parse_chunks(chunks) == parse_naively(b"".join(chunks))


@pytest.mark.slow
@given(st.lists(st.sampled_from([*FRAGMENTS, b"\n", b"\r\n", b": c\n", b"data: y\n\n"]), max_size=25).map(b"".join))
def test_any_stream_is_parsed_as_specified_wherever_it_is_cut(stream: bytes) -> None:
    whole = parse_naively(stream)
    for cut in range(len(stream) + 1):
        assert parse_chunks([stream[:cut], stream[cut:]]) == whole
    assert parse_chunks(stream[at : at + 1] for at in range(len(stream))) == whole


@pytest.mark.parametrize("line", [b":", b": c", b"", b"data: x\r\n\r\n: c", b"id: 7", b"event: e\ndata: y\n"])
@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_a_stream_longer_than_a_part_is_parsed_as_specified(line: bytes, end: bytes) -> None:
    for shift in range(3):
        stream = b":" + b"c" * shift + end + (line + end) * (150_000 // len(line + end)) + end + b"data: z" + end + end
        assert parse_chunks([stream]) == parse_naively(stream)


class CountingParser(EventParser):
    """Parser that counts the lines and pieces that it handles one by one."""

    count = 0

    def _append(self, chunk: bytes) -> None:
        self.count += 1
        super()._append(chunk)


@pytest.mark.parametrize("line", [b":\n", b": comment\n", b"\n", b"\r\n", b"\r", b":\r"])
def test_lines_without_meaning_are_skipped_at_once(line: bytes) -> None:
    events = CountingParser(LineBuffer(1000, no_spool))
    stream = line * (1_000_000 // len(line))
    assert list(events.feed(stream)) == []
    assert events.count < 100
    assert [content(event) for event in events.feed(b"data: x\n\n")] == [b"x"]


def test_discard_drops_an_incomplete_event() -> None:
    events = EventParser(LineBuffer(1 << 20, no_spool))
    assert list(events.feed(b"id: 1\n\nid: 2\nevent: e\ndata: half")) == []
    events.discard()
    assert events.last_event_id == "1"
    assert [(event.name, content(event)) for event in events.feed(b"data: whole\n\n")] == [("message", b"whole")]
    assert events.last_event_id == "1"


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_large_data_of_an_event_is_spooled(tmp_path: Path, end: bytes) -> None:
    events = EventParser(LineBuffer(1000, lambda: Spool(str(tmp_path))))
    text = b"x" * 300_000
    stream = b"data:" + text + end + b"data: " + text + end + end + b"data: small" + end + end

    def chunks() -> Iterator[bytes]:
        yield from (stream[start : start + 999] for start in range(0, len(stream), 999))

    large, small = [event for chunk in chunks() for event in events.feed(chunk)]
    assert isinstance(large.data, Spool)
    assert content(large) == text + b" " + text
    assert isinstance(small.data, bytearray)
    assert content(small) == b"small"
    large.data.close()


def test_a_long_comment_line_takes_little_memory() -> None:
    events = EventParser(LineBuffer(1000, no_spool))
    for _ in range(100):
        assert list(events.feed(b":" + b"c" * 10_000)) == []
    assert len(events._line) <= 64 * 1024
    assert [content(event) for event in events.feed(b"\ndata: x\n\n")] == [b"x"]
