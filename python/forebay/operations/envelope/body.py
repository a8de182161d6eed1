"""The body of a response as it came: bytes that nobody has parsed."""

import base64
import codecs
import contextlib
import dataclasses
import json
import marshal
import math
import re
from collections.abc import Mapping
from typing import Any

import orjson

from forebay import _core
from forebay.arguments import is_text
from forebay.errors import InvalidArgument, InvalidText
from forebay.store.payload import encode

__all__ = [
    "Body",
    "decode_text",
    "dump",
    "dump_reversible",
    "from_jsonable",
    "has_only_json_types",
    "is_json_type",
    "parse",
    "to_jsonable",
]

_BASE64_KEY = "$base64"

_LETTERS = b"".join(rb"(?:%c|\\u00%x)" % (letter, letter) for letter in b"base64")
_RESERVED_KEY = re.compile(rb'(?<!\\)"(?=(?:\$|\\u0024)+%s"\s*:)' % _LETTERS)
"""Where a key in a JSON text begins that would be taken for ours, whichever of its letters are escapes.

No quote that begins anything stands behind a backslash; one that is a part of a key does.
"""

_PASSTHROUGH = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS

_LONG_NUMBER = r"[0-9]{19}"
"""Beyond 64 bits `orjson` makes a float of an integer."""

_POSSIBLE_OVERFLOW = r"[0-9][eE]\+?[0-9]{3}|[0-9]{200}"
"""In every number that is more than a float can be, and in every integer that Python refuses to read."""


class Body:
    """Bytes and what they are said to be. `json()` parses them, once, and only if it is called."""

    __slots__ = ("_value", "content", "content_type")

    def __init__(self, content: bytes, content_type: str = "application/octet-stream") -> None:
        self.content = content
        self.content_type = content_type
        self._value: tuple[Any] | None = None

    def json(self) -> Any:
        """The value of a JSON body. Raises `ValueError` for what is none."""
        if self._value is None:
            self._value = (parse(self.content),)
        return self._value[0]

    def text(self) -> str:
        """The body as text. Raises `InvalidText` for what is not UTF-8."""
        try:
            return self.content.decode()
        except UnicodeDecodeError as error:
            raise InvalidText(f"this body is not UTF-8 at byte {error.start}; use its content", error.start) from None

    @property
    def is_json(self) -> bool:
        """Whether it says that it is JSON, and is."""
        if not is_json_type(self.content_type):
            return False
        survey = _core.Survey(True)
        survey.feed(self.content)
        return bool(survey.finish().nature == "json")

    def __len__(self) -> int:
        return len(self.content)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Body):
            return NotImplemented
        return (self.content, self.content_type) == (other.content, other.content_type)

    def __hash__(self) -> int:
        return hash((self.content, self.content_type))

    def __repr__(self) -> str:
        return f"Body({len(self.content)} bytes, {self.content_type!r})"


_BINARY_TYPES = (Body, bytes, bytearray, memoryview)
"""What JSON has nothing of."""


def is_json_type(content_type: str) -> bool:
    """Whether a content type is that of JSON."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind in ("application/json", "text/json") or kind.endswith("+json")


def parse(data: bytes) -> Any:
    """The value of JSON, exactly: what `orjson` has no room for takes longer."""
    has_long = _core.search(data, _LONG_NUMBER, regex=True, limit=1, context=0).matches
    if not has_long:
        # Half of a surrogate pair can be written in JSON, and some do: that takes longer, too.
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
    """Whether it is of JSON's own types all through, so that nothing in it has to be made JSON of first.

    `orjson` writes UUIDs and enums as well, and `marshal` bytes and sets: what both write is JSON's own.
    """
    try:
        orjson.dumps(data, option=_PASSTHROUGH)
        marshal.dumps(data)
    except (TypeError, ValueError):
        return False
    return True


def dump(data: Any) -> bytes:
    """Data as JSON for whoever knows nothing of us: what is JSON is as it is, and bytes are `{"$base64": …}`."""

    def other(value: object) -> object:
        if isinstance(value, Body) and value.is_json:
            return orjson.Fragment(value.content)
        return to_jsonable(value) if isinstance(value, _BINARY_TYPES) else value

    return encode(data, other)


def dump_reversible(data: Any) -> bytes:
    """Data as JSON that `from_jsonable` reads: a JSON body is not parsed for it, and keys that look like ours are told."""
    ours: set[int] = set()

    def other(value: object) -> object:
        if not isinstance(value, _BINARY_TYPES):
            return value
        found = to_jsonable(value)
        if isinstance(found, dict):
            ours.add(id(value))
        return found

    told = encode(data, other)
    # Whether a key of theirs looks like ours is seen at once; only then all of it is walked through. There are never
    # fewer of ours than were counted, so an equal number means that there are none of theirs.
    return told if told.count(_BASE64_KEY.encode()) == len(ours) else encode(to_jsonable(data))


def to_jsonable(data: Any) -> Any:
    """Data in which bytes are objects that say so, and a JSON body is what it stands for."""
    match data:
        case Body(is_json=True) if _can_parse(data):
            return orjson.Fragment(_RESERVED_KEY.sub(b'"$', data.content))
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
    """Whether `parse` has room for all of its numbers. Few bodies have to be parsed to see it."""
    if _core.search(body.content, _POSSIBLE_OVERFLOW, regex=True, limit=1, context=0).matches:
        try:
            body.json()
        except ValueError:
            return False
    return True


def from_jsonable(data: Any, content: bytes) -> Any:
    """What `to_jsonable` made JSON of; `content` is that JSON. Raises `InvalidArgument` for what is nested too deeply."""
    if b"base64" not in content and b"\\u00" not in content:
        # There is no key of ours, also none with letters that are escapes: nothing has to be looked at.
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
        # It is none of ours.
        return data


def _escape_key(key: Any) -> Any:
    """A key that would be taken for ours stands out by one more `$`."""
    return f"${key}" if isinstance(key, str) and _is_reserved_key(key) else key


def _unescape_key(key: str) -> str:
    return key[1:] if key.startswith("$$") and _is_reserved_key(key) else key


def _is_reserved_key(key: str) -> bool:
    return key.startswith("$") and key.lstrip("$") == "base64"


_CHARSET = re.compile(r';\s*charset\s*=\s*"?([\w.:+-]+)', re.IGNORECASE)

_EXCLUDED_CODECS = frozenset(("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"))
"""Encodings of text that are Python's own, or of names; some take forever."""


def decode_text(content: bytes, content_type: str) -> str | None:
    """Bytes as the text that they are said to be, if they are."""
    found = _CHARSET.search(content_type)
    try:
        codec = codecs.lookup(found[1] if found else "utf-8")
        if not codec._is_text_encoding or codec.name in _EXCLUDED_CODECS:
            return None
        text = codec.decode(content)[0]
    except (LookupError, UnicodeError):
        return None
    return text if is_text(text) else None
