"""The `forebay` command on a terminal of a given size, seen through an emulator."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Iterator
from typing import NamedTuple

import pyte
from command import COMMAND

MAX_LINES = 400


class TerminalCell(NamedTuple):
    text: str
    colour: str
    is_bold: bool


class ShownScreen:
    """What a terminal shows after a command."""

    def __init__(self, columns: int, output: bytes) -> None:
        self.output = output
        self._screen = pyte.Screen(columns, MAX_LINES)
        pyte.ByteStream(self._screen).feed(output)

    @property
    def lines(self) -> list[str]:
        """The lines down to the last one with text, without spaces at their ends."""
        lines = [line.rstrip() for line in self._screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def find(self, text: str) -> str:
        """Return the only line that has a text."""
        (line,) = [line for line in self.lines if text in line]
        return line

    def cells(self, text: str) -> Iterator[TerminalCell]:
        """Yield the characters of the first occurrence of a text, as they look."""
        row = next(row for row, line in enumerate(self._screen.display) if text in line)
        start = self._screen.display[row].index(text)
        for column in range(start, start + len(text)):
            cell = self._screen.buffer[row][column]
            yield TerminalCell(cell.data, cell.fg, cell.bold)

    @property
    def colours(self) -> set[str]:
        """The colours of all characters."""
        return {cell.fg for row in self._screen.buffer.values() for cell in row.values() if cell.data != " "}


def show(*args: str, columns: int, **environment: str) -> ShownScreen:
    """Run the command on a terminal of so many columns. The variable COLUMNS must not be set."""
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", MAX_LINES, columns, 0, 0))
    child = subprocess.Popen(
        [*COMMAND, *args],
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, **environment},
    )
    os.close(terminal)
    output = bytearray()
    try:
        while more := os.read(screen, 65536):
            output += more
    except OSError:
        # Linux reports the end of a terminal as an error.
        pass
    os.close(screen)
    assert child.wait() == 0, output.decode(errors="replace")
    return ShownScreen(columns, bytes(output))
