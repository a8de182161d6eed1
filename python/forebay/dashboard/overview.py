"""The first page: savings, stored outputs, upstreams, response sizes and refusals."""

import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from forebay.dashboard.charts import Bar, draw_bars, draw_share
from forebay.dashboard.html import Child, Html, element, join
from forebay.dashboard.layout import PATH, Frame, make_section, wrap_page
from forebay.dashboard.snapshot import REFUSALS, Snapshot, Visitor
from forebay.dashboard.texts import format_bytes, format_count, format_short, format_time, mask_handle
from forebay.store import StoredOutput
from forebay.store.handles import format_principal
from forebay.store.journal import BYTES_PER_TOKEN

__all__ = ["Upstream", "make_overview"]

_MAX_DAYS, _MIN_DAYS = 30, 7
_SHOWN_TOOLS = 12
_PAGE_ROWS = 25
_CUT_JOURNAL_NOTE = "The journal has more events than could be read in time; only its newest events count here."


@dataclasses.dataclass(frozen=True, slots=True)
class Upstream:
    """An upstream of `forebay serve`, as one principal sees it."""

    name: str
    kind: str
    """What it is: `command`, `url`, `openapi` or `python`."""
    state: str
    """`connected`, `connecting`, `loaded`, `not in use` or `failed`."""
    tools: int | None = None
    calls: int = 0
    """Number of calls in flight."""


def make_overview(
    snapshot: Snapshot, visitor: Visitor, frame: Frame, query: Mapping[str, str], upstreams: Sequence[Upstream] | None
) -> bytes:
    """Return the page. `query` selects the order and the part of the list of outputs."""
    sections = [
        _make_figures(snapshot),
        _make_days(snapshot, visitor),
        _make_tools(snapshot),
        _make_outputs(snapshot, visitor, query),
        None if upstreams is None else _make_upstreams(upstreams),
        _make_responses(snapshot),
        _make_refusals(snapshot, visitor),
    ]
    return wrap_page("Dashboard · forebay", frame, element("h1", "Dashboard", class_="hidden"), *sections)


def _make_figures(snapshot: Snapshot) -> Html:
    usage, outputs = snapshot.usage, snapshot.outputs
    read_back = sum(sums["shown_bytes"] for tool, sums in usage["by_tool"].items() if not sums["handles"])
    size = sum(entry.size_bytes for entry in outputs)
    figures = (
        (
            "Kept out of the context",
            format_bytes(usage["saved_bytes"]),
            f"about {format_short(usage['saved_tokens'])} tokens",
        ),
        ("Calls", format_short(usage["calls"]), f"{format_count(usage['handles'], 'result')} stored"),
        ("Live outputs", f"{len(outputs):,}{'' if snapshot.has_all_outputs else '+'}", format_bytes(size)),
        ("Read back by models", format_bytes(read_back), f"about {format_short(read_back // BYTES_PER_TOKEN)} tokens"),
    )
    return element(
        "section",
        element(
            "dl",
            [
                element("div", element("dt", name), element("dd", element("strong", value), element("span", more)))
                for name, value, more in figures
            ],
        ),
        id="figures",
        aria_label="Totals",
        class_="figures",
    )


def _make_days(snapshot: Snapshot, visitor: Visitor) -> Html:
    by_day: dict[str, dict[str, int]] = snapshot.usage["by_day"]
    if not by_day:
        hint: tuple[Child, ...] = ("Every call of your MCP client is counted here.",)
        if visitor.is_operator:
            hint = (
                "Every call through forebay is counted: run a server with ",
                element("code", "forebay wrap -- COMMAND"),
            )
        return make_section(
            "Saved by day",
            "days",
            _make_empty("No call was counted yet.", *hint),
        )
    today = datetime.fromtimestamp(snapshot.taken_at, UTC).date()
    # An empty month before the first call would hide that there is nothing to see in it.
    age = (today - date.fromisoformat(min(by_day))).days + 1
    days = [(today - timedelta(days=back)).isoformat() for back in reversed(range(min(max(age, _MIN_DAYS), _MAX_DAYS)))]
    bars = [
        Bar(sums["saved_bytes"], f"{day}: {_describe_day(sums)}")
        if (sums := by_day.get(day))
        else Bar(0, f"{day}: no calls")
        for day in days
    ]
    largest = max(bars)
    summary = f"Saved on each of the last {len(days)} days; the most is {format_bytes(max(0, largest.value))}"
    rows = [(element("th", day, scope="row"), *_make_sums(by_day[day])) for day in reversed(days) if day in by_day]
    return make_section(
        "Saved by day",
        "days",
        element("p", format_bytes(max(0, largest.value)), class_="axis", aria_hidden="true"),
        draw_bars(bars, summary),
        element("p", element("span", days[0]), element("span", days[-1]), class_="axis ends", aria_hidden="true"),
        element(
            "details",
            element("summary", "As a table"),
            _make_table("Days", ("Day (UTC)", "Saved", "Tokens", "Calls", "Stored"), rows, 1),
        ),
    )


