"""Decoding of payloads that are text in disguise: gzip, UTF-16, Windows-1252, or another declared charset.

Such a payload is stored as it is, and its text beside it as UTF-8, so that a page of the text costs as little as one of
any other payload. Decoding for each page instead would read the payload from its start every time.
"""

import codecs
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from typing_extensions import Buffer

from forebay._core import Survey
from forebay.store.payload import CHUNK_BYTES

__all__ = ["CannotOpen", "Decoding", "find_decoding"]

_MAX_DECODED_BYTES = 1 << 30
"""Maximum size of the text in a gzip payload."""

_MAX_RATIO = 200
"""Maximum expansion of a gzip payload, beyond `_MIN_CHECKED_BYTES`. Logs and records expand to 5 to 50 times."""

_MIN_CHECKED_BYTES = 16 << 20

_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_WINDOW_BITS = 31
"""Tells zlib to expect the header and checksum of gzip."""

_GZIP_STEP_BYTES = 16 << 10
"""Bytes that are decompressed in one step. After each member of a gzip file, zlib copies those that remain."""

_BYTE_ORDER_MARKS = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))

_CHARSET_PATTERN = re.compile(r';\s*charset\s*=\s*"?([\w.:+-]+)', re.IGNORECASE)
_CHARSETS = re.compile(
    r"utf-(16|32)(-[lb]e)?|iso8859-\d+|cp125\d|koi8-[ru]|mac-roman|shift_jis|cp932|euc_(jp|kr)|gbk|gb2312|gb18030|big5"
)
"""Python's names of the charsets that are decoded if they are declared."""


class CannotOpen(Exception):
    """A gzip payload is damaged or expands too much. The message continues "this gzip payload"."""


class Decoding(NamedTuple):
    """How to decode a payload: unzip it, then decode the charset."""

    is_gzip: bool
    charset: str | None

    @property
    def name(self) -> str:
        """What the text is decoded from, such as `gzip` or `gzip of utf-16-le`."""
        return " of ".join(filter(None, ("gzip" if self.is_gzip else "", self.charset)))

    def decode(self, chunks: Iterable[Buffer]) -> Iterator[bytes]:
        """Decode chunks to UTF-8, in bounded memory."""
        plain = _gunzip(chunks) if self.is_gzip else map(bytes, chunks)
        return plain if self.charset is None else _decode_charset(plain, self.charset)


def find_decoding(read_chunks: Callable[[], Iterator[Buffer]], mime_type: str | None) -> Decoding | None:
    """Return how to decode a payload that is not UTF-8, or `None` if it is binary.

    `read_chunks` starts over each time. A charset that the MIME type declares is tried first. Raises `CannotOpen`.
    """
    head = bytes(next(read_chunks(), b""))
    if not head.startswith(_GZIP_MAGIC):
        charset = _find_charset(read_chunks, mime_type)
        return None if charset is None else Decoding(False, charset)
    # Read to the end before anything is stored, so that a bomb takes no space.
    is_text = _is_text(_gunzip(read_chunks()))
    charset = None if is_text else _find_charset(lambda: _gunzip(read_chunks()), mime_type)
    return Decoding(True, charset) if is_text or charset is not None else None


def _find_charset(read_chunks: Callable[[], Iterator[Buffer]], mime_type: str | None) -> str | None:
    """Return the charset of a text that is not UTF-8, or `None` if it seems to be binary."""
    head = bytes(next(read_chunks(), b""))
    marked = [charset for mark, charset in _BYTE_ORDER_MARKS if head.startswith(mark)]
    candidates = [*_get_declared_charset(mime_type), *marked]
    for charset in candidates:
        try:
            if _is_text(_decode_charset(map(bytes, read_chunks()), charset)):
                return charset
        except UnicodeError:
            continue
    return "windows-1252" if not marked and _looks_like_windows_1252(map(bytes, read_chunks())) else None


def _get_declared_charset(mime_type: str | None) -> list[str]:
    match = _CHARSET_PATTERN.search(mime_type or "")
    try:
        name = codecs.lookup(match[1]).name if match else ""
    except LookupError:
        return []
    return [name] if _CHARSETS.fullmatch(name) else []


