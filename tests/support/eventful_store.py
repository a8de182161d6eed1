"""A store with two weeks of events, as a team's gateway leaves it."""

import random
import time
from pathlib import Path

import forebay
from forebay.store.handles import make_subject_principal
from stores import Clock

DAY_SECONDS = 86400
DAYS = 14
TOOLS = {"crawl_site": 40, "list_orders": 25, "search_issues": 12, "read_log": 8, "export_customers": 3}
PRINCIPALS = ("ann", "bob", make_subject_principal("https://issuer.example", "carol.o'neill@example.org"))


def fill_store(folder: Path, *, seed: int = 7) -> list[str]:
    """Fill a store with events of the last two weeks, the newest a few minutes ago; return the handles it keeps."""
    rng = random.Random(seed)
    now = time.time()
    clock = Clock(now)
    with forebay.open_store(folder, sweep_interval=0, clock=clock) as store:
        kept: list[str] = []
        for day in range(DAYS - 1, -1, -1):
            if day in (4, 5):
                # A weekend.
                continue
            calls = rng.randrange(6, 24)
            moments = sorted(_choose_moment(rng, now, day) for _ in range(calls))
            for clock.now in moments:
                tool = rng.choices([*TOOLS], [*TOOLS.values()])[0]
                principal = rng.choice(PRINCIPALS)
                _call(store, rng, tool, principal, is_kept=day == 0, kept=kept)
    return kept


def _choose_moment(rng: random.Random, now: float, days: int) -> float:
    """Return a moment of the last hours, or of the day so many days ago, in UTC: events are counted by its days."""
    seconds = rng.randrange(4 * 60, 6 * 3600)
    return now - seconds if days == 0 else now - now % DAY_SECONDS - (days - 1) * DAY_SECONDS - seconds


def _call(
    store: forebay.Store, rng: random.Random, tool: str, principal: str, *, is_kept: bool, kept: list[str]
) -> None:
    """Make the events of one call."""
    record = store.journal.record
    if rng.random() < 0.35:
        size = rng.randrange(200, 30_000)
        record("tool_called", principal=principal, tool=tool, response_bytes=size, mode="inline")
        store.call_counts.add(tool, principal, calls=1)
        return
    # Sizes differ by orders of magnitude, as those of real results.
    count = round(10 ** rng.uniform(2.6, 4.6))
    rows = [{"id": number, "status": "paid", "note": "x" * 40} for number in range(count)]
    ttl = rng.choice((900, DAY_SECONDS, 7 * DAY_SECONDS)) if is_kept else 60
    descriptor = store.put(
        {"orders": rows} if tool != "read_log" else "\n".join(f"line {number} ok" for number in range(count)),
        source_tool=tool,
        principal=principal,
        ttl=max(ttl, 6 * 3600 + 1200) if is_kept else ttl,
    )
    shown = 2800
    record("tool_called", principal=principal, tool=tool, response_bytes=shown, mode="handle")
    store.call_counts.add(tool, principal, calls=1, handles=1, stored_bytes=descriptor.size_bytes, shown_bytes=shown)
    if is_kept:
        kept.append(descriptor.output_handle)
        for _ in range(rng.randrange(3)):
            page = store.fetch(descriptor.output_handle, offset=rng.randrange(100), limit=20, principal=principal)
            store.call_counts.add("output_fetch", principal, calls=1, shown_bytes=len(page.to_json()))
    if rng.random() < 0.08:
        record("output_handle_refused", principal=principal, handle="oh_" + "A" * 12, code="output_handle_not_found")
    if rng.random() < 0.05:
        record("capability_denied", principal=principal, tool="delete_orders", capability="admin")
    if rng.random() < 0.05:
        record("file_ref_denied", principal=principal, tool="upload", path="/etc/shadow", code="file_ref_denied")
    if rng.random() < 0.05:
        record(
            "response_oversize",
            principal=principal,
            tool=tool,
            response_bytes=61_000,
            mode="inline",
            budget_bytes=10_240,
        )
