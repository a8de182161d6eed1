"""Redaction: removing secrets from a payload before any of it is written."""

import functools
from collections.abc import Callable, Sequence
from typing import TypeAlias

from forebay._core import Redactor, Survey, replace_texts
from forebay.errors import InvalidArgument, RedactionFailed
from forebay.store.decoding import CannotOpen, find_decoding
from forebay.store.payload import Payload, RowFormat, get_row_format, iter_chunks, read_all

__all__ = ["PayloadRedaction", "TextRedaction", "apply_redactions", "make_redactions"]

_MAX_UNZIPPED_BYTES = 128 << 20
"""Maximum size of the text in a gzip payload, because it is redacted in memory."""

TextRedaction: TypeAlias = Callable[[bytes], bytes]
"""A function that returns a text without its secrets."""


class PayloadRedaction:
    """A regular expression or a function that removes secrets, applied to each text of a payload."""

    def __init__(self, redact: str | TextRedaction) -> None:
        self._redact: Callable[..., bytes | None]
        if isinstance(redact, str):
            # Not Python's own engine: a payload could make it backtrack forever.
            self._redact = Redactor([redact]).redact
        else:
            self._redact = functools.partial(replace_texts, function=redact)

    def __call__(self, payload: bytes, rows: RowFormat | None = None) -> bytes:
        """Return a payload without its secrets, or with `rows`, without those of its cells."""
        redacted = self._redact(payload, rows=rows)
        return payload if redacted is None else redacted


def make_redactions(
    redact: str | TextRedaction | Sequence[str | TextRedaction | PayloadRedaction],
) -> tuple[PayloadRedaction, ...]:
    """Compile expressions and functions. Raises `InvalidPattern` or `InvalidArgument`."""
    entries = [redact] if isinstance(redact, str) or callable(redact) else redact
    if not isinstance(entries, Sequence) or not all(isinstance(entry, str) or callable(entry) for entry in entries):
        raise InvalidArgument(
            "redact is a regular expression, a function of bytes that returns bytes, or a list of them"
        )
    return tuple(entry if isinstance(entry, PayloadRedaction) else PayloadRedaction(entry) for entry in entries)


def apply_redactions(payload: Payload, redactions: Sequence[PayloadRedaction], mime_type: str | None = None) -> bytes:
    """Return a whole payload without its secrets.

    A payload that readers see decoded is redacted as they see it. If that changes the text, the text is returned, in
    UTF-8. Of CSV and TSV, the cells are texts as well. Raises `RedactionFailed` if a redaction raises, or if a gzip
    payload cannot be opened.
    """
    data = bytes(read_all(payload))
    text, rows = _decode(data, mime_type), get_row_format(mime_type)
    if text is None:
        return _redact_text(data, redactions, rows)
    redacted, redacted_text = _apply(data, redactions), _redact_text(text, redactions, rows)
    # The encoded bytes may hold a secret as well, such as the file name in a gzip header.
    return data if redacted == data and redacted_text == text else redacted_text


def _decode(data: bytes, mime_type: str | None) -> bytes | None:
    """Return what is in a payload that is not UTF-8, as its readers see it; `None` for any other payload."""
    survey = Survey(is_json=False)
    survey.feed(data)
    if survey.finish().nature != "binary":
        return None
    try:
        decoding = find_decoding(lambda: iter_chunks(data), mime_type)
        if decoding is None:
            return None
        text = bytearray()
        for chunk in decoding.decode(iter_chunks(data)):
            text += chunk
            if decoding.is_gzip and len(text) > _MAX_UNZIPPED_BYTES:
                raise CannotOpen(f"holds more than {_MAX_UNZIPPED_BYTES:,} bytes")
        return bytes(text)
    except CannotOpen as error:
        raise RedactionFailed(
            f"this gzip payload {error}, so secrets cannot be removed from it; nothing was stored"
        ) from None


def _redact_text(text: bytes, redactions: Sequence[PayloadRedaction], rows: RowFormat | None) -> bytes:
    if rows is None:
        return _apply(text, redactions)
    # Cells first: in the text as it is written, a match of `token=.*` would take the rest of the line with it.
    text = _apply(text, redactions, rows)
    redacted = _apply(text, redactions)
    # A match over several cells may take a quote or a delimiter with it, which makes other cells of what is left.
    return text if redacted == text else _apply(redacted, redactions, rows)


def _apply(data: bytes, redactions: Sequence[PayloadRedaction], rows: RowFormat | None = None) -> bytes:
    for redact in redactions:
        try:
            data = redact(data, rows)
        except Exception as error:
            # Only the type, because the message may quote the payload.
            raise RedactionFailed(f"a redaction failed with {type(error).__name__}; nothing was stored") from None
    return data
