"""Unparsed response bodies, and JSON with bytes in it.

In JSON, bytes become `{"$base64": "…"}`. If the data itself has a key `$base64`, one more `$` is added to that key, so
that `from_jsonable` does not read its value as bytes.
"""

import base64
import codecs
import contextlib
import dataclasses
import json
import marshal
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from forebay import _core
from forebay.arguments import is_text
from forebay.errors import InvalidArgument, InvalidText
from forebay.store.payload import CHUNK_BYTES, UTF8_BOM, encode
from forebay.wire.framing import Spool

__all__ = [
    "Body",
    "decode_text",
    "dump",
    "dump_reversible",
    "from_jsonable",
    "get_media_type",
    "has_only_json_types",
    "is_json_type",
    "names_other_charset",
    "parse",
    "to_jsonable",
]

_BASE64_KEY = "$base64"

_BASE64_LETTERS_PATTERN = b"".join(rb"(?:%c|\\u00%x)" % (letter, letter) for letter in b"base64")
_RESERVED_KEY_PATTERN = re.compile(rb'(?<!\\)"(?=(?:\$|\\u0024)+%s"\s*:)' % _BASE64_LETTERS_PATTERN)
"""The opening quote of a `$base64` key in JSON text, whichever of its letters are escaped.

A quote after a backslash is a character inside a string, so it does not match.
"""

_PASSTHROUGH_OPTIONS = (
    orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
)

_LONG_INTEGER_PATTERN = r"[0-9]{19}"
"""Matches every integer beyond 64 bits, which `orjson` would read as a float."""

_HUGE_NUMBER_PATTERN = r"[0-9][eE]\+?[0-9]{3}|[0-9]{200}"
"""Matches every number beyond the range of a float, and every integer with more digits than Python reads."""


