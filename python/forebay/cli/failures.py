"""What went wrong, in the words of the command line: for people on a terminal, as a line of JSON in a pipe."""

import re
import sys

from forebay.errors import ForebayError

__all__ = ["InputFailed", "Interrupted", "OutputFailed", "complain", "exit_code"]

_EXIT_CODES = {
    "output_handle_not_found": 3,
    "output_handle_corrupt": 4,
    "store_full": 5,
    "store_unavailable": 5,
    "invalid_format_for_payload": 6,
    "path_not_found": 6,
    "invalid_argument": 2,
    "interrupted": 130,
}


class InputFailed(ForebayError):
    """What was to be stored cannot be read; nothing of it was stored."""

    code = "input_unreadable"


class OutputFailed(ForebayError):
    """What was to be printed cannot be written."""

    code = "output_unwritable"


class Interrupted(ForebayError):
    """Someone pressed Ctrl-C."""

    code = "interrupted"


def exit_code(error: ForebayError) -> int:
    """What the command ends with; the table is in its help."""
    return _EXIT_CODES.get(error.code, 1)


def complain(error: ForebayError) -> None:
    """Tells standard error, if there is one."""
    if sys.stderr is None:
        return
    # An argument may hold bytes that are no text, and a message repeat them.
    message = spoken(str(error)).encode(errors="backslashreplace").decode()
    if sys.stderr.isatty():
        from forebay.cli.show import complaint

        complaint(error.code, message)
    else:
        import orjson

        sys.stderr.write(orjson.dumps({"error": {"code": error.code, "message": message}}).decode() + "\n")


_LONGEST = 2000
"""Of a message that repeats an argument, the middle is left out."""

_NAMES = "context|fields|format|ignore_case|limit|max_bytes|mime_type|offset|path|principal|regex|start|ttl"
_PYTHON = re.compile(
    r"""
      "(?:[^"\\]|\\.)*" | (?<!\w)'(?:[^'\\]|\\.)*'         # what was passed is repeated as it is
    | \b(?P<given>NAMES)=(?P<value>(?:'\w+'(?:,?\ or\ |,\ )?)+|[\w.-]+)
    | \b(?P<named>NAMES)(?=\ must\ |\ is\ )
    | (?P<verb>\boutline\(\)|\bread_text\b)
    """.replace("NAMES", _NAMES),
    re.VERBOSE,
)
_COMMANDS = {"outline()": "`forebay outline`", "read_text": "`forebay fetch --format text`"}


def spoken(message: str) -> str:
    """A message of the library as the command line says it: `--format bytes` for `format='bytes'`."""
    if len(message) > _LONGEST:
        message = f"{message[: _LONGEST // 2]} … {message[-_LONGEST // 2 :]}"
    return _PYTHON.sub(_translated, message)


def _translated(found: re.Match[str]) -> str:
    if found["verb"]:
        return _COMMANDS[found["verb"]]
    name = found["given"] or found["named"]
    if name is None:
        return found[0]
    option = "--" + name.replace("_", "-")
    return f"{option} {found['value'].replace(chr(39), '')}" if found["given"] else option
