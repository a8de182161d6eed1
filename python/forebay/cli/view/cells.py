"""Text that is safe to draw in a cell of a terminal, and its width."""

import json
from functools import lru_cache

from rich.cells import cell_len, chop_cells, set_cell_size

from forebay._core import preview
from forebay.cli.output import replace_controls

__all__ = ["ELLIPSIS", "MAX_CELL_BYTES", "cut", "decode_text", "decode_value", "fit", "make_safe", "skip_cells", "wrap"]

ELLIPSIS = "…"

MAX_CELL_BYTES = 2048
"""Bytes of a value that are decoded to draw it. No terminal shows more in one line."""

_LINE_CONTROLS = {ord("\n"): "␊", ord("\t"): "␉"}

# Terminals do not agree on the width of characters that these join or vary, so they are drawn without.
_JOINERS = dict.fromkeys([0x200B, 0x200C, 0x200D, 0x2060, 0xFE0E, 0xFE0F, 0xFEFF])


def make_safe(text: str, *, tab: str = "␉") -> str:
    """Return a text for one line of a terminal: each control character becomes a visible one."""
    if text.isascii() and text.isprintable():
        return text
    controls = _LINE_CONTROLS | {ord("\t"): tab}
    # "\r\n" is split, because one line has no line break to keep.
    return replace_controls(text.translate(controls).replace("\r", "␍")).translate(_JOINERS)


def decode_text(data: bytes) -> str:
    """Decode bytes of text, and make what is not UTF-8 visible."""
    return data.decode("utf-8", "replace")


def decode_value(raw: bytes, max_bytes: int = MAX_CELL_BYTES) -> str:
    """Return a JSON value as people read it: a string without quotes and escapes, anything else as it is written.

    Only about `max_bytes` of it are decoded; what is cut ends in an ellipsis.
    """
    is_cut = len(raw) > max_bytes
    if is_cut:
        raw = (preview(raw[: max_bytes + 64], max_bytes) or "").encode()
    text = decode_text(raw)
    if text.startswith('"'):
        try:
            text = json.loads(f'{text}"' if is_cut else text, strict=False)
        except ValueError:
            text = text.strip('"')
    return f"{text}{ELLIPSIS}" if is_cut else text


@lru_cache(maxsize=4096)
def cut(text: str, width: int) -> str:
    """Cut a safe text to a width in cells. What was cut ends in an ellipsis."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return text
    # A wide character that would extend beyond the end becomes a space.
    return set_cell_size(text, width - 1).rstrip() + ELLIPSIS


def fit(text: str, width: int, *, is_right: bool = False) -> str:
    """Cut or pad a safe text to exactly a width in cells."""
    text = cut(text, width)
    padding = " " * (width - cell_len(text))
    return padding + text if is_right else text + padding


def skip_cells(text: str, count: int) -> str:
    """Return a safe text without its first cells."""
    if count <= 0:
        return text
    skipped = 0
    for position, character in enumerate(text):
        if skipped >= count and cell_len(character) > 0:
            # Half of a wide character that was cut is a space.
            return " " * (skipped - count) + text[position:]
        skipped += cell_len(character)
    return " " * max(skipped - count, 0)


def wrap(text: str, width: int) -> list[str]:
    """Split a safe text into lines of at most a width in cells."""
    # Rich returns no line for a text that is nothing but combining characters.
    return chop_cells(text, max(width, 2)) or [text]