class Body:
    """The bytes of a response, in memory or in a spool, and their content type.

    Only the first call of `json()` parses. `content` reads a spooled body into memory; `chunks` does not.
    """

    __slots__ = ("_source", "_value", "content_type")

    def __init__(self, content: bytes | Spool, content_type: str = "application/octet-stream") -> None:
        self._source = content
        self.content_type = content_type
        self._value: tuple[Any] | None = None

    @property
    def content(self) -> bytes:
        """All bytes of the body."""
        return b"".join(self._source.chunks()) if isinstance(self._source, Spool) else self._source

    @property
    def is_spooled(self) -> bool:
        """Whether the body is in a temporary file, and not in memory."""
        return isinstance(self._source, Spool)

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the body in chunks."""
        if isinstance(self._source, Spool):
            return self._source.chunks()
        view = memoryview(self._source)
        return (view[start : start + CHUNK_BYTES] for start in range(0, len(view), CHUNK_BYTES))

    def json(self) -> Any:
        """Return the parsed body. Raises `ValueError` if the body is not JSON."""
        if self._value is None:
            self._value = (parse(self.content),)
        return self._value[0]

    def text(self) -> str:
        """Return the body as text. Raises `InvalidText` if the body is not UTF-8."""
        try:
            return self.content.decode()
        except UnicodeDecodeError as error:
            raise InvalidText(f"this body is not UTF-8 at byte {error.start}; use its content", error.start) from None

    @property
    def is_json(self) -> bool:
        """Whether both the content type and the bytes are JSON."""
        # JSON with a byte order mark is refused by most parsers, so it is not passed on as JSON.
        if not is_json_type(self.content_type) or bytes(next(self.chunks(), b"")[:3]) == UTF8_BOM:
            return False
        return self._find_nature(is_json=True) == "json"

    @property
    def is_utf8(self) -> bool:
        """Whether the bytes are valid UTF-8."""
        if self._find_nature(is_json=False) != "binary":
            return True
        # Text with a NUL is binary, too.
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            for chunk in self.chunks():
                decoder.decode(chunk)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
        return True

    def _find_nature(self, *, is_json: bool) -> str:
        survey = _core.Survey(is_json)
        for chunk in self.chunks():
            survey.feed(chunk)
        return survey.finish().nature

    def __len__(self) -> int:
        return len(self._source)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Body):
            return NotImplemented
        return (self.content, self.content_type) == (other.content, other.content_type)

    def __hash__(self) -> int:
        return hash((self.content, self.content_type))

    def __repr__(self) -> str:
        return f"Body({len(self)} bytes, {self.content_type!r})"


_BINARY_TYPES = (Body, bytes, bytearray, memoryview)
"""Types of bytes, which JSON cannot express."""


def get_media_type(content_type: str) -> str:
    """Return a content type in lower case and without parameters such as `charset`."""
    return content_type.partition(";")[0].strip().lower()


def is_json_type(content_type: str) -> bool:
    """Return whether a content type is JSON. NDJSON is not."""
    media_type = get_media_type(content_type)
    return media_type in ("application/json", "text/json") or media_type.endswith("+json")


def parse(data: bytes) -> Any:
    """Parse JSON without changing long integers or lone surrogates. Raises `ValueError` if the data is not JSON.

    JSON that contains long integers or lone surrogates is parsed by the slower `json` module instead of `orjson`.
    """
    if not _core.search(data, _LONG_INTEGER_PATTERN, regex=True, limit=1, context=0).matches:
        # `orjson` rejects lone surrogates, which `json` reads.
        with contextlib.suppress(orjson.JSONDecodeError):
            return orjson.loads(data)
    try:
        return json.loads(data, parse_constant=_reject_constant, parse_float=_parse_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _reject_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _parse_finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text:.40} is more than a number here can be; use the bytes as they came")
    return number


def has_only_json_types(data: Any) -> bool:
    """Return whether data consists of JSON's own types at every level.

    Data is dumped with both `orjson` and `marshal`, and both must succeed. `orjson` also accepts UUIDs and enums,
    `marshal` also bytes and sets, but only JSON's own types are accepted by both.
    """
    try:
        orjson.dumps(data, option=_PASSTHROUGH_OPTIONS)
        marshal.dumps(data)
    except (TypeError, ValueError):
        return False
    return True


def dump(data: Any) -> bytes:
    """Dump data as JSON for clients: JSON bodies are embedded unchanged, bytes become `{"$base64": …}`."""

    def default(value: object) -> object:
        if isinstance(value, Body) and value.is_json:
            return orjson.Fragment(value.content)
        return to_jsonable(value) if isinstance(value, _BINARY_TYPES) else value

    return encode(data, default)


def dump_reversible(data: Any) -> bytes:
    """Dump data as JSON that `from_jsonable` can restore. JSON bodies are embedded without parsing."""
    encoded_ids: set[int] = set()

    def default(value: object) -> object:
        if not isinstance(value, _BINARY_TYPES):
            return value
        jsonable = to_jsonable(value)
        if isinstance(jsonable, dict):
            encoded_ids.add(id(value))
        return jsonable

    text = encode(data, default)
    # Escaping walks through all of the data, which is slow, so it is skipped if the data has no `$base64` of its own.
    # `default` has written `$base64` at least `len(encoded_ids)` times. If `text` has no more, the data has none.
    return text if text.count(_BASE64_KEY.encode()) == len(encoded_ids) else encode(to_jsonable(data))


def to_jsonable(data: Any) -> Any:
    """Replace bytes with `{"$base64": …}`, escape existing `$base64` keys, and embed JSON bodies."""
    match data:
        case Body(is_json=True) if _can_parse(data):
            return orjson.Fragment(_RESERVED_KEY_PATTERN.sub(b'"$', data.content))
        case Body():
            return to_jsonable(data.content)
        case bytes() | bytearray() | memoryview():
            return {_BASE64_KEY: base64.b64encode(data).decode()}
        case Mapping():
            return {_escape_key(key): to_jsonable(value) for key, value in data.items()}
        case list() | tuple():
            return [to_jsonable(value) for value in data]
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        return {field.name: to_jsonable(getattr(data, field.name)) for field in dataclasses.fields(data)}
    if hasattr(data, "model_dump") and not isinstance(data, type):
        return to_jsonable(data.model_dump())
    return data


def _can_parse(body: Body) -> bool:
    """Return whether `parse` can read all numbers of a body. The body is parsed only if it has a very large number."""
    if _core.search(body.content, _HUGE_NUMBER_PATTERN, regex=True, limit=1, context=0).matches:
        try:
            body.json()
        except ValueError:
            return False
    return True


def from_jsonable(data: Any, content: bytes) -> Any:
    """Restore the data that `dump_reversible` wrote; `data` is the parsed value of `content`.

    Raises `InvalidArgument` if the data is nested too deeply.
    """
    if b"base64" not in content and b"\\u00" not in content:
        # There is no `$base64` key, not even one with escaped letters, so there is nothing to restore.
        return data
    try:
        return _restore(data)
    except RecursionError:
        raise InvalidArgument("this JSON is nested too deeply") from None


def _restore(data: Any) -> Any:
    match data:
        case {"$base64": str(text)} if len(data) == 1:
            return _decode_base64(text, data)
        case dict():
            return {_unescape_key(key): _restore(value) for key, value in data.items()}
        case list():
            return [_restore(value) for value in data]
    return data


def _decode_base64(text: str, data: Any) -> Any:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        # Not base64, so not written by `to_jsonable`.
        return data


def _escape_key(key: Any) -> Any:
    """Add a `$` to the keys `$base64`, `$$base64` and so on; return other keys unchanged."""
    return f"${key}" if isinstance(key, str) and _is_reserved_key(key) else key


def _unescape_key(key: str) -> str:
    return key[1:] if key.startswith("$$") and _is_reserved_key(key) else key


def _is_reserved_key(key: str) -> bool:
    return key.startswith("$") and key.lstrip("$") == "base64"


_CHARSET_PATTERN = re.compile(r';\s*charset\s*=\s*"?([\w.:+-]+)', re.IGNORECASE)

_EXCLUDED_CODECS = frozenset(("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"))
"""Text codecs of Python that are not charsets; some of them are very slow on large input."""


def names_other_charset(content_type: str) -> bool:
    """Return whether a content type names a charset other than UTF-8."""
    charset = _CHARSET_PATTERN.search(content_type)
    return charset is not None and charset[1].lower() not in ("utf-8", "utf8")


def decode_text(content: bytes, content_type: str) -> str | None:
    """Decode bytes with the charset of their content type, by default UTF-8. Return `None` if that fails."""
    charset = _CHARSET_PATTERN.search(content_type)
    try:
        codec = codecs.lookup(charset[1] if charset else "utf-8")
        if not codec._is_text_encoding or codec.name in _EXCLUDED_CODECS:
            return None
        text = codec.decode(content)[0]
    except (LookupError, UnicodeError):
        return None
    return text if is_text(text) else None
