"""What is stored without what an expression matches."""

from forebay._core import search
from forebay.store.payload import Redaction

__all__ = ["redaction"]

_IN_PLACE = b"[redacted]"
_PAGE = 1000


def redaction(expression: str) -> Redaction:
    """Puts `[redacted]` in place of every match. Raises `InvalidPattern` for what is no expression.

    It has the syntax of `output_search`, and takes time linear in the payload for each match at most: a payload is
    not to be trusted with Python's own.
    """
    search(b"", expression, regex=True)

    def redact(data: bytes) -> bytes:
        pieces, done, start = [], 0, 0
        while True:
            found = search(data, expression, regex=True, start=start, limit=_PAGE, context=0)
            for match in found.matches:
                pieces += [data[done : match.start], _IN_PLACE]
                done = match.end
            if found.next_start is None:
                break
            start = found.next_start
        return b"".join([*pieces, data[done:]]) if pieces else data

    return redact
