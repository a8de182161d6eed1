"""Writing to standard output and standard error: JSON, bytes, and lines for people."""

import codecs
import contextlib
import errno
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from forebay.cli.errors import OutputFailed
from forebay.cli.output.terminal import REPLACED_CONTROLS, get_console, is_terminal, replace_controls, to_plain_text

__all__ = [
    "handle_output_errors",
    "print_bytes",
    "print_error",
    "print_json",
    "print_json_text",
    "print_note",
    "print_rich",
]


@contextlib.contextmanager
def handle_output_errors() -> Iterator[None]:
    """Flush standard output at the end, and raise `OutputFailed` if it cannot be written."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        # At exit Python tries to write the rest of the buffer again, and would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if sys.platform == "win32" and error.errno == errno.EINVAL:
            # The C library of Windows reports a pipe that its reader has closed as an invalid argument.
            error = BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        raise OutputFailed(f"standard output cannot be written: {error.strerror}") from error


def print_rich(*renderables: object, **style: Any) -> None:
    """Print what rich can render. Long lines are left to the terminal."""
    with handle_output_errors():
        get_console().print(*renderables, soft_wrap=True, **style)


def print_note(text: str, *, wraps: bool = False) -> None:
    """Print a line that stands below a table. With `wraps`, it is broken between words."""
    with handle_output_errors():
        get_console().print(to_plain_text(text), style="dim", highlight=False, soft_wrap=not wraps)


def _write_stdout(data: bytes) -> None:
    # sys.stdout.buffer may be unbuffered (python -u), and then may write only a part.
    with handle_output_errors(), open(sys.stdout.fileno(), "wb", closefd=False) as out:
        out.write(data)


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    import orjson

    print_json_text(orjson.dumps(value))


def print_json_text(text: bytes) -> None:
    """Print JSON, in colour on a terminal."""
    if not is_terminal():
        _write_stdout(text + b"\n")
        return
    from rich.json import JSON

    visible = text.decode().translate(REPLACED_CONTROLS)
    try:
        rendered = JSON(visible)
        # Rich decodes escapes such as \u202e, so that characters which were harmless in the text have to be replaced.
        rendered.text.plain = rendered.text.plain.translate(REPLACED_CONTROLS)
        print_rich(rendered)
    except (ValueError, RecursionError):
        # Rich parses with `json`, which refuses very long numbers and very deep nesting.
        print_rich(to_plain_text(visible))


def print_bytes(chunks: Iterable[bytes]) -> None:
    """Print bytes. On a terminal, control characters are replaced."""
    if is_terminal():
        chunks = (replace_controls(text).encode() for text in codecs.iterdecode(chunks, "utf-8", "replace"))
    for chunk in chunks:
        _write_stdout(chunk)


def print_error(code: str, message: str) -> None:
    """Print an error in colour to standard error."""
    get_console(is_stderr=True).print(f"[red]{code}[/red]:", to_plain_text(message), highlight=False, soft_wrap=True)
