"""Server-sent events, of any size, out of chunks that end anywhere."""

import dataclasses
from collections.abc import Iterator

from forebay.wire.framing import Line, LineBuffer

__all__ = ["Event", "EventParser"]

_DATA_FIELD = b"data:"
_BOM = b"\xef\xbb\xbf"
_MAX_FIELD_BYTES = 64 * 1024
"""How long a line may be that is no data."""


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """One event that came whole."""

    name: str
    data: Line
    """Its lines as one, with spaces between: to JSON it is the same, and a message is one line."""

    @property
    def is_message(self) -> bool:
        """Some are empty: they only say where to go on."""
        return self.name == "message" and bool(self.data)


class EventParser:
    """The events of a stream, and where to go on when it breaks off."""

    def __init__(self, data: LineBuffer) -> None:
        self._data = data
        self.last_event_id = ""
        """Of the last event that came whole."""
        self.retry_seconds: float | None = None
        """After how many seconds the server wants to be asked again."""
        self._reset_stream()

    def _reset_stream(self) -> None:
        self._line = bytearray()
        self._is_data_line = False
        self._ends_with_cr = False
        self._bom_prefix: bytes | None = b""
        self._id = self.last_event_id
        self._reset_event()

    def _reset_event(self) -> None:
        self._name = ""
        self._has_data = False

    def discard(self) -> None:
        """The stream has ended: what of an event has come so far is none, and another stream may go on."""
        self._data.discard()
        self._reset_stream()

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that end in a chunk."""
        if self._bom_prefix is not None:
            chunk = self._strip_bom(self._bom_prefix + chunk)
        view = memoryview(chunk)
        start = 1 if self._ends_with_cr and chunk[:1] == b"\n" else 0
        if chunk:
            self._ends_with_cr = False
        # Each is looked for once over the chunk, however many there are of the other.
        feed, carriage = chunk.find(b"\n", start), chunk.find(b"\r", start)
        while feed >= 0 or carriage >= 0:
            end = feed if carriage < 0 or 0 <= feed < carriage else carriage
            self._append(view[start:end])
            if (event := self._end_line()) is not None:
                yield event
            start = end + 1
            if end == carriage:
                self._ends_with_cr = start == len(chunk)
                start += chunk[start : start + 1] == b"\n"
                carriage = chunk.find(b"\r", start)
            if 0 <= feed < start:
                feed = chunk.find(b"\n", start)
        self._append(view[start:])

    def _strip_bom(self, start: bytes) -> bytes:
        """A stream may begin with a mark of its byte order, which is none of its first line."""
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._bom_prefix = start
            return b""
        self._bom_prefix = None
        return start.removeprefix(_BOM)

    def _append(self, piece: memoryview) -> None:
        """Part of a line. What is data is never copied into a line first."""
        if self._is_data_line:
            self._data.append(piece)
            return
        # One byte more than the name, because a space after it is none of the data.
        missing = len(_DATA_FIELD) + 1 - len(self._line)
        if missing > 0:
            self._line += piece[:missing]
            piece = piece[missing:]
            if len(self._line) > len(_DATA_FIELD) and self._line.startswith(_DATA_FIELD):
                self._begin_data(bytes(self._line[len(_DATA_FIELD) :]).removeprefix(b" "))
                self._data.append(piece)
                return
        self._line += piece[: _MAX_FIELD_BYTES - len(self._line)]

    def _begin_data(self, start: bytes) -> None:
        if self._has_data:
            self._data.append(b" ")
        self._has_data = self._is_data_line = True
        self._data.append(start)

    def _end_line(self) -> Event | None:
        line, self._line = bytes(self._line), bytearray()
        if self._is_data_line:
            self._is_data_line = False
        elif line in (b"data", _DATA_FIELD):
            self._begin_data(b"")
            self._is_data_line = False
        elif line:
            self._set_field(line)
        else:
            return self._end_event()
        return None

    def _set_field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._name = value.decode(errors="replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode(errors="replace")
        elif name == b"retry" and value.isdigit():
            self.retry_seconds = int(value[:9]) / 1000

    def _end_event(self) -> Event | None:
        self.last_event_id = self._id
        event = Event(self._name or "message", self._data.take()) if self._has_data else None
        self._reset_event()
        return event
