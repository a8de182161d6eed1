"""Values of headers: what a line can carry."""

import re

from forebay.operations.errors import CallError

__all__ = ["FIT_FOR_STRANGERS", "header_value", "joined_cookies"]

FIT_FOR_STRANGERS = frozenset(
    {"accept", "accept-encoding", "accept-language", "connection", "content-length", "content-type"}
    | {"host", "transfer-encoding", "user-agent"}
)
"""Headers that anyone may see. Any other may be what tells us from everyone else."""

_BREAKS_THE_LINE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")


def header_value(name: str, text: str) -> str:
    """The value of a header. Refuses what would end the line; it is not shown, for it may be a secret."""
    if _BREAKS_THE_LINE.search(text):
        raise CallError("VALIDATION_ERROR", f"the header {name!r:.64} cannot have line breaks or control characters")
    return text.strip(" \t")


def joined_cookies(own: str, more: str) -> str:
    """The cookies of a request, and of more of them those that have other names."""
    given = [each.strip() for each in own.split(";")]
    names = {each.partition("=")[0] for each in given}
    others = (each.strip() for each in more.split(";"))
    return "; ".join(filter(None, [*given, *(each for each in others if each.partition("=")[0] not in names)]))