def _is_text(chunks: Iterable[bytes]) -> bool:
    survey = Survey(is_json=False)
    for chunk in chunks:
        survey.feed(chunk)
    return survey.finish().nature == "text"


def _decode_charset(chunks: Iterator[bytes], charset: str) -> Iterator[bytes]:
    """Decode chunks without the byte order mark, which UTF-8 does not need. Raises `UnicodeError`."""
    decoder = codecs.getincrementaldecoder(charset)()
    is_start = True
    for chunk in chunks:
        text = decoder.decode(chunk)
        if text:
            yield (text.removeprefix("\ufeff") if is_start else text).encode()
            is_start = False
    yield decoder.decode(b"", True).encode()


def _iter_steps(chunks: Iterable[Buffer]) -> Iterator[bytes]:
    for chunk in chunks:
        view = memoryview(chunk)
        for start in range(0, len(view), _GZIP_STEP_BYTES):
            yield bytes(view[start : start + _GZIP_STEP_BYTES])


def _gunzip(chunks: Iterable[Buffer]) -> Iterator[bytes]:
    """Decompress all members of a gzip file. Raises `CannotOpen` if it is damaged or expands too much."""
    decompressor = None
    read, written = 0, 0
    for data in _iter_steps(chunks):
        read += len(data)
        while data or decompressor is not None:
            if decompressor is None:
                # Padding may follow a member.
                data = data.lstrip(b"\0")
                if not data:
                    break
                decompressor = zlib.decompressobj(_GZIP_WINDOW_BITS)
            try:
                plain = decompressor.decompress(data, CHUNK_BYTES)
            except zlib.error:
                raise CannotOpen("is damaged") from None
            written += len(plain)
            if written > _MAX_DECODED_BYTES:
                raise CannotOpen(f"holds more than {_MAX_DECODED_BYTES:,} bytes")
            if written > max(_MIN_CHECKED_BYTES, read * _MAX_RATIO):
                raise CannotOpen(f"expands to more than {_MAX_RATIO} times its size")
            if plain:
                yield plain
            if decompressor.eof:
                data, decompressor = decompressor.unused_data, None
            elif decompressor.unconsumed_tail or len(plain) == CHUNK_BYTES:
                data = decompressor.unconsumed_tail
            else:
                break
    if decompressor is not None:
        raise CannotOpen("ends too early")


# A text in Windows-1252 may hold other bytes, but then it is stored as binary: bytes are safer than wrong characters.
_CONTROLS = bytes({*range(32), 0x7F, 0x81, 0x8D, 0x8F, 0x90, 0x9D, 0xFF} - {*b"\t\n\r\f"})
_LETTERS = bytes(byte for byte in range(256) if bytes([byte]).decode("cp1252", "replace").isalpha())
_ASCII = bytes(range(128))
_UTF8_CHARACTER_PATTERN = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_MAX_HIGH_SHARE = 0.25
"""Maximum share of bytes that are not ASCII. Texts in another script, in a charset of their own, have more."""
_MIN_LETTER_SHARE = 0.5


def _looks_like_windows_1252(chunks: Iterable[bytes]) -> bool:
    """Return whether a payload is Western text: no control characters, nothing of UTF-8, mostly letters."""
    size, high, letters, high_letters = 0, 0, 0, 0
    for chunk in chunks:
        visible = chunk.translate(None, b" \t\n\r\f")
        if len(visible.translate(None, _CONTROLS)) < len(visible) or _UTF8_CHARACTER_PATTERN.search(chunk):
            return False
        high_bytes = visible.translate(None, _ASCII)
        size += len(visible)
        high += len(high_bytes)
        letters += len(visible) - len(visible.translate(None, _LETTERS))
        high_letters += len(high_bytes) - len(high_bytes.translate(None, _LETTERS))
    return (
        0 < high <= size * _MAX_HIGH_SHARE
        and letters >= size * _MIN_LETTER_SHARE
        and high_letters >= high * _MIN_LETTER_SHARE
    )
