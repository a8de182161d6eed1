"""Errors of queries, written for a model: what was wrong, which columns there are, and a statement to try instead."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

from forebay.arguments import decode_token
from forebay.errors import InvalidArgument, QueryFailed
from forebay.query.feed import Table, read_schema
from forebay.query.limits import WORKER_MEMORY_BYTES
from forebay.query.process import QueryError
from forebay.query.quoting import quote_identifier, shorten
from forebay.store.handles import is_handle
from forebay.store.payload import is_mostly_items
from forebay.store.queries import QueryRequest
from forebay.store.reader import PayloadReader

__all__ = ["explain_error", "find_hint"]

_MAX_SCHEMA_CHARS = 1600
"""Maximum characters of the columns of all tables."""

_MAX_EXAMPLE_CHARS = 1000
_MAX_SUGGESTION_CHARS = 200
"""Maximum characters of a name that is offered in place of a wrong one."""

_MISSING_COLUMN_PATTERN = re.compile(r'(?:Referenced (?:column|table)|have a column named) "([^"]+)"')
_MISSING_TABLE_PATTERN = re.compile(r'Table with name "?([^"\s]+)"?')
"""Match DuckDB's message about a column or table that does not exist, with its name."""

_SUGGESTION_PATTERN = re.compile(r'\n*(?:Did you mean "[^\n]*|Candidate (?:bindings|tables)[^\n]*)')
"""Matches DuckDB's suggestions, which cover only the columns that were loaded and its own system tables."""

_FILE_ERRORS = ("IO Error", "Permission Error")

_MAX_HINT_NAMES = 3

_CONVERSION_PATTERN = re.compile(r"->|::|cast|json", re.IGNORECASE)
"""Matches SQL that already converts JSON values."""


def find_hint(readers: Mapping[str, PayloadReader], tables: Iterable[Table], sql: str) -> str | None:
    """Return what the caller should know about the result of a statement that did not fail."""
    hints = []
    reader = next(iter(readers.values()))
    if reader.items_path and not is_mostly_items(reader.items, reader.size):
        hints.append(f"the items are those of {reader.items_path:.200}, a small part of the output")
    columns = {column.name: column.type for table in tables for column in table.columns}
    if not _CONVERSION_PATTERN.search(sql) and (hint := _describe_json_columns(columns, sql)):
        hints.append(hint)
    return "; ".join(hints) or None


def _describe_json_columns(columns: Mapping[str, str], sql: str) -> str | None:
    """Return how to use the columns of type JSON that a statement names."""
    names = [
        name
        for name, column_type in columns.items()
        if column_type == "JSON" and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sql, re.IGNORECASE)
    ]
    if not names:
        return None
    listed, example = ", ".join(map(quote_identifier, names[:_MAX_HINT_NAMES])), quote_identifier(names[0])
    return (
        f"{listed}: type JSON, because the values have different types or are very long numbers; =, ORDER BY, max and "
        f"min compare them as text; use TRY_CAST({example} AS DOUBLE), or {example}->>'$' for a text"
    )


def explain_error(error: QueryError, readers: Mapping[str, PayloadReader], request: QueryRequest) -> QueryFailed:
    """Return the error that the caller gets for a query that failed."""
    memory = f"{WORKER_MEMORY_BYTES >> 20} MiB"
    match error.kind:
        case "time":
            message = (
                f"the query took longer than {request.timeout:g} s and was stopped; filter first, and avoid joins "
                "without a condition"
            )
        case "memory":
            message = "the query needs too much memory; select fewer columns, or filter and aggregate"
        case "died":
            message = f"the query's process died, perhaps because it used more than {memory}; simplify the query"
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
    schema = dict(zip(names, map(_read_columns, readers.values()), strict=True))
    max_chars = _MAX_SCHEMA_CHARS // len(schema)
    tables = {name: _format_columns(columns, max_chars) for name, columns in schema.items()}
    columns = [name for columns in schema.values() for name in columns]
    items_path = next(iter(readers.values())).items_path
    example = None
    if message.startswith(_FILE_ERRORS):
        message = f"{message}\n\nfiles cannot be read; {_describe_tables(items_path)}"
    elif missing := _MISSING_COLUMN_PATTERN.search(message):
        message = _SUGGESTION_PATTERN.sub("", message)
        # A name before a dot may be a misspelt table or a misspelt column.
        example = _correct_name(sql, missing[1], [*columns, *schema])
    elif missing := _MISSING_TABLE_PATTERN.search(message):
        message = _SUGGESTION_PATTERN.sub("", message)
        if is_handle(missing[1]):
            message += f"\n\n{missing[1]} is unknown or has expired; call the tool that made it again"
        else:
            message += f"\n\n{_describe_tables(items_path)}"
            example = _correct_table(sql, missing[1], items_path, [*schema])
    elif hint := _describe_json_columns({name: kind for part in schema.values() for name, kind in part.items()}, sql):
        message += f"\n\n{hint}"
    return QueryFailed(message, tables, example or _make_example(schema["items"]))


def _correct_table(sql: str, wrong_name: str, items_path: str, tables: Sequence[str]) -> str | None:
    if items_path:
        # The wrong name may be another collection of the payload, so do not replace it by `items`.
        own_name = decode_token(items_path.rpartition("/")[2])
        return _correct_name(sql, wrong_name, [own_name, *tables[1:]])
    return _replace_name(sql, wrong_name, "items") if len(tables) == 1 else _correct_name(sql, wrong_name, tables)


def _describe_tables(items_path: str) -> str:
    content = f"the entries of {items_path}" if items_path else "the items of this output"
    return (
        f"the table items holds {content}; every other output is a table named by its handle; there are no other tables"
    )


def _read_columns(reader: PayloadReader) -> dict[str, str]:
    try:
        return {column.name: column.type for column in read_schema(reader)}
    except InvalidArgument:
        # There are too many to list.
        return {}


def _format_columns(columns: Mapping[str, str], max_chars: int) -> str:
    names = (name if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) else quote_identifier(name) for name in columns)
    text = ", ".join(map("{} {}".format, names, columns.values())) or "too many columns to list"
    return shorten(text, max_chars)


def _correct_name(sql: str, wrong_name: str, names: Iterable[str]) -> str | None:
    """Return the statement with the most similar of some names in place of a wrong one, if any is similar."""
    by_lower_case = {name.lower(): name for name in names if len(name) <= _MAX_SUGGESTION_CHARS}
    similar = difflib.get_close_matches(wrong_name.lower(), by_lower_case, 1, 0.6)
    return _replace_name(sql, wrong_name, quote_identifier(by_lower_case[similar[0]])) if similar else None


def _replace_name(sql: str, wrong_name: str, right_name: str) -> str | None:
    if len(sql) > _MAX_EXAMPLE_CHARS:
        return None
    corrected = re.sub(rf'"{re.escape(wrong_name)}"|\b{re.escape(wrong_name)}\b', lambda _: right_name, sql)
    return corrected if corrected != sql else None


def _make_example(columns: Mapping[str, str]) -> str:
    """Return a statement that works with these columns: a count by the first text, else by the first column."""
    name = next((name for name, column_type in columns.items() if column_type == "VARCHAR"), next(iter(columns), None))
    if name is None or len(name) > _MAX_EXAMPLE_CHARS:
        return "SELECT count(*) FROM items"
    return f"SELECT {quote_identifier(name)}, count(*) AS n FROM items GROUP BY ALL ORDER BY n DESC LIMIT 10"  # noqa: S608
