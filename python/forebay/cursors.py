"""Where a list of a server goes on."""

from collections.abc import Mapping
from typing import Any

__all__ = ["next_cursor"]


def next_cursor(page: Mapping[str, Any]) -> Any:
    """`None` at the end of a list. Some servers say that by a cursor that is empty."""
    cursor = page.get("nextCursor")
    return None if cursor == "" else cursor
