"""Errors of the command line: coloured text on a terminal, a line of JSON in a pipe."""

import functools
import re
import sys

from forebay.errors import ForebayError, QueryFailed

__all__ = ["InputFailed", "Interrupted", "OutputFailed", "get_exit_code", "report_error"]

_EXIT_CODES = {
    "output_handle_not_found": 3,
    "output_handle_corrupt": 4,
    "store_full": 5,
    "store_unavailable": 5,
    "invalid_format_for_payload": 6,
    "path_not_found": 6,
    "query_failed": 6,
    "invalid_argument": 2,
    "missing_extra": 2,
    "interrupted": 130,
}


class InputFailed(ForebayError):
    """The input cannot be read. Nothing was stored."""

    code = "input_unreadable"


class OutputFailed(ForebayError):
    """Standard output cannot be written."""

    code = "output_unwritable"


class Interrupted(ForebayError):
    """The user pressed Ctrl-C."""

    code = "interrupted"


def get_exit_code(error: ForebayError) -> int:
    """Return the exit code of an error. `forebay --help` lists the codes."""
    return _EXIT_CODES.get(error.code, 1)


def report_error(error: ForebayError) -> None:
    """Write an error to standard error, if standard error is open."""
    if sys.stderr is None:
        return
    # A message may repeat an argument that is not UTF-8.
    message = translate_message(str(error)).encode(errors="backslashreplace").decode()
    if sys.stderr.isatty():
        from forebay.cli.output import print_error

        print_error(error.code, "\n".join([message, *_list_details(error)]))
    else:
        import orjson

        sys.stderr.write(orjson.dumps({"error": {**error.to_dict()["error"], "message": message}}).decode() + "\n")


def _list_details(error: ForebayError) -> list[str]:
    """Return what a query that failed says besides its message."""
    if not isinstance(error, QueryFailed):
        return []
    tables = [f"{name}: {columns}" for name, columns in (error.tables or {}).items()]
    return [*tables, *([f"example: {error.example}"] if error.example else [])]


_MAX_MESSAGE_CHARS = 2000
"""Maximum characters of a message. A longer message probably repeats a long argument; its middle is cut out."""

_PARAMETERS = (
    "context|disable_tools|fields|format|ignore_case|limit|max_bytes|mime_type|offset|path|principal|regex|start"
    "|tools_only|ttl|where"
)
_PHRASES = {
    "a store is file:///path, or nothing for the default": "--store is file:///path, or left out for the default",
    "call the tool again for a new handle": "`forebay ls` lists the handles",
    "call the tool again": "`forebay rm` removes it",
    "fetch it as text or bytes": "use `forebay fetch --format text` or bytes",
    "fetch this payload as text or bytes": "use `forebay fetch --format text` or bytes",
    "file_roots:": "--file-root:",
    "name an array inside of it by path": "name an array inside of it with --path",
    "leave the path out": "leave --path out",
    "omit fields": "omit --fields",
    "omit where": "omit --where",
    "outline()": "`forebay outline`",
    "read_text": "`forebay fetch --format text`",
    "search for it as a literal": "leave --regex out",
}
"""Advice for models and Python code, with replacements for the command line. Of two that match, the first is used."""


@functools.cache
def _compile_library_terms() -> re.Pattern[str]:
    """Compile the pattern of what `translate_message` replaces. Only errors need it, and it takes a millisecond."""
    return re.compile(
        r"""
      "(?:[^"\\]|\\.)*" | (?<!\w)'(?:[^'\\]|\\.)*'         # quoted arguments stay as they are
    | \b(?P<assigned>NAMES)=(?P<value>(?:'\w+'(?:,?\ or\ |,\ )?)+|[\w.-]+)
    | (?<!--)(?<!:\ )\b(?P<mentioned>NAMES)(?=\ must\ |\ is\ |\ names\ |\ works\ )
    | \b(?P<phrase>PHRASES)
    """.replace("NAMES", _PARAMETERS).replace("PHRASES", "|".join(map(re.escape, _PHRASES))),
        re.VERBOSE,
    )


def translate_message(message: str) -> str:
    """Replace names and advice of the library by those of the command line: `limit=5` becomes `--limit 5`."""
    if len(message) > _MAX_MESSAGE_CHARS:
        message = f"{message[: _MAX_MESSAGE_CHARS // 2]} … {message[-_MAX_MESSAGE_CHARS // 2 :]}"
    return _compile_library_terms().sub(_translate_match, message)


def _translate_match(match: re.Match[str]) -> str:
    if match["phrase"]:
        return _PHRASES[match["phrase"]]
    name = match["assigned"] or match["mentioned"]
    if name is None:
        return match[0]
    option = "--" + name.replace("_", "-")
    return f"{option} {match['value'].replace(chr(39), '')}" if match["assigned"] else option
