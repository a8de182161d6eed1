"""The code blocks of a page, and ways to check them."""

import os
import pty
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import forebay.cli.parser
import pytest

__all__ = ["Block", "Transcript", "find_blocks", "find_forebay_commands", "parse_command"]

_BLOCK = re.compile(
    r"(?P<before>[^\n]*)\n*^(?P<indent> *)```(?P<language>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_UNCHECKED = re.compile(r"\*Not checked: .+\*")
"""The line above a block that no test can check, with the reason."""

_FILE_NAME = re.compile(r"# (?P<name>[\w.-]+\.(?:py|toml))\n")
"""The first line of a block that is a file."""

_COMMAND_SECONDS = 60.0
"""A command that runs for longer is killed."""

_HANDLE = re.compile(r"oh_(?:[A-Z2-7]{26}|[A-Z2-7]{12})\b")
_PROGRESS = re.compile(r"\x1b\[\?25l.*?\x1b\[\?25h\s*\x1b\[1A\x1b\[2K", re.DOTALL)
"""A progress bar, from when the cursor is hidden to when the bar is removed again."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|(?:today|yesterday), \d{4}-\d\d-\d\d| +\d+ s(?: ago)?\b")
"""A timestamp, a day of the journal, or an age with the spaces before it."""


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    code: str
    is_unchecked: bool

    @property
    def file_name(self) -> str | None:
        """The file that the block is the content of, by its first line `# NAME`."""
        found = _FILE_NAME.match(self.code)
        return found["name"] if found else None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def find_blocks(path: Path) -> list[Block]:
    """Return the blocks of a page in their order."""
    text = path.read_text(encoding="utf-8")
    blocks = []
    for match in _BLOCK.finditer(text):
        indent = match["indent"]
        code = "".join(line.removeprefix(indent) for line in match["code"].splitlines(keepends=True))
        line = text.count("\n", 0, match.start("language")) + 1
        is_unchecked = _UNCHECKED.fullmatch(match["before"].strip()) is not None
        blocks.append(Block(path.name, line, match["language"].strip(), code, is_unchecked))
    return blocks


def find_forebay_commands(block: Block) -> list[list[str]]:
    """Return the arguments of every `forebay` command in a block of shell."""
    script = block.code
    if block.language == "console":
        script = "\n".join(command for command, _ in _split_console(script))
    commands = [words for line in _join_lines(script) for words in _split_line(line)]
    return [found for words in commands if (found := _get_forebay_arguments(words)) is not None]


def _join_lines(script: str) -> Iterator[str]:
    """Yield the lines of a script; what is continued, or in quotes, is one line."""
    line = ""
    for part in script.splitlines():
        line += part
        if line.endswith("\\"):
            line = line.removesuffix("\\") + " "
            continue
        try:
            shlex.split(line, comments=True)
        except ValueError:
            # A quote is open.
            line += "\n"
            continue
        yield line
        line = ""


def _split_line(line: str) -> Iterator[list[str]]:
    """Yield the words of each command of a line."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&()<>")
    lexer.whitespace_split = True
    words: list[str] = []
    for token in lexer:
        if token.strip(";|&()"):
            words.append(token)
        else:
            yield words
            words = []
    yield words


def _get_forebay_arguments(words: list[str]) -> list[str] | None:
    if "forebay" not in words:
        return None
    at = words.index("forebay")
    prefix = [word for word in words[:at] if not re.match(r"[A-Z_]+=", word)]
    if prefix not in ([], ["opentelemetry-instrument"], ["uvx"], ["pipx", "run"]):
        return None
    arguments = []
    rest = iter(words[at + 1 :])
    for word in rest:
        if word.strip("<>"):
            arguments.append(word)
        else:
            next(rest, None)
    return arguments


def parse_command(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse the arguments of a `forebay` command as the command does. Raises `InvalidArgument`."""
    monkeypatch.setattr(sys, "argv", ["forebay", *arguments])
    forebay.cli.parser.parse_arguments("")


def _split_console(code: str) -> list[tuple[str, str]]:
    """Return the commands of a transcript, each with the output that it shows."""
    entries: list[tuple[str, str]] = []
    for line in code.splitlines(keepends=True):
        if line.startswith("$ "):
            entries.append((line[2:].rstrip("\n"), ""))
        elif entries and (entries[-1][0].endswith("\\") or (line.startswith("> ") and not entries[-1][1])):
            entries[-1] = (entries[-1][0].removesuffix("\\") + line.removeprefix("> ").rstrip("\n"), "")
        elif entries:
            entries[-1] = (entries[-1][0], entries[-1][1] + line)
    return entries


class Transcript:
    """Runs transcripts on a terminal of 80 columns, and compares what is printed.

    A page shows the handles of whoever wrote it: each stands for the one that the same command printed here.
    """

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self._folder = folder
        self._environ = environ
        self._handles: dict[str, str] = {}

    def check(self, block: Block) -> None:
        """Run the commands of a block. What a command prints must be what the page shows; `…` stands for any lines."""
        for command, shown in _split_console(block.code):
            real = _HANDLE.sub(lambda match: self._handles.get(match[0], match[0]), command)
            printed = self._run(real)
            for ours, theirs in zip(_HANDLE.findall(shown), _HANDLE.findall(printed), strict=False):
                self._handles.setdefault(ours, theirs)
            back = {theirs: ours for ours, theirs in self._handles.items()}
            printed = _HANDLE.sub(lambda match: back.get(match[0], match[0]), printed)  # noqa: B023 - used at once
            assert _matches(_normalize(printed), _normalize(shown)), f"{block}: $ {command}\nprints\n{printed}"

    def _run(self, command: str) -> str:
        screen, terminal = pty.openpty()
        child = subprocess.Popen(
            ["sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=terminal,
            cwd=self._folder,
            env=self._environ,
        )
        os.close(terminal)
        deadline = threading.Timer(_COMMAND_SECONDS, child.kill)
        deadline.start()
        printed = bytearray()
        try:
            while more := os.read(screen, 65536):
                printed += more
        except OSError:
            # Linux reports the end of a terminal as an error.
            pass
        finally:
            os.close(screen)
            child.wait()
            deadline.cancel()
        return _PROGRESS.sub("", printed.decode().replace("\r\n", "\n"))


def _hide_time(match: re.Match[str]) -> str:
    return "(day)" if "," in match[0] else "9" * len(match[0])


def _normalize(text: str) -> list[str]:
    lines = [_TIME.sub(_hide_time, line).rstrip() for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _matches(printed: list[str], shown: list[str]) -> bool:
    if "…" not in shown:
        return printed == shown
    at = shown.index("…")
    head, tail = shown[:at], shown[at + 1 :]
    return printed[:at] == head and any(_matches(printed[start:], tail) for start in range(at, len(printed) + 1))
