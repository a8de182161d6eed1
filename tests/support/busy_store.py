"""A store as weeks of use leave it, for pictures and for tests of what is shown of it."""

import random
import time
from pathlib import Path
from typing import Any

import forebay
from forebay.outputs.monitor import Monitor

__all__ = ["fill_store"]

_DAY_SECONDS = 86400
_DAYS = 27
_TOOLS = ("list_issues", "crawl_site", "search_code", "read_file", "query_orders", "screenshot", "get_logs")
_CITIES = ("Lima", "Oslo", "Kyoto", "Accra", "Quito")
_MAX_RESULT_BYTES = 2_000_000


class _Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def fill_store(root: Path) -> str:
    """Fill a store with counts, outputs and events of the last weeks, and return the handle of a list of orders."""
    source, now = random.Random(7), time.time()
    clock = _Clock(now)
    with forebay.open_store(root.as_uri(), sweep_interval=0, clock=clock, ttl=3 * _DAY_SECONDS) as store:
        for days in reversed(range(_DAYS)):
            clock.now = now - days * _DAY_SECONDS
            # Fewer calls at weekends.
            share = 0.25 if time.gmtime(clock.now).tm_wday >= 5 else 1
            for tool in _TOOLS:
                calls = int(source.randrange(10, 60) * share)
                handles = source.randrange(calls // 2 + 1)
                stored = sum(source.randrange(50_000, _MAX_RESULT_BYTES) for _ in range(handles))
                store.call_counts.add(
                    tool, None, calls=calls, handles=handles, stored_bytes=stored, shown_bytes=3200 * handles
                )
            store.call_counts.add("output_fetch", None, calls=40, shown_bytes=source.randrange(200_000, 900_000))
            store.call_counts.add("output_search", None, calls=20, shown_bytes=source.randrange(50_000, 200_000))
            store.call_counts.flush()
        monitor = Monitor(store.journal, connection_limit=1 << 40)
        for number in range(80):
            clock.now = now - (80 - number) * 1800
            # One in forty is too large.
            size = 12_400 if number % 40 == 11 else source.randrange(900, 10_000)
            monitor.record(source.choice(_TOOLS), size, mode="contract", budget=10_240)
        for number in range(38):
            clock.now = now - (38 - number) * 3600
            tool = _TOOLS[source.randrange(len(_TOOLS))]
            handle = store.put(_make_payload(tool, source), source_tool=tool).output_handle
            for _ in range(source.choice((0, 0, 1, 2, 5))):
                store.fetch(handle, limit=1)
        clock.now = now - 600
        store.journal.record("capability_denied", tool="delete_repository", capability="admin")
        store.journal.record("file_ref_denied", tool="write_file", path="content", code="file_ref_denied")
        store.journal.record("store_failed", source_tool="crawl_site", code="store_full")
        clock.now = now - 240
        orders = {"orders": [_make_order(number, source) for number in range(41_200)], "page": 1, "next": None}
        return store.put(orders, source_tool="query_orders").output_handle


def _make_payload(tool: str, source: random.Random) -> Any:
    if tool == "screenshot":
        return source.randbytes(source.randrange(40_000, 400_000))
    if tool == "get_logs":
        lines = range(source.randrange(500, 5000))
        return "".join(
            f"2026-11-19T12:00:07Z INFO worker-{line % 7} took {source.randrange(900)} ms\n" for line in lines
        )
    return {"items": [_make_order(number, source) for number in range(source.randrange(300, 4000))]}


def _make_order(number: int, source: random.Random) -> dict[str, Any]:
    return {
        "id": number,
        "status": source.choice(("paid", "shipped", "failed")),
        "customer": {"name": source.choice(("Ada", "Grace", "Alan", "Edsger")), "city": source.choice(_CITIES)},
        "total": round(source.random() * 900, 2),
        "note": f"Order {number} from {source.choice(_CITIES)}",
        "tags": ["web", "gift"][: source.randrange(3)],
    }
