"""Redaction: removing secrets from a payload before any of it is written."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from forebay._core import Redactor, replace_texts
from forebay.errors import InvalidArgument, RedactionFailed
from forebay.store.payload import Payload, read_all

__all__ = ["Redaction", "apply_redactions", "make_redactions"]

Redaction: TypeAlias = Callable[[bytes], bytes]
"""A function that returns a text without its secrets."""


def make_redactions(redact: "str | Redaction | Sequence[str | Redaction]") -> tuple[Redaction, ...]:
    """Return functions that remove the secrets of a whole payload. Raises `InvalidPattern` or `InvalidArgument`."""
    entries = [redact] if isinstance(redact, str) or callable(redact) else redact
    if not isinstance(entries, Sequence) or not all(isinstance(entry, str) or callable(entry) for entry in entries):
        raise InvalidArgument(
            "redact is a regular expression, a function of bytes that returns bytes, or a list of them"
        )
    return tuple(_match_texts(entry) if isinstance(entry, str) else _call_on_texts(entry) for entry in entries)


def _match_texts(expression: str) -> Redaction:
    # Python's own engine is not used: a payload could make it backtrack forever.
    redactor = Redactor([expression])

    def redact(data: bytes) -> bytes:
        redacted = redactor.redact(data)
        return data if redacted is None else redacted

    return redact


def _call_on_texts(function: Redaction) -> Redaction:
    def redact(data: bytes) -> bytes:
        redacted = replace_texts(data, function)
        return data if redacted is None else redacted

    return redact


def apply_redactions(payload: Payload, redactions: Sequence[Redaction]) -> bytes:
    """Return a whole payload without its secrets. Raises `RedactionFailed` if a redaction raises."""
    data = bytes(read_all(payload))
    for redact in redactions:
        try:
            data = redact(data)
        except Exception as error:
            # Only the type, because the message may quote the payload.
            raise RedactionFailed(f"a redaction failed with {type(error).__name__}; nothing was stored") from None
    return data
