"""Characters that a terminal without UTF-8 cannot show."""

import codecs
from typing import TextIO, cast

from rich.cells import cell_len

__all__ = ["replace_missing"]

_SIMILAR = {"…": ".", "│": "|", "█": "#", "░": ".", "▸": ">", "▾": "v", "×": "x", "☐": "-", "☑": "+"}


def replace_missing(stream: TextIO) -> None:
    """Write characters that the encoding of a stream lacks as others of the same width."""
    codecs.register_error("forebay-view", _replace)
    stream.reconfigure(errors="forebay-view")  # type: ignore[attr-defined]


def _replace(error: UnicodeError) -> tuple[str, int]:
    # Standard error is only written.
    error = cast("UnicodeEncodeError", error)
    text = error.object[error.start : error.end]
    return "".join(_SIMILAR.get(character, "?" * cell_len(character)) for character in text), error.end
