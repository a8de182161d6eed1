"""What was probably meant."""

import difflib
from collections.abc import Iterable

__all__ = ["meant"]


def meant(wrong: str, known: Iterable[str], otherwise: str, prefix: str = "") -> str:
    """Names the nearest right name, or says what to do without one.

    A prefix that all of them have makes none of them nearer.
    """
    by_letters = {_letters(name.removeprefix(prefix)): name for name in known}
    near = difflib.get_close_matches(_letters(wrong.removeprefix(prefix)), by_letters, 1, 0.6)
    return f"did you mean {by_letters[near[0]]}?" if near else otherwise


def _letters(name: str) -> str:
    return name.lower().replace("-", "_")
