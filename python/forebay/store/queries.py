"""SQL queries from the store's side: the request, the result, and the interface of the engine."""

import dataclasses
import importlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import orjson

from forebay.store.pages import DEFAULT_MAX_BYTES
from forebay.store.reader import PayloadReader, View
from forebay.store.sidecars import Sidecars

__all__ = ["DEFAULT_TIMEOUT_SECONDS", "QueryEngine", "QueryPage", "QueryRequest", "load_engine"]

DEFAULT_TIMEOUT_SECONDS = 10.0
"""Default time limit of a statement, without the time to load its tables."""

_ENGINE_MODULE = "forebay.query.engine"

_TRUNCATED_HINT = "these are the first rows; add LIMIT and OFFSET, select fewer columns, or aggregate"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueryRequest:
    """The parameters of `Store.query`. They are checked when the query begins."""

    sql: str
    timeout: float = DEFAULT_TIMEOUT_SECONDS
    max_bytes: int = DEFAULT_MAX_BYTES
    escape_levels: int = 0
    is_ascii: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class QueryPage:
    """The result of a query, or as many of its first rows as fit."""

    columns: tuple[dict[str, str], ...]
    """`name` and `type` of each column."""
    content: bytes
    """The rows as JSON: an array of arrays, with all digits of every number."""
    row_count: int | None
    """Number of all rows; `None` if some did not fit and there were too many to count."""
    truncated: bool
    """Whether there are more rows than `content` has."""
    ms: float
    """Time that the query took, in milliseconds."""
    hint: str | None = None
    """What may be wrong with the result, such as numbers that were compared as text."""

    @property
    def rows(self) -> list[list[Any]]:
        """The rows as Python objects. Integers are exact, and decimal numbers are floats."""
        return cast("list[list[Any]]", json.loads(self.content))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields in the order they are sent in."""
        page = {
            "columns": self.columns,
            "rows": orjson.Fragment(self.content),
            "row_count": self.row_count,
            "truncated": self.truncated,
            "ms": self.ms,
        }
        hints = [*([self.hint] if self.hint else []), *([_TRUNCATED_HINT] if self.truncated else [])]
        return {**page, "hint": "; ".join(hints)} if hints else page

    def to_json(self) -> bytes:
        """Return the result as JSON."""
        return orjson.dumps(self.to_dict())


class QueryEngine(Protocol):
    """Runs SQL. The store opens the payloads, so that it alone decides who may read what."""

    def run_query(
        self, readers: Mapping[str, PayloadReader], request: QueryRequest, sidecars: Sidecars, *, as_text: bool = False
    ) -> QueryPage:
        """Run a statement over payloads by their handles. The first one is also the table `items`.

        With `as_text` the values are texts, as `write_rows` needs them.
        """

    def write_parquet(self, view: View, target: int) -> int:
        """Write the items of a view to an open file as Parquet, and return their number."""

    def write_rows(self, page: QueryPage, names: Sequence[str], target: int) -> None:
        """Write the rows of a query that ran with `as_text` to an open file as Parquet, with its types."""


def load_engine() -> QueryEngine:
    """Import the query engine by its name: it is in a layer above the store.

    Its methods raise `MissingExtra` if DuckDB is not installed.
    """
    return cast("QueryEngine", importlib.import_module(_ENGINE_MODULE))
