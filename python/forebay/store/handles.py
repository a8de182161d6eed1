"""Handles, the principals that own them, and the descriptor that a model gets in place of a payload."""

import base64
import bisect
import contextlib
import dataclasses
import datetime
import functools
import json
import math
import operator
import os
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, TypeGuard

import orjson

from forebay.arguments import is_text
from forebay.errors import InvalidArgument
from forebay.store.payload import escaped_size
from forebay.store.previews import MAX_PREVIEW_BYTES, PreviewSource

__all__ = [
    "LIFETIMES",
    "LONG_HANDLE_LENGTH",
    "MAX_NAME_LENGTH",
    "OPERATOR",
    "SHORT_HANDLE_LENGTH",
    "Descriptor",
    "Principal",
    "check_handle_length",
    "extract_handle",
    "find_handles",
    "fit_descriptor",
    "format_date",
    "format_principal",
    "format_timestamp",
    "get_lifetime_class",
    "get_message_handle",
    "get_sidecar_handle",
    "is_handle",
    "is_sidecar_handle",
    "is_valid_name",
    "is_valid_time",
    "list_possible_principals",
    "make_client_principal",
    "make_subject_principal",
    "make_token_principal",
    "new_handle",
]

SHORT_HANDLE_LENGTH = 12
"""Number of characters after `oh_` if only one user has access, as over stdio."""

LONG_HANDLE_LENGTH = 26
"""Number of characters after `oh_` in a handle that nobody can guess: 127 random bits."""

LIFETIMES: tuple[int | None, ...] = (3600, 6 * 3600, 86400, 3 * 86400, 7 * 86400, 30 * 86400, 365 * 86400, None)
"""How long payloads of each lifetime class are kept at most, in seconds.

Three bits of a handle are the class. So a listing of handles tells what has surely expired, without a read of any
footer, and rules of a bucket can remove it.
"""

_LIMITED_LIFETIMES = [seconds for seconds in LIFETIMES if seconds is not None]

MAX_NAME_LENGTH = 1024
"""Maximum characters in the name of a tool or principal, which every journal event repeats."""

# 32 characters, repeated to 256 so that each value of a random byte selects one. All are equally likely.
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" * 8

_SIDECAR_PREFIX = "oh_SIDECAR"
_SIDECAR_HASH_BYTES = 15
_LIFETIME_BITS = 0b111

_HANDLE_PATTERN = re.compile(rf"oh_(?:[A-Z2-7]{{{SHORT_HANDLE_LENGTH}}}|[A-Z2-7]{{{LONG_HANDLE_LENGTH}}})")


def new_handle(length: int = SHORT_HANDLE_LENGTH, ttl: float = math.inf) -> str:
    """Return a new random handle, of the shortest lifetime class that `ttl` seconds fit into."""
    characters = bytearray(os.urandom(length))
    lifetime = bisect.bisect_left(_LIMITED_LIFETIMES, ttl)
    characters[0] = characters[0] & ~_LIFETIME_BITS & 0xFF | lifetime
    return "oh_" + characters.translate(_ALPHABET).decode()


def get_lifetime_class(handle: str) -> int:
    """Return the lifetime class of a handle: an index of `LIFETIMES`. A sidecar has that of its payload."""
    prefix = _SIDECAR_PREFIX if is_sidecar_handle(handle) else "oh_"
    return _ALPHABET.index(handle[len(prefix)].encode()) & _LIFETIME_BITS


def is_handle(value: object) -> bool:
    """Return whether a value is a well-formed handle. No other value is ever used in a path."""
    return isinstance(value, str) and _HANDLE_PATTERN.fullmatch(value) is not None


def get_sidecar_handle(handle: str) -> str:
    """Return the handle of the sidecar of a payload, which is stored beside it."""
    # Imported here, because it loads OpenSSL.
    import hashlib

    digest = hashlib.blake2b(handle.encode(), digest_size=_SIDECAR_HASH_BYTES).digest()
    # With the first character of the payload's handle, which has its lifetime class.
    name = _SIDECAR_PREFIX + handle[len("oh_")] + base64.b32encode(digest).decode()
    return name[: len("oh_") + LONG_HANDLE_LENGTH]


def get_message_handle(key: str, lifetime: int) -> str:
    """Return the handle of a message between processes, of a lifetime class. Like a sidecar, nobody can read it."""
    return get_sidecar_handle(f"oh_{chr(_ALPHABET[lifetime])}{key}")


def is_sidecar_handle(handle: str) -> bool:
    """Return whether a handle is that of a sidecar. Of random handles, one in 34 billion long ones looks like it."""
    return handle.startswith(_SIDECAR_PREFIX) and len(handle) == len("oh_") + LONG_HANDLE_LENGTH


def check_handle_length(length: object) -> None:
    """Raise `InvalidArgument` unless the length is `SHORT_HANDLE_LENGTH` or `LONG_HANDLE_LENGTH`."""
    if type(length) is not int or length not in (SHORT_HANDLE_LENGTH, LONG_HANDLE_LENGTH):
        raise InvalidArgument(f"handle_length is {SHORT_HANDLE_LENGTH} or {LONG_HANDLE_LENGTH}, not {length!r:.32}")


