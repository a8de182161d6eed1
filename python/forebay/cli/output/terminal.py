"""The terminal: its width, characters and colours, and text that is safe to print on it."""

# Rich is imported only on a terminal: importing it takes longer than most commands.

import functools
import os
import sys
from typing import TYPE_CHECKING

from forebay.cli.errors import OutputFailed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = [
    "REPLACED_CONTROLS",
    "get_console",
    "is_ascii_only",
    "is_terminal",
    "replace_controls",
    "to_plain_text",
    "wants_table",
]

_TERMINALS_WITHOUT_BLOCKS = ("dumb", "linux")
"""Values of TERM whose fonts lack eighths of blocks; `linux` is the console outside of a desktop."""


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    if sys.stdout is None:
        raise OutputFailed("standard output is closed")
    return sys.stdout.isatty()


def wants_table(is_json: bool) -> bool:
    """Return whether to print for people: on a terminal, unless JSON was asked for."""
    return is_terminal() and not is_json


@functools.cache
def get_console(*, is_stderr: bool = False) -> "Console":
    """Return rich's console for standard output or standard error."""
    from rich.console import Console

    # With NO_COLOR, rich itself leaves out colours, but not bold and dim text.
    return Console(stderr=is_stderr, color_system=None if os.environ.get("NO_COLOR") else "auto")


@functools.cache
def is_ascii_only() -> bool:
    """Return whether bars and symbols must be ASCII, because the terminal does not take UTF-8 or lacks the blocks."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    return not encoding.lower().startswith("utf") or os.environ.get("TERM") in _TERMINALS_WITHOUT_BLOCKS


# A payload must not send control sequences to the terminal, nor change the order in which its text is shown.
_BIDI_CONTROLS = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
REPLACED_CONTROLS = dict.fromkeys(
    [*range(127, 160), *_BIDI_CONTROLS, *range(0xD800, 0xE000)], "\N{REPLACEMENT CHARACTER}"
)
_CONTROL_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | REPLACED_CONTROLS


def to_plain_text(value: object) -> "Text":
    """Return a value as text without markup, with control characters made visible."""
    from rich.text import Text

    return Text(replace_controls("" if value is None else str(value)))


def replace_controls(text: str) -> str:
    """Return a text that is safe to print on a terminal: control characters are replaced by visible ones."""
    return text.replace("\r\n", "\n").translate(_CONTROL_PICTURES)
