"""Store large tool outputs under handles, and run MCP servers behind forebay.

Output is readable on a terminal, and JSON in a pipe.

Exit codes:
  0    success
  1    other error, such as a payload that cannot be read
  2    wrong usage, or an extra that is not installed
  3    handle not found
  4    stored payload is damaged
  5    store is full or cannot be used
  6    payload has no such format or path, or a query failed
  130  interrupted

In a pipe, errors are lines on standard error: {"error": {"code", "message"}}
"""

import gc
import io
import sys
from typing import NoReturn

from forebay.cli.errors import Interrupted, OutputFailed, get_exit_code, report_error
from forebay.errors import ForebayError

__all__ = ["main"]


def main() -> None:
    """Run the `forebay` command."""
    for stream in (sys.stdout, sys.stderr):
        # Characters that the terminal cannot show must not raise an error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
            if sys.platform == "win32":
                # The same bytes as elsewhere, not those of its code page.
                stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
    # Imports allocate many objects and free few: without the collector they take a sixth less time.
    gc.disable()
    try:
        # Imported inside `try`, because Ctrl-C may come during the import.
        from forebay.cli.output import handle_output_errors
        from forebay.cli.parser import parse_arguments

        with handle_output_errors():
            args = parse_arguments(__doc__ or "")
        gc.enable()
        args.run(args)
    except KeyboardInterrupt:
        _fail(Interrupted("interrupted before it was done"))
    except ForebayError as error:
        _fail(error)
    finally:
        gc.enable()


def _fail(error: ForebayError) -> NoReturn:
    if isinstance(error, OutputFailed) and isinstance(error.__cause__, BrokenPipeError):
        # The reader closed the pipe, as `head` does.
        sys.exit(0)
    report_error(error)
    sys.exit(get_exit_code(error))
