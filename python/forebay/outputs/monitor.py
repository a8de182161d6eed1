"""How large responses are: each one is noted, and those that are too large are told of."""

import logging
import threading
import weakref
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from forebay.arguments import check_integer
from forebay.outputs.contract.text import to_single_line
from forebay.store.journal import Journal

__all__ = ["CONNECTION_LIMIT_BYTES", "Monitor", "summarize_responses"]

_log = logging.getLogger("forebay")

CONNECTION_LIMIT_BYTES = 25 * 1024
"""What all responses of a connection together may weigh before someone is told."""

_MAX_COUNTED = 4096
"""How many principals and tools are counted for; of principals, those that were quiet the longest are forgotten."""

_OTHER_TOOLS = "others"
_MAX_NAME_LENGTH = 256


class _Total:
    """What a connection was sent."""

    __slots__ = ("is_warned", "sent_bytes")

    def __init__(self) -> None:
        self.sent_bytes = 0
        self.is_warned = False


class Monitor:
    """Notes every response in the journal. What is over its budget is logged, journalled and counted."""

    def __init__(self, journal: Journal, connection_limit: int = CONNECTION_LIMIT_BYTES) -> None:
        check_integer("connection_limit_bytes", connection_limit, 1)
        self._journal = journal
        self._limit = connection_limit
        self._lock = threading.Lock()
        self._connections: weakref.WeakKeyDictionary[object, _Total] = weakref.WeakKeyDictionary()
        self._principals: OrderedDict[str | None, _Total] = OrderedDict()
        self.oversize: Counter[str] = Counter()
        """How many responses of each tool were over their budget."""

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
        """Notes a response; without a connection it counts for the principal."""
        # A client may call a tool of any name, also one that cannot be written.
        name = to_single_line(tool, _MAX_NAME_LENGTH)
        told = {"tool": name, "response_bytes": response_bytes, "mode": mode}
        self._journal.record("tool_called", principal=principal, **told)
        if response_bytes > budget:
            self.oversize[name if name in self.oversize or len(self.oversize) < _MAX_COUNTED else _OTHER_TOOLS] += 1
            self._journal.record("response_oversize", principal=principal, **told, budget_bytes=budget)
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
            total = self._get_total(principal, connection)
            total.sent_bytes += size
            if total.sent_bytes <= self._limit or total.is_warned:
                return
            total.is_warned = True
        whose = "a connection" if connection is not None else "a principal"
        _log.warning(
            "forebay: the responses to %s take %d bytes by now, and %d were to be enough; "
            "smaller budgets, or output_mode='auto' with a smaller output_inline_limit_bytes, leave it more room",
            whose,
            total.sent_bytes,
            self._limit,
        )

    def sent_bytes(self, principal: str | None = None, connection: object = None) -> int:
        """What a connection or a principal was sent in all."""
        with self._lock:
            return self._get_total(principal, connection).sent_bytes

    def _get_total(self, principal: str | None, connection: object) -> _Total:
        if connection is not None:
            return self._connections.setdefault(connection, _Total())
        total = self._principals.setdefault(principal, _Total())
        self._principals.move_to_end(principal)
        if len(self._principals) > _MAX_COUNTED:
            self._principals.popitem(last=False)
        return total


def summarize_responses(events: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """How many responses each tool gave, and how large they were, by the journal; the heaviest tool first."""
    sizes: dict[str, array[int]] = {}
    oversize: Counter[str] = Counter()
    for event in events:
        tool, size = event.get("tool"), event.get("response_bytes")
        # What a damaged line says is no response of ours.
        if not isinstance(tool, str) or not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 1 << 62:
            continue
        if event.get("event") == "tool_called":
            sizes.setdefault(tool, array("q")).append(size)
        elif event.get("event") == "response_oversize":
            oversize[tool] += 1
    heaviest = sorted(sizes, key=lambda tool: (-sum(sizes[tool]), tool))
    return {tool: _summarize_sizes(sorted(sizes[tool]), oversize[tool]) for tool in heaviest}


def _summarize_sizes(sizes: list[int], oversize: int) -> dict[str, int]:
    return {
        "count": len(sizes),
        "max_bytes": sizes[-1],
        "average_bytes": round(sum(sizes) / len(sizes)),
        # The smallest that 95 of 100 are no larger than.
        "p95_bytes": sizes[-(-len(sizes) * 95 // 100) - 1],
        "oversize": oversize,
    }
