"""Where DuckDB is. It is looked for without importing it, because only workers run it."""

import functools
import importlib.util
import os
import sys

from forebay.errors import ForebayError, InvalidArgument, MissingExtra

__all__ = ["IS_SUPPORTED", "find_duckdb", "is_installed", "make_missing_error"]

IS_SUPPORTED = sys.platform != "win32"
"""Whether this system can pass open files to the worker. Windows cannot."""


def make_missing_error(user: str) -> ForebayError:
    """Return the error for a user of DuckDB, such as SQL, where it cannot be used."""
    if not IS_SUPPORTED:
        return InvalidArgument(f"{user} is not available on Windows yet; select with fields and where")
    return MissingExtra(f"{user} needs duckdb: pip install 'forebay[sql]'")


def is_installed() -> bool:
    """Return whether DuckDB is installed, and can be used here."""
    return find_duckdb() is not None


@functools.cache
def find_duckdb() -> str | None:
    """Return the folder of DuckDB's module, or `None` if it is not installed or cannot be used here."""
    if not IS_SUPPORTED:
        return None
    spec = importlib.util.find_spec("_duckdb")
    return None if spec is None or spec.origin is None else os.path.dirname(spec.origin)  # noqa: PTH120 - imports less
