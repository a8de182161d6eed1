"""Response sizes: record each response in the journal, and warn about large ones."""

import functools
import logging
import threading
import weakref
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from forebay.arguments import check_integer
from forebay.outputs.contract.text import to_single_line
from forebay.store.journal import Journal

__all__ = ["CONNECTION_LIMIT_BYTES", "Monitor", "summarize_responses"]

_log = logging.getLogger("forebay")

CONNECTION_LIMIT_BYTES = 25 * 1024
"""Total size of a connection's responses above which a warning is logged."""

_MAX_COUNTERS = 4096
"""Maximum number of principals, and of tools, that are counted. The least recently active principals are dropped."""

_OTHER_TOOLS = "others"
_MAX_NAME_LENGTH = 256


class _ByteTotal:
    """Number of bytes sent to a connection or principal, and whether a warning was logged."""

    __slots__ = ("is_warned", "sent_bytes")

    def __init__(self) -> None:
        self.sent_bytes = 0
        self.is_warned = False


class Monitor:
    """Recorder of every response in the journal. It logs a warning for responses over their budget."""

    def __init__(self, journal: Journal, connection_limit: int = CONNECTION_LIMIT_BYTES) -> None:
        check_integer("connection_limit_bytes", connection_limit, 1)
        self._journal = journal
        self._limit = connection_limit
        self._lock = threading.Lock()
        self._connections: weakref.WeakKeyDictionary[object, _ByteTotal] = weakref.WeakKeyDictionary()
        self._get_principal_total = functools.lru_cache(_MAX_COUNTERS)(lambda _principal: _ByteTotal())
        self.oversize: Counter[str] = Counter()
        """Number of responses over their budget, by tool."""

    def record(
        self,
        tool: str,
        response_bytes: int,
        *,
        mode: str,
        budget: int,
        principal: str | None = None,
        connection: object = None,
    ) -> None:
        """Record a response, and add its size to the total of its connection, else of its principal."""
        # A client may call a tool by any name, including one that is not valid Unicode.
        name = to_single_line(tool, _MAX_NAME_LENGTH)
        details = {"tool": name, "response_bytes": response_bytes, "mode": mode}
        self._journal.record("tool_called", principal=principal, **details)
        if response_bytes > budget:
            self.oversize[name if name in self.oversize or len(self.oversize) < _MAX_COUNTERS else _OTHER_TOOLS] += 1
            self._journal.record("response_oversize", principal=principal, **details, budget_bytes=budget)
            _log.warning(
                "forebay: a response of %.64s takes %d bytes, and its budget is %d; "
                "name it in contract=, or give it output_mode='auto'",
                name,
                response_bytes,
                budget,
            )
        self._add_bytes(response_bytes, principal, connection)

    def _add_bytes(self, size: int, principal: str | None, connection: object) -> None:
        with self._lock:
            total = self._get_byte_total(principal, connection)
            total.sent_bytes += size
            if total.sent_bytes <= self._limit or total.is_warned:
                return
            total.is_warned = True
        _log.warning(
            "forebay: the responses to %s take %d bytes by now, and %d were to be enough; "
            "smaller budgets, or output_mode='auto' with a smaller output_inline_limit_bytes, leave it more room",
            "a connection" if connection is not None else "a principal",
            total.sent_bytes,
            self._limit,
        )

    def get_sent_bytes(self, principal: str | None = None, connection: object = None) -> int:
        """Return the number of bytes sent to a connection, or to a principal if `connection` is `None`."""
        with self._lock:
            return self._get_byte_total(principal, connection).sent_bytes

    def _get_byte_total(self, principal: str | None, connection: object) -> _ByteTotal:
        if connection is None:
            return self._get_principal_total(principal)
        return self._connections.setdefault(connection, _ByteTotal())


def summarize_responses(events: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Return the number and sizes of each tool's responses in the journal, the tool with the most bytes first."""
    sizes: dict[str, array[int]] = {}
    oversize: Counter[str] = Counter()
    for event in events:
        tool, size = event.get("tool"), event.get("response_bytes")
        # A journal line may be damaged.
        if not isinstance(tool, str) or not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 1 << 62:
            continue
        if event.get("event") == "tool_called":
            sizes.setdefault(tool, array("q")).append(size)
        elif event.get("event") == "response_oversize":
            oversize[tool] += 1
    ordered = sorted(sizes, key=lambda tool: (-sum(sizes[tool]), tool))
    return {tool: _summarize_sizes(sorted(sizes[tool]), oversize[tool]) for tool in ordered}


def _summarize_sizes(sizes: list[int], oversize: int) -> dict[str, int]:
    return {
        "count": len(sizes),
        "max_bytes": sizes[-1],
        "average_bytes": round(sum(sizes) / len(sizes)),
        # The smallest size that at least 95% of the responses do not exceed.
        "p95_bytes": sizes[-(-len(sizes) * 95 // 100) - 1],
        "oversize": oversize,
    }
