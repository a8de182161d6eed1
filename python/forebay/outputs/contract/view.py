"""What a response shows of its payload: all of it where there is room, else an overview that is valid JSON."""

import re
from collections.abc import Callable

import orjson
from typing_extensions import Buffer

from forebay import _core
from forebay.outputs.contract.limits import ResponseLimits
from forebay.store.pages import is_mostly_items
from forebay.store.payload import detect_mime_type, expects_json

__all__ = ["View", "largest"]

_LEAST = 13
"""Every overview has a form of so many bytes."""

_SLACK = 64
"""How much of the room may stay empty, for not looking at the payload once more."""

_COMPARED = 1 << 18
"""A payload with white space of this size is not looked through for whether it was only that what is not shown."""

_TOKEN = re.compile(rb'("(?:[^"\\]|\\.)*")|[ \t\r\n]+', re.DOTALL)
_HALF_PAIR = re.compile(rb"(\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\[^u])|\\u[dD][89a-fA-F]..")
_HEAD = 4096
"""As much as is needed to see what a binary is."""


class View:
    """A payload, and what can be shown of it within limits."""

    def __init__(self, data: Buffer, limits: ResponseLimits, mime_type: str | None = None) -> None:
        self._data = data
        survey = _core.Survey(expects_json(mime_type))
        survey.feed(self._data)
        found = survey.finish()
        self.nature = found.nature
        self.size = memoryview(self._data).nbytes
        self.count = len(found.items) if is_mostly_items(found.items, self.size) else None
        """How many items there are; `None` where that is not what it is."""
        self.lines = 0 if found.lines is None else len(found.lines)
        self._mime_type = mime_type
        self._limits = limits
        self._document = self._as_json()

    def _as_json(self) -> Buffer:
        if self.nature in ("json", "ndjson"):
            return self._data
        if self.nature == "binary":
            head = bytes(memoryview(self._data)[:_HEAD])
            return orjson.dumps(
                {"mimeType": self._mime_type or detect_mime_type("binary", head), "sizeBytes": self.size}
            )
        return self._as_lines() if self.is_log else orjson.dumps(self.start())

    @property
    def is_log(self) -> bool:
        """Whether it is a text that is shown by its first and last lines."""
        is_short = self.size <= self._limits.max_string_length and self.lines <= self._limits.max_log_lines
        return self.nature == "text" and self.lines > 1 and not is_short

    def start(self) -> str:
        """As much of a text as may be shown of it, and one more so that the end shows; nothing of a binary."""
        if self.nature == "binary":
            return ""
        most = 4 * (self._limits.max_string_length + 1)
        return _core.read_text(self._data, 0, most).text

    def _as_lines(self) -> bytes:
        """The first and last lines of a text. Two lists, so that neither is longer than a list may be."""
        limits = self._limits
        head = min((limits.max_log_lines + 1) // 2, limits.max_array_items)
        tail = min(limits.max_log_lines // 2, limits.max_array_items)
        # Room for every line as far as it may be shown, so that none is left out for another.
        most = (head + tail + 1) * (4 * (limits.max_string_length + 1) + _SLACK)
        shown = _core.truncate_lines(self._data, head, tail, max_bytes=most).removesuffix("\n").split("\n")
        left_out = max(0, self.lines - head - tail)
        behind = shown[head + 1 :] if left_out else shown[head:]
        return orjson.dumps({"head": shown[:head], "tail": behind, "lineCount": self.lines})

    def within(self, max_bytes: int) -> bytes:
        """What is shown in so many bytes of JSON."""
        limits = self._limits
        shown = _core.truncate(
            self._document,
            max_bytes=max(_LEAST, max_bytes),
            max_array_items=limits.max_array_items,
            max_string_chars=limits.max_string_length,
            # The response is the level above.
            max_depth=limits.max_json_depth - 1,
        )
        return _HALF_PAIR.sub(lambda found: found[1] or rb"\ufffd", shown) if b"\\u" in shown else shown

    def is_all(self, shown: bytes) -> bool:
        """Whether nothing is left out; where it takes long to say, something is."""
        match self.nature:
            case "binary":
                return False
            case "text":
                return shown == orjson.dumps(bytes(self._data).decode()) if self.size <= _COMPARED else False
        if shown == self._data:
            return True
        return self.size <= _COMPARED and shown == self._compact()

    def _compact(self) -> bytes:
        data = bytes(self._data)
        if self.nature == "json":
            return _TOKEN.sub(_kept, data)
        rows = [_TOKEN.sub(_kept, row) for row in data.splitlines()]
        return b"[" + b",".join(row for row in rows if row) + b"]"


def _kept(token: re.Match[bytes]) -> bytes:
    return token[1] or b""


def largest(within: Callable[[int], bytes], weigh: Callable[[bytes], int], most: int) -> bytes:
    """Of what is shown in more and more bytes about the most that weighs no more than `most`.

    What it weighs follows from what is in it: a quote takes twice its room in a message. So it is weighed, and the next
    guess is by what it weighed.
    """
    low, high, best = _LEAST, most + 1, within(_LEAST)
    guess = most
    while low < guess < high:
        shown = within(guess)
        weight = weigh(shown)
        if weight > most:
            high = guess
            guess = max((low + high) // 2, min(high - 1, guess * most // weight))
        else:
            best, low = shown, guess
            if most - weight <= _SLACK or len(shown) < guess - _SLACK:
                break
            guess = (low + high) // 2
    return best