def extract_handle(value: object) -> object:
    """Return the handle in a reference (`ax://domain/id~oh_…`) or resource URI; any other value unchanged."""
    if isinstance(value, str) and "://" in value:
        return re.split(r"[~/]", value.partition("?")[0])[-1]
    return value


def find_handles(text: str) -> list[str]:
    """Return the handles that are words of a text, each one once."""
    return list(dict.fromkeys(filter(is_handle, re.findall(r"\w+", text))))


class _Operator:
    """The type of `OPERATOR`, which stands for the operator in place of a principal."""

    def __repr__(self) -> str:
        return "OPERATOR"


OPERATOR: Final = _Operator()
"""The principal that has access to the payloads of all principals."""

Principal = str | _Operator | None
"""The owner of a payload. `None` is for programs that serve a single user."""


_CLIENT_PREFIX = "client:"
"""Displayed before a client's name, to tell it from a principal of the same name."""


def make_client_principal(client: str) -> str:
    """Return the principal for a token that has a client but no subject, such as one from a token file."""
    return _encode_principal("client", client)


def make_subject_principal(issuer: str | None, subject: str) -> str:
    """Return the principal for a token that has a subject."""
    return _encode_principal("subject", issuer, subject)


def make_token_principal(client: str, issuer: str | None, subject: str | None) -> str:
    """Return the principal for a token: issuer and subject or, without a subject, the client."""
    return make_client_principal(client) if subject is None else make_subject_principal(issuer, subject)


def format_principal(principal: str | None) -> str | None:
    """Return a principal as it is displayed: `client:ann` for a client."""
    with contextlib.suppress(TypeError, ValueError):
        _, name = json.loads(principal or "")
        if isinstance(name, str) and principal == make_client_principal(name):
            return f"{_CLIENT_PREFIX}{name}"
    return principal


def list_possible_principals(name: str) -> tuple[str, ...]:
    """Return every principal that a user may mean by a name: the name itself, or a client with that name."""
    clients = [name, name.removeprefix(_CLIENT_PREFIX)] if name.startswith(_CLIENT_PREFIX) else [name]
    return (name, *map(make_client_principal, clients))


def _encode_principal(*components: str | None) -> str:
    # Encoded as JSON, so that different components never result in the same name.
    name = json.dumps(components)
    if len(name) <= MAX_NAME_LENGTH:
        return name
    import hashlib

    return f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"


def is_valid_name(value: object) -> TypeGuard[str]:
    """Return whether a value can be the name of a tool or principal."""
    return isinstance(value, str) and len(value) <= MAX_NAME_LENGTH and (value.isascii() or is_text(value))


@dataclasses.dataclass(frozen=True, slots=True)
class Descriptor:
    """The summary that a model gets in place of a payload, with enough to decide which parts to read."""

    output_handle: str
    mime_type: str
    size_bytes: int
    item_count: int | None
    """Number of items; `None` if the payload has none."""
    preview: str | None
    """The first items whole, with the values beside them, or the first lines; `None` if the payload is binary."""
    expires_at: str
    fetch_with: str = "output_fetch"
    """The tool that reads the payload."""
    items_path: str | None = None
    """JSON Pointer to the items; `""` if the payload itself is the list."""
    outline: str | None = None
    """The shape of a JSON payload in one line; `None` if the preview shows all of it.

    For a tool result that is a text around a JSON document: which bytes are the document, and its shape.
    """
    line_count: int | None = None
    """Number of lines of a text; `None` if the payload is JSON or binary."""
    decoded_from: str | None = None
    """What the text of the payload was decoded from, such as `gzip`; `None` if the payload is as it was put."""
    note: str | None = None
    """Why a gzip payload could not be opened."""
    next_calls: tuple[dict[str, Any], ...] = ()
    """Calls that make sense next, each with its `tool` and `arguments`. Only a server suggests them."""
    preview_items: int | None = None
    """How many of the items are whole in the preview: 0 if the first one is cut.

    `None` if the preview is all of the payload, or is not of items in JSON.
    """
    preview_source: PreviewSource | None = dataclasses.field(default=None, repr=False, compare=False)
    """What a shorter preview is cut from, if not from the preview. Not sent."""

    def to_dict(self) -> dict[str, object]:
        """Return the fields in the order they are sent in."""
        return _select_sent(self)

    def to_json(self) -> bytes:
        """Return the descriptor as JSON."""
        return orjson.dumps(self.to_dict())

    def sent_size(self, escape_levels: int = 1, *, is_ascii: bool = False, is_repeated: bool = False) -> int:
        """Return the size of the descriptor in a message; see `escaped_size`.

        `is_repeated` means that the message has the descriptor a second time, as structured content.
        """
        return _sent_size(self.to_json(), escape_levels, is_ascii=is_ascii, is_repeated=is_repeated)

    def fit(
        self,
        max_bytes: int,
        *,
        escape_levels: int = 1,
        is_ascii: bool = False,
        is_repeated: bool = False,
    ) -> "Descriptor":
        """Return the descriptor shrunk to `max_bytes` in the message it is sent in.

        The preview shrinks first, then the outline is dropped, then all but the first of `next_calls`, then that one
        and `items_path`, without which pages still find the items. `escape_levels` (0 or 1) is how often the descriptor
        is written into a JSON string; for `is_repeated` see `sent_size`. The smallest descriptor may still be larger
        than `max_bytes`.
        """
        fields = dict(zip(_DEFAULTS, _get_values(self), strict=True))
        return fit_descriptor(
            fields, max_bytes, escape_levels=escape_levels, is_ascii=is_ascii, is_repeated=is_repeated
        )


