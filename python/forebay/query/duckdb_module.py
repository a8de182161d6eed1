"""Where DuckDB is. It is looked for without importing it, because only workers run it."""

import functools
import importlib.util
import os

from forebay.errors import MissingExtra

__all__ = ["find_duckdb", "is_installed", "make_missing_error"]


def make_missing_error(user: str) -> MissingExtra:
    """Return the error for a user of DuckDB, such as SQL, where it is not installed."""
    return MissingExtra(f"{user} needs duckdb: pip install 'forebay[sql]'")


def is_installed() -> bool:
    """Return whether DuckDB is installed."""
    return find_duckdb() is not None


@functools.cache
def find_duckdb() -> str | None:
    """Return the folder of DuckDB's module, or `None` if it is not installed."""
    spec = importlib.util.find_spec("_duckdb")
    return None if spec is None or spec.origin is None else os.path.dirname(spec.origin)  # noqa: PTH120 - imports less