def _describe_day(sums: Mapping[str, int]) -> str:
    return f"{format_bytes(sums['saved_bytes'])} saved, {format_count(sums['calls'], 'call')}"


def _make_sums(sums: Mapping[str, int]) -> tuple[Html, ...]:
    return (
        _make_number(format_bytes(sums["saved_bytes"]) if sums["saved_bytes"] else ""),
        _make_number(format_short(sums["saved_tokens"]) if sums["saved_tokens"] else ""),
        _make_number(f"{sums['calls']:,}"),
        _make_number(f"{sums['handles']:,}" if sums["handles"] else ""),
    )


def _make_number(child: Child, title: str | None = None) -> Html:
    return element("td", child, class_="number", title=title)


def _make_tools(snapshot: Snapshot) -> Html:
    by_tool: dict[str, dict[str, int]] = snapshot.usage["by_tool"]
    if not by_tool:
        return make_section("Saved by tool", "tools", _make_empty("Tools appear here after their first call."))
    shown = [*by_tool.items()]
    largest = max(sums["saved_bytes"] for sums in by_tool.values())
    rows = [
        (
            element("th", tool, scope="row", title=tool),
            element("td", draw_share(sums["saved_bytes"], largest), class_="bar-cell"),
            *_make_sums(sums),
        )
        for tool, sums in shown
    ]
    columns = ("Tool", "", "Saved", "Tokens", "Calls", "Stored")
    more = rows[_SHOWN_TOOLS:]
    return make_section(
        "Saved by tool",
        "tools",
        _make_table("Tools", columns, rows[:_SHOWN_TOOLS], 2),
        element("details", element("summary", f"{len(more):,} more"), _make_table("More tools", columns, more, 2))
        if more
        else None,
        note="The size of stored results, minus the handles and pages that were sent instead.",
    )


# The list of outputs.

_Column = tuple[str, Callable[[StoredOutput], Any], bool]
"""The heading of a column, its sort key, and whether the first click sorts the largest value first."""

_NUMBERS = ("size", "items", "reads")


