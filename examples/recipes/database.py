"""An MCP server that answers SQL over an SQLite file. A result that is too large becomes a handle.

    pip install 'forebay[sql]' 'mcp>=2.3'
    python database.py shop.db          # over stdio: the command for a client's configuration

The model may select a whole table: it gets a descriptor of at most 4 KB, reads rows with `output_fetch`, and asks
further questions about the stored rows with `output_query`, without another query to the database.

Statements can only read: the file is opened read-only, and everything but SELECT is denied, ATTACH included. Their
results have at most `MAX_RESULT_BYTES`. SQLite cannot interrupt one call of a function, such as `trim(a, b)`, so each
statement runs in a process of its own, which the system ends after `MAX_SECONDS`, and whose temporary files are small.
"""

import argparse
import resource
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson

MAX_SECONDS = 30.0
MAX_VALUE_BYTES = 256 << 10
MAX_PATTERN_BYTES = 1000
MAX_RESULT_BYTES = 128 << 20
MAX_TEMPORARY_BYTES = 512 << 20
"""Maximum bytes of a temporary file. A recursive statement would fill the disk before its time ends."""

READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
"""The actions that a statement may use."""


def connect(file: Path) -> sqlite3.Connection:
    """Open the database read-only, with limits for one statement."""
    database = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)
    database.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in READING else sqlite3.SQLITE_DENY)
    # The time of some functions grows with the product of the lengths of their arguments.
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    database.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MAX_PATTERN_BYTES)
    # Text in old files may be in any encoding.
    database.text_factory = lambda data: data.decode(errors="backslashreplace")
    return database


def answer_statement(file: Path, seconds: float, max_bytes: int, max_temporary_bytes: int) -> None:
    """Write the rows of the statement on standard input as a JSON array of objects, or end after a time."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    # Python ignores the signal, so that SQLite reports a write above the limit as an error.
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_temporary_bytes, max_temporary_bytes))
    rows = bytearray()
    try:
        with closing(connect(file)) as database:
            cursor = database.execute(sys.stdin.buffer.read().decode())
            names = name_columns(cursor)
            for row in cursor:
                rows += orjson.dumps(dict(zip(names, row, strict=True)), default=bytes.hex) + b",\n"
                if len(rows) > max_bytes:
                    sys.exit(f"the rows have more than {max_bytes:,} bytes; select fewer rows or columns")
    except (sqlite3.Error, sqlite3.Warning) as error:
        sys.exit(str(error))
    sys.stdout.buffer.write(b"[" + rows.removesuffix(b",\n") + b"]")


def select(file: Path, sql: str) -> str:
    """Return the rows of a statement, which runs in a process of its own."""
    from mcp.server.mcpserver.exceptions import ToolError

    try:
        statement = sql.encode()
    except UnicodeEncodeError as error:
        text = f"character {error.start} of the statement is half of a surrogate pair; write the whole character"
        raise ToolError(text) from None
    limits = MAX_SECONDS, MAX_RESULT_BYTES, MAX_TEMPORARY_BYTES
    command = [sys.executable, __file__, str(file), "--answer", *map(str, limits)]
    done = subprocess.run(command, input=statement, capture_output=True, check=False)  # noqa: S603 - this file
    if done.returncode != 0:
        reason = "interrupted" if done.returncode == -signal.SIGALRM else done.stderr.decode(errors="replace").strip()
        scope = f"for at most {MAX_SECONDS:g} s, on rows of at most {MAX_VALUE_BYTES:,} bytes"
        scope += f", with temporary files of at most {MAX_TEMPORARY_BYTES:,} bytes"
        raise ToolError(f"{reason}; this server runs one SELECT at a time, {scope}")
    return done.stdout.decode()


def name_columns(cursor: sqlite3.Cursor) -> list[str]:
    """Return the names of the columns. A name that comes twice gets a number, so that no value is lost."""
    names: dict[str, int] = {}
    for name, *_ in cursor.description or ():
        unique = name
        while unique in names:
            names[name] += 1
            unique = f"{name}_{names[name]}"
        names[unique] = 1
    return [*names]


def make_server(file: Path) -> Any:
    # Imported here, because it takes a second, and the processes of statements do without.
    from mcp.server import MCPServer

    server = MCPServer("database", instructions=f"SQL (SQLite) over {file.name}, read-only.", log_level="WARNING")

    @server.tool(structured_output=False)
    def list_tables() -> str:
        """List the tables and views with the statements that made them."""
        return select(file, "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL")

    @server.tool(name="select", structured_output=False)
    def select_rows(sql: str) -> str:
        """Run a SELECT and return its rows. BLOBs are hexadecimal."""
        return select(file, sql)

    return server


def main() -> None:
    parser = argparse.ArgumentParser(description="An MCP server that answers SQL over an SQLite file, read-only.")
    parser.add_argument("file", type=Path, help="the database")
    parser.add_argument("--answer", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.file.is_file():
        parser.error(f"{arguments.file} is not a file; give the path of an SQLite database")
    if arguments.answer:
        answer_statement(arguments.file, float(arguments.answer[0]), *map(int, arguments.answer[1:]))
    else:
        from forebay.adapters.mcp import Forebay

        with closing(Forebay(output_mode="auto")) as forebay:
            forebay.install(make_server(arguments.file)).run()


if __name__ == "__main__":
    main()
