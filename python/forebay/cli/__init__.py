"""Large tool outputs under handles: readable on a terminal, JSON in a pipe.

Exit codes:
  0    done
  1    another error, such as a file that cannot be read
  2    wrong usage
  3    no such handle
  4    damaged
  5    the store is full or cannot be used
  6    this payload has no such format or path
  130  interrupted

In a pipe an error is a line on standard error: {"error": {"code", "message"}}
"""

import io
import sys
from typing import NoReturn

from forebay.cli.errors import Interrupted, OutputFailed, exit_code, report_error
from forebay.errors import ForebayError

__all__ = ["main"]


def main() -> None:
    """What the `forebay` command runs."""
    for stream in (sys.stdout, sys.stderr):
        # What a terminal has no character for is no reason to fail.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        # Within it, because importing takes long enough to be interrupted.
        from forebay.cli.output import handle_output_errors
        from forebay.cli.parser import parse_arguments

        with handle_output_errors():
            args = parse_arguments(__doc__ or "")
        args.run(args)
    except KeyboardInterrupt:
        _fail(Interrupted("interrupted before it was done"))
    except ForebayError as error:
        _fail(error)


def _fail(error: ForebayError) -> NoReturn:
    if isinstance(error, OutputFailed) and isinstance(error.__cause__, BrokenPipeError):
        # Whoever reads has seen enough.
        sys.exit(0)
    report_error(error)
    sys.exit(exit_code(error))
