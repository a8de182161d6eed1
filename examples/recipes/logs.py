"""An MCP server for log files: it reads, tails, greps and parses them. A result that is too large becomes a handle.

    pip install 'forebay[sql]' fastmcp
    python logs.py /var/log/nginx       # over stdio: the command for a client's configuration

The model gets a descriptor of at most 4 KB for a log of any length. It pages lines with `output_fetch`, finds text
with `output_search`, and counts parsed lines with `output_query`: `SELECT status, count(*) FROM items GROUP BY 1`.

Only files below the folder are read: links that lead out of it are refused. Patterns are matched in linear time.
"""

import argparse
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import forebay
import orjson
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from forebay.adapters.fastmcp import ForebayMiddleware
from pydantic import Field

MAX_FILE_BYTES, TAIL_BYTES = 128 << 20, 1 << 20
MAX_MATCHES, MAX_SHOWN_NAME = 100_000, 200

COMBINED_FORMAT = (
    r'(?P<host>\S+) \S+ (?P<user>\S+) \[(?P<time>[^\]]+)\] "(?P<method>[^" ]+) (?P<path>[^" ]+)(?: [^"]*)?" '
    r'(?P<status>\d{3}) (?:-|(?P<bytes>\d+))(?: "(?P<referrer>[^"]*)" "(?P<agent>[^"]*)")?'
)
"""A line of an access log of Apache or nginx."""


def open_log(folder: Path, name: str) -> BinaryIO:
    # The name may not be valid, links may be a loop, and a log may be removed at any time.
    with suppress(OSError, RuntimeError, ValueError):
        file = (folder / name).resolve()
        if file.is_relative_to(folder) and file.is_file():
            return file.open("rb")
    raise ToolError(f"there is no log {name[:MAX_SHOWN_NAME]!r} here that can be read; list_files returns the names")


def read_log(folder: Path, name: str) -> bytes:
    with open_log(folder, name) as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ToolError(f"{name} has more than {MAX_FILE_BYTES:,} bytes; read its end with tail")
    return data


def to_text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")


def parse_line(line: str, line_format: re.Pattern[str]) -> dict[str, Any]:
    """Return the fields of a line, or its text if it has another format."""
    if (match := line_format.match(line)) is None:
        return {"text": line}
    is_number = re.compile(r"[0-9]{1,18}").fullmatch  # So that SQL can add up the columns.
    return {key: int(value) if value and is_number(value) else value for key, value in match.groupdict().items()}


def make_server(folder: Path, line_format: re.Pattern[str]) -> FastMCP:
    instructions = "Log files, by the names that list_files returns. Lines count from 0."
    server = FastMCP("logs", instructions, middleware=[ForebayMiddleware(output_mode="auto")])

    @server.tool(output_schema=None)
    def list_files() -> str:
        """List the logs with their sizes."""
        lines = []
        for file in sorted(Path(parent, name) for parent, _, names in os.walk(folder) for name in names):
            with suppress(OSError):  # A log may be removed while the others are listed.
                if file.is_file() and file.resolve().is_relative_to(folder):
                    lines.append(f"{file.stat().st_size:>14,} {to_text(os.fsencode(file.relative_to(folder)))}")
        return "\n".join(lines)

    @server.tool(output_schema=None)
    def read(name: str) -> str:
        """Read a whole log. If each line is a JSON object, it can be queried as it is."""
        return to_text(read_log(folder, name))

    @server.tool(output_schema=None)
    def tail(name: str, lines: Annotated[int, Field(ge=1, le=10_000)] = 100) -> str:
        """Read the last lines of a log, at most 1 MiB."""
        with open_log(folder, name) as file:
            start = max(file.seek(0, os.SEEK_END) - TAIL_BYTES, 0)
            file.seek(start)
            whole_lines = file.read(TAIL_BYTES).splitlines(keepends=True)[1 if start else 0 :]
        return to_text(b"".join(whole_lines[-lines:]))

    @server.tool(output_schema=None)
    def grep(name: str, pattern: str) -> str:
        """Find the lines of a log that match a regular expression. (?i) at its start ignores case."""
        data = read_log(folder, name)
        try:
            found = forebay.search(data, f"^.*(?:{pattern}).*$", regex=True, limit=MAX_MATCHES, context=0)
        except (forebay.InvalidPattern, UnicodeEncodeError) as error:
            raise ToolError(str(error)) from None
        if found.next_offset is not None:
            raise ToolError(f"more than {MAX_MATCHES:,} lines match; write a narrower pattern, or read the log")
        texts = [data[match.start : match.end] for match in found.matches]
        if any(b"\n" in text for text in texts):
            raise ToolError(r"the pattern matches more than one line; write [^\n] for any character, [ \t] for a space")
        lines = [{"line": match.line, "text": to_text(text)} for match, text in zip(found.matches, texts, strict=True)]
        return orjson.dumps(lines).decode()

    @server.tool(output_schema=None)
    def parse(name: str) -> str:
        """Parse the lines of an access log: host, time, method, path, status, bytes, referrer, agent."""
        lines = to_text(read_log(folder, name)).removesuffix("\n").split("\n")
        rows = (orjson.dumps({"line": number, **parse_line(line, line_format)}) for number, line in enumerate(lines))
        return f"[{b','.join(rows).decode()}]"

    return server


def main() -> None:
    parser = argparse.ArgumentParser(description="An MCP server for log files.")
    parser.add_argument("folder", type=Path, help="the folder with the logs")
    parser.add_argument("--format", default=COMBINED_FORMAT, help="expression whose named groups are a line's fields")
    options = parser.parse_args()
    if not options.folder.is_dir():
        parser.error(f"{options.folder} is not a folder; give the one that has the logs")
    make_server(options.folder.resolve(), re.compile(options.format)).run(show_banner=False)


if __name__ == "__main__":
    main()