def _make_outputs(snapshot: Snapshot, visitor: Visitor, query: Mapping[str, str]) -> Html:
    if not snapshot.outputs:
        hint: tuple[Child, ...] = (
            ("; to try it: ", element("code", "forebay put FILE")) if visitor.is_operator else (".",)
        )
        text = "Nothing is stored now." if snapshot.has_all_outputs else "The list takes too long to read."
        return make_section(
            "Live outputs",
            "outputs",
            _make_empty(text, "A tool result that is too large for the context appears here", *hint),
            is_wide=True,
        )
    has_principals = visitor.is_operator and any(entry.principal for entry in snapshot.outputs)
    columns: dict[str, _Column] = {
        "tool": ("Tool", lambda entry: (entry.source_tool or "").lower(), False),
        "size": ("Size", operator.attrgetter("size_bytes"), True),
        "items": ("Items", lambda entry: entry.item_count if entry.item_count is not None else -1, True),
        "reads": ("Reads", lambda entry: snapshot.reads[entry.output_handle], True),
        "type": ("Type", operator.attrgetter("mime_type"), False),
        "created": ("Stored", operator.attrgetter("created_at"), True),
        "expires": ("Expires", operator.attrgetter("expires_at"), False),
        **({"principal": ("Principal", lambda entry: entry.principal or "", False)} if has_principals else {}),
    }
    sort = query.get("sort", "")
    sort = sort if sort in columns else "created"
    starts_descending = columns[sort][2]
    is_descending = {"asc": False, "desc": True}.get(query.get("order", ""), starts_descending)
    ordered = sorted(snapshot.outputs, key=columns[sort][1], reverse=is_descending)
    page_count = -(-len(ordered) // _PAGE_ROWS)
    number = query.get("page", "")
    page = min(max(1, int(number[:7])), page_count) if number.isascii() and number.isdigit() else 1
    shown = ordered[(page - 1) * _PAGE_ROWS : page * _PAGE_ROWS]
    head = [element("th", "Handle", scope="col")]
    for key, (text, _, descending_first) in columns.items():
        is_current = key == sort
        next_order = ("asc" if is_descending else "desc") if is_current else ("desc" if descending_first else "asc")
        arrow = element("span", "↓" if is_descending else "↑", aria_hidden="true") if is_current else None
        link = element("a", text, arrow, href=_make_link(sort=key, order=next_order))
        aria = ("descending" if is_descending else "ascending") if is_current else None
        head.append(element("th", link, scope="col", aria_sort=aria, class_="number" if key in _NUMBERS else None))
    rows = [
        element("tr", _make_output_cells(entry, snapshot, visitor, has_principals=has_principals)) for entry in shown
    ]
    order = "desc" if is_descending else "asc"
    notes = [
        None
        if snapshot.has_all_outputs
        else "The store has more outputs than could be listed in time; forebay ls lists all of them.",
        None
        if snapshot.has_all_events
        else "The journal has more events than could be read in time; reads by older events are not counted.",
        "Callers without a token share this list, so it hides handles; to open an output, enter its handle below."
        if visitor.hides_handles
        else None,
    ]
    return make_section(
        "Live outputs",
        "outputs",
        [element("p", note, class_="note") for note in notes if note],
        _make_scroller(
            "List of outputs", element("table", element("thead", element("tr", head)), element("tbody", rows))
        ),
        element(
            "nav",
            element(
                "span", f"{(page - 1) * _PAGE_ROWS + 1:,}–{(page - 1) * _PAGE_ROWS + len(shown):,} of {len(ordered):,}"
            ),
            element("a", "Previous", href=_make_link(sort=sort, order=order, page=page - 1)) if page > 1 else None,
            element("a", "Next", href=_make_link(sort=sort, order=order, page=page + 1)) if page < page_count else None,
            class_="pages",
            aria_label="Pages of outputs",
        ),
        _make_open_form() if visitor.hides_handles else None,
        is_wide=True,
    )


def _make_link(**options: str | int) -> str:
    return f"{PATH}?{urlencode(options)}#outputs"


def _make_output_cells(
    entry: StoredOutput, snapshot: Snapshot, visitor: Visitor, *, has_principals: bool
) -> list[Html]:
    handle, now = entry.output_handle, snapshot.taken_at
    if visitor.hides_handles:
        name = element("code", mask_handle(handle))
    else:
        name = element("a", element("code", handle), href=f"{PATH}/{handle}")
    reads = snapshot.reads[handle]
    return [
        element("th", name, scope="row"),
        element("td", entry.source_tool or "unknown", title=entry.source_tool, class_="name"),
        _make_number(format_bytes(entry.size_bytes), f"{entry.stored_bytes:,} bytes on disk"),
        _make_number("" if entry.item_count is None else f"{entry.item_count:,}"),
        _make_number(f"{reads:,}" if reads else ""),
        element("td", entry.mime_type.removeprefix("application/"), title=entry.mime_type, class_="name"),
        element("td", format_time(entry.created_at, now)),
        element("td", format_time(entry.expires_at, now)),
        *([element("td", format_principal(entry.principal) or "", class_="name")] if has_principals else []),
    ]


def _make_open_form() -> Html:
    return element(
        "form",
        element("label", element("span", "Handle"), element("input", name="handle", placeholder="oh_…", required=True)),
        element("button", "Open"),
        action=f"{PATH}/open",
        class_="open",
    )


# Response sizes, refusals and upstreams.


def _make_responses(snapshot: Snapshot) -> Html:
    note = None if snapshot.has_all_events else _CUT_JOURNAL_NOTE
    if not snapshot.responses:
        return make_section(
            "Response sizes",
            "responses",
            _make_empty(
                "No response size is recorded.",
                "Servers record them with ",
                element("code", "--journal"),
                " or ",
                element("code", "--contract"),
                ".",
            ),
            note=note,
        )
    rows = [
        (
            element("th", tool, scope="row"),
            _make_number(f"{sizes['count']:,}"),
            *(_make_number(format_bytes(sizes[name])) for name in ("average_bytes", "p95_bytes", "max_bytes")),
            _make_number(element("strong", f"{sizes['oversize']:,}", class_="bad") if sizes["oversize"] else ""),
        )
        for tool, sizes in [*snapshot.responses.items()][:_SHOWN_TOOLS]
    ]
    alerts = [
        element(
            "li",
            element("strong", str(event.get("tool", "")), class_="name"),
            f" sent {_format_size(event.get('response_bytes'))} ",
            format_time(event.get("ts"), snapshot.taken_at),
            f"; its budget is {_format_size(event.get('budget_bytes'))}",
        )
        for event in snapshot.alerts[:5]
    ]
    return make_section(
        "Response sizes",
        "responses",
        _make_table("Sizes by tool", ("Tool", "Sent", "Average", "p95", "Largest", "Over budget"), rows, 1),
        join(
            element("h3", f"{format_count(snapshot.counts['response_oversize'], 'response')} over budget"),
            element("ul", alerts, class_="alerts"),
            element("p", "For these tools, set output_mode to auto, or name them in contract.", class_="note"),
        )
        if alerts
        else None,
        note=note,
    )


def _format_size(size: object) -> str:
    return format_bytes(size) if isinstance(size, int) else "?"


def _make_refusals(snapshot: Snapshot, visitor: Visitor) -> Html:
    total = sum(snapshot.counts[name] for name in REFUSALS)
    notes = [] if snapshot.has_all_events else [_CUT_JOURNAL_NOTE]
    if not total:
        text = "Nothing was refused, and nothing failed."
        return make_section("Refusals", "refusals", _make_empty(text), note=" ".join(notes) or None)
    rows = [
        (
            element("td", REFUSALS[event["event"]]),
            element("td", str(event.get("tool") or event.get("source_tool") or ""), class_="name"),
            element("td", _describe_refusal(event, visitor), class_="why"),
            element("td", format_time(event.get("ts"), snapshot.taken_at)),
        )
        for event in snapshot.refusals
    ]
    if total > len(rows):
        notes.append(f"The newest {len(rows)} of {total:,}.")
    table = _make_table("Newest refusals", ("What", "Tool", "Why", "When"), rows, 4)
    return make_section("Refusals", "refusals", table, note=" ".join(notes) or None)


def _describe_refusal(event: Mapping[str, Any], visitor: Visitor) -> str:
    handle = event.get("handle")
    shown = (mask_handle(handle) if visitor.hides_handles else handle) if isinstance(handle, str) else None
    code = str(event.get("code") or "").removeprefix("output_handle_").replace("_", " ")
    parts = (event.get("capability"), code, event.get("path"), shown)
    return " · ".join(str(part) for part in parts if part)


def _make_upstreams(upstreams: Sequence[Upstream]) -> Html:
    rows = [
        (
            element("th", upstream.name, scope="row"),
            element("td", upstream.kind),
            element(
                "td",
                element("span", upstream.state, class_=f"state state-{upstream.state.replace(' ', '-')}"),
            ),
            _make_number("" if upstream.tools is None else f"{upstream.tools:,}"),
            _make_number(f"{upstream.calls:,}" if upstream.calls else ""),
        )
        for upstream in upstreams
    ]
    return make_section(
        "Upstreams",
        "upstreams",
        _make_table("Upstreams and their state", ("Name", "Kind", "State", "Tools", "In flight"), rows, 3),
        note="A server that is not in use starts with your next session; if one failed, the log has the reason.",
        is_wide=True,
    )


def _make_table(label: str, columns: Sequence[str], rows: Sequence[Sequence[Html]], text_columns: int) -> Html:
    """Return a table. The first `text_columns` columns are texts, the others numbers."""
    head = [
        element("th", name, scope="col", class_=None if index < text_columns else "number")
        if name
        else element("td", class_="bar-cell")
        for index, name in enumerate(columns)
    ]
    table = element(
        "table", element("thead", element("tr", head)), element("tbody", [element("tr", [*row]) for row in rows])
    )
    return _make_scroller(label, table)


def _make_scroller(label: str, table: Html) -> Html:
    """Return a table in a box that scrolls on a narrow page, also by keyboard."""
    return element("div", table, class_="scroll", tabindex="0", role="group", aria_label=label)


def _make_empty(text: str, *hint: Child) -> Html:
    return element("div", element("p", text), element("p", *hint) if hint else None, class_="empty")
