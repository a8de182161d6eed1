"""Errors of queries, written for a model: what was wrong, which columns there are, and a statement to try instead."""

import difflib
import re
from collections.abc import Mapping

from forebay.errors import QueryFailed
from forebay.query.feed import read_schema
from forebay.query.process import QueryError
from forebay.query.quoting import quote_identifier
from forebay.query.sandbox import MAX_MEMORY_BYTES
from forebay.store.queries import QueryRequest
from forebay.store.reader import PayloadReader

__all__ = ["explain_error"]

_MAX_SCHEMA_CHARS = 1600
"""Maximum characters of the columns of all tables."""

_MAX_EXAMPLE_CHARS = 1000
_MAX_NAME_CHARS = 200
"""Maximum characters of a name that is offered in place of a wrong one."""

_UNKNOWN_NAME_PATTERN = re.compile(r'(?:Referenced (?:column|table)|Table with name|have a column named) "?([^"\s]+)"?')
"""Finds the name in DuckDB's message about a column or table that does not exist."""


def explain_error(error: QueryError, readers: Mapping[str, PayloadReader], request: QueryRequest) -> QueryFailed:
    """Return the error that the caller gets for a query that failed."""
    memory = f"{MAX_MEMORY_BYTES >> 20} MiB"
    match error.kind:
        case "time":
            message = (
                f"the query took longer than {request.timeout:g} s and was stopped; filter first, and avoid joins "
                "without a condition"
            )
        case "memory":
            message = "the query needs too much memory; select fewer columns, or filter and aggregate"
        case "died":
            message = f"the query ended its process, perhaps for more than {memory} of memory; ask a simpler question"
        case "busy":
            message = "too many queries are running; try again"
        case "start":
            message = f"no process can be started for the query: {error}; try again"
        case "loading":
            message = f"the items cannot be loaded as a table: {error}; read them with fetch or search"
        case _:
            return _explain_statement(str(error), readers, request.sql)
    return QueryFailed(message)


def _explain_statement(message: str, readers: Mapping[str, PayloadReader], sql: str) -> QueryFailed:
    names = ["items", *list(readers)[1:]]
    # All columns: the names that the statement used may be the wrong ones.
    schemas = ({column.name: column.type for column in read_schema(reader)} for reader in readers.values())
    schema = dict(zip(names, schemas, strict=True))
    max_chars = _MAX_SCHEMA_CHARS // len(schema)
    tables = {name: _format_columns(columns, max_chars) for name, columns in schema.items()}
    example = _correct_name(sql, message, schema) or _make_example(schema["items"])
    return QueryFailed(message, tables, example)


def _format_columns(columns: Mapping[str, str], max_chars: int) -> str:
    names = (name if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) else quote_identifier(name) for name in columns)
    text = ", ".join(map("{} {}".format, names, columns.values()))
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


def _correct_name(sql: str, message: str, schema: Mapping[str, Mapping[str, str]]) -> str | None:
    """Return the statement with a name that exists in place of one that does not, if there is a similar one."""
    found = _UNKNOWN_NAME_PATTERN.search(message)
    if found is None or len(sql) > _MAX_EXAMPLE_CHARS:
        return None
    wrong_name = found[1]
    columns = (name for columns in schema.values() for name in columns if len(name) <= _MAX_NAME_CHARS)
    names = {name.lower(): name for name in (*schema, *columns)}
    similar = difflib.get_close_matches(wrong_name.lower(), names, 1, 0.6)
    if not similar:
        return None
    right_name = quote_identifier(names[similar[0]])
    corrected = re.sub(rf'"{re.escape(wrong_name)}"|\b{re.escape(wrong_name)}\b', lambda _: right_name, sql)
    return corrected if corrected != sql else None


def _make_example(columns: Mapping[str, str]) -> str:
    """Return a statement that works with these columns: a count by the first text, else by the first column."""
    name = next((name for name, column_type in columns.items() if column_type == "VARCHAR"), next(iter(columns), None))
    if name is None or len(name) > _MAX_EXAMPLE_CHARS:
        return "SELECT count(*) FROM items"
    return f"SELECT {quote_identifier(name)}, count(*) AS n FROM items GROUP BY ALL ORDER BY n DESC LIMIT 10"  # noqa: S608
