"""A process on a terminal whose screen can be read, and whose keys can be pressed."""

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence
from typing import Self

import pyte
from waiting import wait_until

__all__ = ["KEYS", "TerminalScreen"]

KEYS = {
    "enter": "\r",
    "escape": "\x1b",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "page_down": "\x1b[6~",
    "end": "\x1b[F",
    "home": "\x1b[H",
    "ctrl+c": "\x03",
    "ctrl+r": "\x12",
    "ctrl+t": "\x14",
    "ctrl+o": "\x0f",
    "ctrl+u": "\x15",
    # At a cell, counted from 1, the left button is pressed and released; the wheel is turned.
    "click 9,4": "\x1b[<0;9;4M\x1b[<0;9;4m",
    "click 3,2": "\x1b[<0;3;2M\x1b[<0;3;2m",
    "click 3,3": "\x1b[<0;3;3M\x1b[<0;3;3m",
    "wheel down": "\x1b[<65;5;5M",
    "wheel up": "\x1b[<64;5;5M",
}

# The emulator does not know questions to the terminal, and would print their last letters.
_QUESTIONS = re.compile(rb"\x1b\[(?:\?[0-9;]*\$p|[<>=][0-9;]*[a-z]|\?[0-9;]*u)")
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-9;?<>=$]*)?\Z")


class TerminalScreen:
    """A command on a terminal of its own."""

    def __init__(
        self,
        *command: str,
        columns: int = 80,
        lines: int = 24,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        is_controlling: bool = True,
    ) -> None:
        """Start the command. Unless `is_controlling`, it has no `/dev/tty`."""
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self.output = bytearray()
        """Every byte that the process wrote to the terminal."""
        self._fd, terminal = pty.openpty()
        self._set_size(columns, lines)
        # The first terminal that a new session opens becomes its own, as /dev/tty.
        opening = ': <>"$0"; exec "$@"' if is_controlling else 'exec "$@"'
        open_terminal = ["sh", "-c", opening, os.ttyname(terminal), *command]
        # They would win over the size of the terminal.
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self._process = subprocess.Popen(
            open_terminal,
            stdin=terminal if stdin is None else subprocess.PIPE,
            stdout=terminal,
            stderr=terminal,
            env={**inherited, "TERM": "xterm-256color", **(env or {})},
            start_new_session=True,
        )
        os.close(terminal)
        if stdin is not None and self._process.stdin is not None:
            self._process.stdin.write(stdin)
            self._process.stdin.close()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        unfinished = b""
        # Linux reports the end of a terminal as an error.
        with contextlib.suppress(OSError):
            while data := os.read(self._fd, 65536):
                with self._lock:
                    self.output += data
                    data = unfinished + data
                    cut = _UNFINISHED.search(data)
                    unfinished = b"" if cut is None else data[cut.start() :]
                    self._stream.feed(_QUESTIONS.sub(b"", data[: len(data) - len(unfinished)]))

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns: int, lines: int) -> None:
        """Change the size of the terminal."""
        with self._lock:
            self._screen.resize(lines, columns)
        self._set_size(columns, lines)
        os.killpg(self._process.pid, signal.SIGWINCH)

    @property
    def rows(self) -> list[str]:
        """The lines on the screen."""
        with self._lock:
            return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.rows)

    def press(self, *keys: str) -> None:
        """Press keys: names in `KEYS`, or texts to type."""
        for key in keys:
            os.write(self._fd, KEYS.get(key, key).encode())

    def wait_for(self, *texts: str, without: Sequence[str] = ()) -> str:
        """Wait until all texts are on the screen, and none of the others. Return the screen."""
        screen = ""

        def is_there() -> bool:
            nonlocal screen
            screen = self.text
            return all(text in screen for text in texts) and not any(text in screen for text in without)

        try:
            wait_until(is_there, seconds=20)
        except AssertionError:
            raise AssertionError(f"{texts} without {list(without)} is not on the screen:\n{screen}") from None
        return screen

    def wait_for_end(self) -> int:
        """Wait until the process ends, and return its exit code."""
        code = self._process.wait(30)
        self._reader.join(30)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)
        self._reader.join(30)
        os.close(self._fd)
