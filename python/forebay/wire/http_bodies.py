"""HTTP bodies as they arrive: incremental decompression, and a parser of server-sent events of any size."""

import dataclasses
import re
import zlib
from collections.abc import Iterator

from forebay.wire.framing import Line, LineBuffer

__all__ = ["ACCEPT_ENCODING", "Event", "EventParser", "Inflater", "is_compression"]

ACCEPT_ENCODING = "gzip, deflate"

_IDENTITY_CODING_PATTERN = re.compile(
    r"|identity|none|binary|[78]bit|utf-?(8|16|32)([bl]e)?|(us-)?ascii|iso-8859-\d+|windows-\d+|shift[_-]jis|gb\w+|euc-\w+"
)
"""Values of `Content-Encoding` that some servers send for uncompressed bodies: mail encodings and charsets.

Any other value may be an unknown compression, so it is an error.
"""

_GZIP_FIRST_BYTE = 0x1F

_MAX_CHUNK_BYTES = 1024 * 1024
"""Maximum bytes of a decompressed chunk, because a few compressed bytes may expand to very many."""


def is_compression(name: str) -> bool:
    """Return whether a `Content-Encoding` names a compression."""
    return not _IDENTITY_CODING_PATTERN.fullmatch(name)


class Inflater:
    """Incremental decompressor for one `Content-Encoding`.

    Raises `ValueError` for damaged data, with a message that continues a sentence such as "the request …".
    """

    def __init__(self, content_coding: str) -> None:
        self._coding = content_coding
        self._decompressor: zlib._Decompress | None = None
        self._problem = f"what is not {content_coding}, as it says"

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the decompressed bytes of a chunk."""
        remaining = chunk
        while remaining:
            if self._decompressor is None:
                self._decompressor = self._new_decompressor(remaining)
            elif self._decompressor.eof:
                # Zero padding or another gzip stream may follow; anything else is an error.
                remaining = remaining.lstrip(b"\0")
                if not remaining:
                    return
                self._problem = f"{self._coding} with something else behind its end; it may have been carried out"
                if self._coding == "deflate" or remaining[0] != _GZIP_FIRST_BYTE:
                    raise ValueError(f"was answered {self._problem}")
                self._decompressor = self._new_decompressor(remaining)
            try:
                data = self._decompressor.decompress(remaining, _MAX_CHUNK_BYTES)
            except zlib.error as error:
                raise ValueError(f"was answered {self._problem}: {error}") from None
            remaining = self._decompressor.unused_data if self._decompressor.eof else self._decompressor.unconsumed_tail
            if data:
                yield data

    def finish(self) -> bytes:
        """Return the remaining bytes; raise `ValueError` if the body is truncated."""
        if self._decompressor is None or self._decompressor.eof:
            return b""
        last = self._decompressor.flush()
        if not self._decompressor.eof:
            raise ValueError(f"was answered {self._coding} that ends too early; it may have been carried out")
        return last

    def _new_decompressor(self, first_bytes: bytes) -> "zlib._Decompress":
        if self._coding in ("gzip", "x-gzip"):
            return zlib.decompressobj(16 + zlib.MAX_WBITS)
        if self._coding == "deflate":
            # The standard requires a zlib header, whose low four bits are 8; many servers omit it.
            return zlib.decompressobj(zlib.MAX_WBITS if first_bytes[0] & 0x0F == 8 else -zlib.MAX_WBITS)
        raise ValueError(
            f"was answered in the encoding {self._coding[:64]!r}, which was not asked for and cannot be read"
        )


_DATA_FIELD = b"data:"
_BOM = b"\xef\xbb\xbf"
_MAX_PART_BYTES = 64 * 1024
"""Maximum bytes to split into lines at once, because each line takes memory of its own."""

_MAX_FIELD_BYTES = 64 * 1024
"""Maximum bytes of a line other than `data`; longer ones are cut."""


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """A complete server-sent event."""

    name: str
    data: Line
    """The data lines, joined by spaces: the same JSON as with newlines, but on one line, as messages must be."""

    @property
    def is_message(self) -> bool:
        """Whether the event has a message. An event without data only sets the id to resume from."""
        return self.name == "message" and bool(self.data)


class EventParser:
    """Parser of an event stream. It also keeps what a client needs to resume the stream: event id and delay."""

    def __init__(self, data_buffer: LineBuffer) -> None:
        self._data_buffer = data_buffer
        self.last_event_id = ""
        """Id of the last complete event."""
        self.retry_seconds: float | None = None
        """Seconds to wait before reconnecting, if the server has set them."""
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
        """Drop the incomplete event at the end of a stream, and prepare for the stream that resumes it."""
        self._data_buffer.discard()
        self._reset_stream()

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Yield the events that are completed by a chunk."""
        if self._bom_prefix is not None:
            chunk = self._strip_bom(self._bom_prefix + chunk)
        for start in range(0, len(chunk), _MAX_PART_BYTES):
            yield from self._feed_part(chunk[start : start + _MAX_PART_BYTES])

    def _feed_part(self, part: bytes) -> Iterator[Event]:
        if self._ends_with_cr and part.startswith(b"\n"):
            part = part[1:]
        self._ends_with_cr = part.endswith(b"\r")
        if b"\r" in part:
            part = part.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = part.split(b"\n")
        is_after_blank = False
        for number, line in enumerate(lines):
            # Comments, and blank lines after a blank line, change nothing. A server may send millions of them.
            if number and (line.startswith(b":") or (is_after_blank and not line)):
                continue
            is_after_blank = number > 0 and not line
            self._append(line)
            if (event := self._end_line()) is not None:
                yield event
        self._append(rest)

    def _strip_bom(self, first_bytes: bytes) -> bytes:
        """Remove the byte order mark that may start a stream."""
        if len(first_bytes) < len(_BOM) and _BOM.startswith(first_bytes):
            self._bom_prefix = first_bytes
            return b""
        self._bom_prefix = None
        return first_bytes.removeprefix(_BOM)

    def _append(self, chunk: bytes) -> None:
        """Append part of a line; the value of a `data:` field goes straight to the data buffer."""
        if self._is_data_line:
            self._data_buffer.append(chunk)
            return
        # Collect one byte more than `data:`, because a space after the colon is not part of the data.
        missing = len(_DATA_FIELD) + 1 - len(self._line)
        if missing > 0:
            self._line += chunk[:missing]
            chunk = chunk[missing:]
            if len(self._line) > len(_DATA_FIELD) and self._line.startswith(_DATA_FIELD):
                self._begin_data(bytes(self._line[len(_DATA_FIELD) :]).removeprefix(b" "))
                self._data_buffer.append(chunk)
                return
        self._line += chunk[: _MAX_FIELD_BYTES - len(self._line)]

    def _begin_data(self, first_bytes: bytes) -> None:
        if self._has_data:
            self._data_buffer.append(b" ")
        self._has_data = self._is_data_line = True
        self._data_buffer.append(first_bytes)

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
        event = Event(self._name or "message", self._data_buffer.take()) if self._has_data else None
        self._reset_event()
        return event
