"""Command lines of Windows.

Windows starts a batch file, such as the `npx.cmd` behind `npx`, by its shell, which reads the arguments by its own
rules: `&`, `%` and their like are special even inside quotes.
"""

import re
import subprocess
from collections.abc import Sequence

__all__ = ["is_batch_file", "make_batch_command"]

_SPECIAL_PATTERN = re.compile(r'([()\][%!^"`<>&|;, *?])')


def is_batch_file(path: str) -> bool:
    """Return whether Windows would start this file by its shell."""
    # Windows ignores dots and spaces at the end of a name.
    return path.rstrip(". ").lower().endswith((".bat", ".cmd"))


def make_batch_command(shell: str, path: str, arguments: Sequence[str]) -> str:
    """Return the command line that starts a batch file with these arguments, none of which the shell interprets.

    Raises `ValueError` for an argument with a null character, or with a line break: the shell ignores what follows it.
    """
    if any(character in argument for argument in arguments for character in "\r\n\0"):
        raise ValueError("an argument of a batch file has a line break or a null character; put it into a file")
    # The batch files of npm pass their arguments to the shell again, so they are escaped twice.
    escaped = [_escape(_escape(_quote(argument))) for argument in arguments]
    return f'"{shell}" /d /s /v:off /c "{" ".join([_quote(path), *escaped])}"'


def _quote(argument: str) -> str:
    """Return an argument in quotes, as programs parse it."""
    quoted = subprocess.list2cmdline([argument])
    return quoted if quoted.startswith('"') else f'"{quoted}"'


def _escape(text: str) -> str:
    return _SPECIAL_PATTERN.sub(r"^\1", text)