_DEFAULTS = {
    field.name: None if field.default is dataclasses.MISSING else field.default
    for field in dataclasses.fields(Descriptor)
}
"""Defaults of the fields; `None` for those without one."""

_get_values = operator.attrgetter(*_DEFAULTS)


def _select_sent(fields: Descriptor | SimpleNamespace) -> dict[str, object]:
    """Return the fields that are sent, in the order they are sent in."""
    sent = {
        "output_handle": fields.output_handle,
        "mime_type": fields.mime_type,
        "size_bytes": fields.size_bytes,
        "item_count": fields.item_count,
        "preview_items": fields.preview_items,
        "preview": fields.preview,
        "expires_at": fields.expires_at,
        "fetch_with": fields.fetch_with,
        "items_path": fields.items_path,
        "outline": fields.outline,
        "line_count": fields.line_count,
        "decoded_from": fields.decoded_from,
        "note": fields.note,
        # A list: a tuple is no array to a validator of schemas.
        "next_calls": list(fields.next_calls) or None,
    }
    for name in ("preview_items", "line_count", "decoded_from", "note", "next_calls"):
        if sent[name] is None:
            del sent[name]
    return sent


def fit_descriptor(
    fields: dict[str, Any],
    max_bytes: int,
    *,
    escape_levels: int = 1,
    is_ascii: bool = False,
    is_repeated: bool = False,
) -> Descriptor:
    """Return a descriptor with these fields, shrunk to `max_bytes` like one from `Descriptor.fit`."""
    measure = functools.partial(_sent_size, escape_levels=escape_levels, is_ascii=is_ascii, is_repeated=is_repeated)
    fitted = SimpleNamespace(**_DEFAULTS | fields)
    source = fitted.preview_source
    if source is None and fitted.preview is not None:
        source = PreviewSource(fitted.preview.encode())
    # The size is measured with the largest possible value: a preview has no more items than the payload.
    fitted.preview_items = fitted.item_count if source is not None and source.has_items else None
    fitted.preview = ""
    size = measure(orjson.dumps(_select_sent(fitted)))
    reductions: tuple[dict[str, Any], ...] = (
        {"outline": None},
        {"next_calls": fitted.next_calls[:1]},
        {"next_calls": (), "items_path": None},
    )
    for reduction in reductions:
        if size <= max_bytes:
            break
        vars(fitted).update(reduction)
        size = measure(orjson.dumps(_select_sent(fitted)))
    remaining = max(0, max_bytes - size)
    if source is None:
        fitted.preview = None
    elif is_ascii or is_repeated:
        fitted.preview, fitted.preview_items = _cut_preview(source, remaining, measure)
    else:
        # The preview is escaped once more than the descriptor that contains it.
        fitted.preview, fitted.preview_items = source.cut(max_escaped_bytes=remaining, escape_levels=1 + escape_levels)
    return Descriptor(**vars(fitted))


def _sent_size(data: bytes, escape_levels: int, *, is_ascii: bool, is_repeated: bool) -> int:
    size = escaped_size(data, escape_levels, is_ascii=is_ascii)
    return size + escaped_size(data, 0, is_ascii=is_ascii) if is_repeated else size


def _cut_preview(
    source: PreviewSource, max_bytes: int, measure: Callable[[bytes], int]
) -> tuple[str | None, int | None]:
    def measure_preview(length: int) -> int:
        return measure(orjson.dumps(source.cut(length)[0])[1:-1])

    return source.cut(bisect.bisect_right(range(1, MAX_PREVIEW_BYTES + 1), max_bytes, key=measure_preview))


_YEAR_10000 = 253_402_300_800
_EPOCH = datetime.datetime(1970, 1, 1)


def is_valid_time(seconds: float) -> bool:
    """Return whether a time can be formatted: from 1970 on, in a year of four digits."""
    return 0 <= seconds < _YEAR_10000


def format_timestamp(seconds: float) -> str:
    """Return a time as ISO 8601, to the second."""
    return _format_seconds(int(seconds))


def format_date(seconds: float) -> str:
    """Return the day of a time as `YYYY-MM-DD`."""
    return _format_seconds(int(seconds))[:10]


# Cached, because many events fall into the same second.
@functools.lru_cache(8)
def _format_seconds(seconds: int) -> str:
    # Not `time.gmtime`, which ends with the year 3000 on Windows.
    return (_EPOCH + datetime.timedelta(seconds=seconds)).isoformat() + "Z"
