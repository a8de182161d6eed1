"""The page of one stored output. It works without JavaScript; the script replaces its content with the viewer."""

import base64
import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import orjson

from forebay.dashboard.api import MAX_PAGE_BYTES
from forebay.dashboard.html import Child, Html, element, join
from forebay.dashboard.layout import PATH, Frame, wrap_page
from forebay.dashboard.texts import format_bytes, format_count, format_time
from forebay.dashboard.values import MISSING, dump_value, make_table, parse_exact
from forebay.errors import ForebayError, HandleNotFound, InvalidArgument
from forebay.query.duckdb_module import is_installed
from forebay.store import Store, StoredOutput
from forebay.store.handles import Principal, format_principal
from forebay.store.pages import Format, Page, PageRequest
from forebay.store.search import SearchPage

__all__ = ["make_payload_page"]

_FORMATS: tuple[Format, ...] = ("auto", "items", "lines", "text", "bytes")
_LIMITS = {"items": 100, "lines": 400, "text": 16384, "bytes": 4096}
_MATCHES = 50
_CONTEXT_BYTES = 120
_HEX_ROW_BYTES = 16
_MAX_OFFSET_DIGITS = 18
_MAX_PAGES_BEFORE = 32
"""Maximum number of pages to read until one ends where the next begins. Each has at most half the limit of the last."""

_MAX_COLUMNS = 200
"""Items with more keys than this are not shown in columns: most of the cells would be empty."""

_MAX_CRUMBS = 20
"""Maximum number of steps of a path that are links. Each link has the path up to its step."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """What the page shows, read from its address. The viewer in JavaScript has the same fields, but for `end`."""

    view: str = "read"
    format: Format = "auto"
    path: str = ""
    where: str = ""
    fields: str = ""
    offset: int = 0
    end: int = 0
    """If not 0, the page ends here, and begins at `offset` or later: as much as fits is shown."""
    pattern: str = ""
    regex: bool = False
    ignore_case: bool = False
    mode: str = "text"
    sql: str = ""


def make_payload_page(
    store: Store, principal: Principal, frame: Frame, handle: str, query: Mapping[str, str]
) -> tuple[int, bytes]:
    """Return the HTTP status and the page. Raises `HandleNotFound`."""
    entry = store.stat(handle, principal=principal)
    state = _parse_state(query)
    status, content = 200, Html()
    try:
        content = _VIEWS[state.view](store, principal, entry, state)
    except HandleNotFound:
        raise
    except ForebayError as error:
        status, content = 400, _make_error(error)
    except RecursionError:
        text = "the values are nested too deeply for this page; read them in format text"
        status, content = 400, _make_error(InvalidArgument(text))
    viewer = element(
        "div",
        _make_tabs(entry, state),
        _FORMS[state.view](entry, state),
        content,
        id="viewer",
        class_="fb-viewer",
        data_handle=handle,
        data_descriptor=orjson.dumps(_describe(entry)).decode(),
        data_state=orjson.dumps(dataclasses.replace(state, end=0)).decode(),
        data_can_query=is_installed(),
    )
    title = f"{entry.source_tool or 'output'} · {handle}"
    body = element("div", _make_head(entry, store.options.clock()), viewer, class_="payload")
    return status, wrap_page(f"{title} · forebay", frame, body)


def _describe(entry: StoredOutput) -> dict[str, Any]:
    # A descriptor has the same fields.
    names = ("output_handle", "mime_type", "size_bytes", "item_count", "line_count", "items_path", "outline")
    return {name: getattr(entry, name) for name in names}


def _parse_state(query: Mapping[str, str]) -> _State:
    view, page_format = query.get("view", ""), query.get("format", "")
    return _State(
        view=view if view in _VIEWS else "read",
        format=next((name for name in _FORMATS if name == page_format), "auto"),
        offset=_parse_offset(query.get("offset", "")),
        end=_parse_offset(query.get("end", "")),
        regex="regex" in query,
        ignore_case="ignore_case" in query,
        mode="values" if query.get("mode") == "values" else "text",
        **{name: query.get(name, "").strip() for name in ("path", "where", "fields", "sql")},
        pattern=query.get("pattern", ""),
    )


def _parse_offset(text: str) -> int:
    digits = text.strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= _MAX_OFFSET_DIGITS else 0


def _make_link(handle: str, state: _State, *, end: int = 0, **changes: Any) -> str:
    changed = dataclasses.replace(state, end=end, **changes)
    options = {
        field.name: "on" if value is True else value
        for field in dataclasses.fields(changed)
        if (value := getattr(changed, field.name)) != field.default
    }
    return f"{PATH}/{handle}?{urlencode(options)}"


# The frame: what the output is, tabs and forms.


def _make_head(entry: StoredOutput, now: float) -> Html:
    facts: list[tuple[str, Child]] = [
        ("Tool", entry.source_tool),
        ("Type", entry.mime_type),
        ("Size", element("span", format_bytes(entry.size_bytes), title=f"{entry.size_bytes:,} bytes")),
        ("Items", None if entry.item_count is None else f"{entry.item_count:,}"),
        ("Lines", None if entry.line_count is None or entry.item_count is not None else f"{entry.line_count:,}"),
        ("Decoded from", entry.decoded_from),
        ("Stored", format_time(entry.created_at, now)),
        ("Expires", format_time(entry.expires_at, now)),
        ("Principal", format_principal(entry.principal)),
    ]
    return element(
        "section",
        element("p", element("a", "Dashboard", href=PATH), class_="back"),
        element("h1", element("code", entry.output_handle)),
        element("dl", [element("div", element("dt", name), element("dd", value)) for name, value in facts if value]),
        None if entry.outline is None else element("p", element("code", entry.outline), class_="outline", tabindex="0"),
        class_="facts",
        aria_label="The output",
    )


def _make_tabs(entry: StoredOutput, state: _State) -> Html:
    can_query = is_installed() and entry.item_count is not None
    views = [("read", "Read"), ("search", "Search"), *([("query", "Query")] if can_query else [])]
    return element(
        "nav",
        [
            element(
                "a",
                text,
                href=_make_link(entry.output_handle, state, view=view, offset=0),
                class_="fb-tab",
                aria_current="page" if view == state.view else None,
            )
            for view, text in views
        ],
        class_="fb-tabs",
        aria_label="View",
    )


def _make_form(handle: str, view: str, *children: Child) -> Html:
    return element(
        "form",
        element("input", type="hidden", name="view", value=view),
        *children,
        action=f"{PATH}/{handle}",
        class_="fb-form",
    )


def _make_label(text: str, control: Html, *, grows: bool = False) -> Html:
    return element("label", element("span", text), control, class_="fb-label fb-grow" if grows else "fb-label")


def _choose_format(entry: StoredOutput, state: _State) -> Format:
    """Return the format to read: of a text, lines have numbers that a person can go to."""
    opens_as_lines = state.format == "auto" and not state.path and entry.nature == "text" and _is_plain(entry)
    return "lines" if opens_as_lines and (entry.line_count or 0) > 1 else state.format


def _is_plain(entry: StoredOutput) -> bool:
    """Return whether the output has no paths, and no items to select from."""
    return entry.nature in ("text", "binary") and entry.item_count is None


def _make_read_form(entry: StoredOutput, state: _State) -> Html:
    options = [element("option", name, selected=name == state.format) for name in _FORMATS]
    texts = (
        ("Path", "path", "such as /rows/3"),
        ("Where", "where", 'such as {"status": "failed"}'),
        ("Fields", "fields", "such as id, user.name"),
    )
    return _make_form(
        entry.output_handle,
        "read",
        _make_label("Format", element("select", options, name="format")),
        [
            _make_label(text, element("input", name=name, value=getattr(state, name), placeholder=example), grows=True)
            for text, name, example in texts
            # What an address sets can be removed, even where it cannot apply.
            if not _is_plain(entry) or state.path or state.where or state.fields
        ],
        _make_label("From", element("input", name="offset", placeholder="0", inputmode="numeric")),
        element("button", "Read"),
    )


def _make_search_form(entry: StoredOutput, state: _State) -> Html:
    def check(text: str, name: str, value: str, *, is_checked: bool) -> Html:
        box = element("input", type="checkbox", name=name, value=value, checked=is_checked)
        return element("label", box, text, class_="fb-check")

    return _make_form(
        entry.output_handle,
        "search",
        _make_label(
            "Find",
            element("input", type="search", name="pattern", value=state.pattern, placeholder="text to find"),
            grows=True,
        ),
        check("regular expression", "regex", "on", is_checked=state.regex),
        check("ignore case", "ignore_case", "on", is_checked=state.ignore_case),
        check("decoded values", "mode", "values", is_checked=state.mode == "values"),
        element("button", "Search"),
    )


def _make_query_form(entry: StoredOutput, state: _State) -> Html:
    example = "such as SELECT status, count(*) FROM items GROUP BY 1"
    area = element("textarea", state.sql, name="sql", rows="3", placeholder=example)
    return _make_form(
        entry.output_handle,
        "query",
        _make_label("SQL (DuckDB); the table is named items", area, grows=True),
        element("button", "Run"),
    )


def _make_error(error: ForebayError) -> Html:
    details = error.to_dict()["error"]
    tables = details.get("tables")
    return element(
        "div",
        element("p", str(error)),
        element("ul", [element("li", element("code", f"{name} {columns}")) for name, columns in tables.items()])
        if isinstance(tables, dict)
        else None,
        element("p", "An example: ", element("code", str(details["example"]))) if details.get("example") else None,
        class_="fb-error",
        role="alert",
    )


def _make_body(*children: Child) -> Html:
    return element("div", *children, class_="fb-body", tabindex="0", role="region", aria_label="Content")


def _make_pages(status: str, *links: Child) -> Html:
    return element("nav", element("span", status), *links, class_="pages", aria_label="Pages")


# Read.


def _make_read_view(store: Store, principal: Principal, entry: StoredOutput, state: _State) -> Html:
    handle = entry.output_handle
    page_format = _choose_format(entry, state)
    request = PageRequest(
        offset=state.offset,
        limit=_LIMITS.get("bytes" if entry.nature == "binary" else page_format),
        format=page_format,
        path=state.path or None,
        fields=[name.strip() for name in state.fields.split(",")] if state.fields else None,
        where=state.where or None,
        max_bytes=MAX_PAGE_BYTES,
    )

    def fetch(request: PageRequest) -> Page:
        return store.fetch_page(handle, request, principal=principal)

    is_before = state.end > state.offset
    page = _fetch_before(fetch, request, state.end) if is_before else fetch(request)
    noun = {"items": "item", "lines": "line", "bytes": "byte", "matches": "match"}[page.unit]
    end = page.offset + page.returned
    if page.returned:
        status = (
            f"{page.offset:,}–{end - 1:,} of {format_count(page.total, noun, 'matches' if noun == 'match' else None)}"
        )
    else:
        status = page.hint or "There is nothing here."
    step = _LIMITS[page.format] if page.limit > page.returned else page.limit
    if is_before:
        step = state.end - state.offset
    previous = {"offset": max(0, page.offset - step), "end": page.offset}
    notes = [*map(_describe_cut, page.truncated), *([page.hint] if page.hint and page.returned else [])]
    return join(
        _make_crumbs(handle, state),
        [element("p", note, class_="fb-note") for note in notes],
        [_make_read_all_link(handle, state, cut) for cut in page.truncated if cut.get("read_with")],
        _make_body(_make_page(page, handle, state)),
        _make_other_paths(handle, state, page),
        _make_pages(
            status,
            element("a", "First", href=_make_link(handle, state, offset=0)) if page.offset else None,
            element("a", "Previous", href=_make_link(handle, state, **previous)) if page.offset else None,
            None
            if page.next_offset is None
            else element("a", "Next", href=_make_link(handle, state, offset=page.next_offset)),
        ),
    )


def _fetch_before(fetch: Callable[[PageRequest], Page], request: PageRequest, end: int) -> Page:
    """Return the page from the offset of the request to `end`. If it is too large, it begins later."""
    start = request.offset
    for _ in range(_MAX_PAGES_BEFORE):
        page = fetch(dataclasses.replace(request, offset=start, limit=end - start))
        if page.offset + page.returned >= end:
            break
        shorter = max(1, min(page.returned, (end - start) // 2))
        # Text begins with a whole character, which may be before the requested offset.
        start = page.offset if page.offset < start else end - shorter
    return page


def _make_crumbs(handle: str, state: _State) -> Html | None:
    if not state.path:
        return None
    steps = state.path.split("/")
    links = [
        element(
            "a",
            "whole output" if index == 0 else step.replace("~1", "/").replace("~0", "~"),
            href=_make_link(handle, _State(), path="/".join(steps[: index + 1])),
        )
        for index, step in enumerate(steps)
        if index == 0 or index > len(steps) - _MAX_CRUMBS
    ]
    return element("nav", links, class_="fb-crumbs", aria_label="Breadcrumbs")


def _describe_cut(cut: Mapping[str, Any]) -> str:
    return f"Only the beginning of row {cut['index']:,} is shown: all of it is {format_bytes(cut['size_bytes'])}."


def _make_read_all_link(handle: str, state: _State, cut: Mapping[str, Any]) -> Html:
    arguments = cut["read_with"]
    changes = {name: arguments.get(name, getattr(_State(), name)) for name in ("path", "format", "offset")}
    link = _make_link(handle, dataclasses.replace(state, where="", fields=""), **changes)
    return element("p", element("a", "Read all of it", href=link), class_="fb-note")


def _make_other_paths(handle: str, state: _State, page: Page) -> Html | None:
    paths: Mapping[str, int] = (page.not_in_items or {}).get("paths", {})
    if not paths:
        return None
    links = [
        element("a", f"{path} ({format_bytes(size)})", href=_make_link(handle, _State(view=state.view), path=path))
        for path, size in paths.items()
    ]
    return element(
        "p", "Besides the items: ", list(itertools.chain.from_iterable((link, " ") for link in links)), class_="fb-note"
    )


def _make_page(page: Page, handle: str, state: _State) -> Html:
    if page.format == "items" and isinstance(page.content, bytes):
        return _make_items(page, handle, state)
    if page.encoding == "json":
        return element("pre", dump_value(parse_exact(page.content), ""), class_="fb-value")
    if page.format == "lines":
        lines = str(page.content).split("\n")
        rows = [
            element("tr", element("th", f"{page.offset + index:,}", scope="row"), element("td", line))
            for index, line in enumerate(lines[: page.returned])
        ]
        return element("table", element("tbody", rows), class_="fb-lines")
    if page.format == "bytes":
        return element("pre", _dump_hex(base64.b64decode(page.content), page.offset), class_="fb-hex")
    return element("pre", str(page.content), class_="fb-text")


def _make_items(page: Page, handle: str, state: _State) -> Html:
    items = parse_exact(page.content)
    objects = [item for item in items if isinstance(item, dict)]
    keys = [*dict.fromkeys(key for item in objects for key in item)]
    columns = keys if 0 < len(keys) <= _MAX_COLUMNS and len(objects) * 2 >= len(items) else None
    numbers, rows = [], []
    for index, item in enumerate(items):
        number = page.item_numbers[index] if page.item_numbers else page.offset + index
        key = item["_key"] if isinstance(item, dict) and isinstance(item.get("_key"), str) else str(number)
        path = f"{state.path}{page.items_path or ''}/{key.replace('~', '~0').replace('/', '~1')}"
        numbers.append(element("a", f"{number:,}", href=_make_link(handle, _State(), path=path), title=path))
        is_row = columns is not None and isinstance(item, dict)
        rows.append([item.get(key, MISSING) for key in columns or ()] if is_row else [item])
    return make_table(columns or ["value"], rows, numbers=numbers)


def _dump_hex(data: bytes, offset: int) -> str:
    rows = []
    for start in range(0, len(data), _HEX_ROW_BYTES):
        row = data[start : start + _HEX_ROW_BYTES]
        text = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
        rows.append(f"{offset + start:08x}  {row.hex(' '):<{_HEX_ROW_BYTES * 3 - 1}}  {text}")
    return "\n".join(rows)


# Search and query.


def _make_search_view(store: Store, principal: Principal, entry: StoredOutput, state: _State) -> Html:
    if not state.pattern:
        return _make_body(element("p", "Type a text, and press Enter.", class_="fb-note"))
    handle = entry.output_handle
    page = store.search(
        handle,
        state.pattern,
        regex=state.regex,
        ignore_case=state.ignore_case,
        mode="values" if state.mode == "values" else "text",
        offset=state.offset,
        limit=_MATCHES,
        context=_CONTEXT_BYTES,
        max_bytes=MAX_PAGE_BYTES,
        principal=principal,
    )
    rows = [_make_match(entry, match, offset) for match, offset in zip(page.matches, page.context_offsets, strict=True)]
    at_least = "at least " if page.total_is_lower_bound else ""
    status = f"{at_least}{format_count(page.total_matches, 'match', 'matches')}"
    nothing = f"Nothing was found in {page.searched or 'this output'}."
    return join(
        _make_body(element("ol", rows, class_="fb-matches") if rows else element("p", nothing, class_="fb-note")),
        _make_pages(status, *_make_search_links(handle, state, page)),
    )


def _make_search_links(handle: str, state: _State, page: SearchPage) -> Sequence[Html | None]:
    return (
        element("a", "First", href=_make_link(handle, state, offset=0)) if page.offset else None,
        None
        if page.next_offset is None
        else element("a", "Next", href=_make_link(handle, state, offset=page.next_offset)),
    )


def _make_match(entry: StoredOutput, match: Mapping[str, Any], offset: int) -> Html:
    is_binary = entry.nature == "binary"
    # Binary data has no lines to read.
    item, line = match.get("item"), None if is_binary else match.get("line")
    place = [
        f"#{item:,}" if item is not None else "",
        f"line {line:,}" if line is not None else "",
        (match["path"] or "/") if "path" in match else "",
    ]
    if item is not None:
        target = _State(format="items", offset=item)
    elif line is not None:
        target = _State(format="lines", offset=line)
    else:
        start = max(0, match["byte_offset"] - _CONTEXT_BYTES)
        target = _State(format="bytes" if is_binary else "text", offset=start)
    text = " · ".join(part for part in place if part) or f"byte {match['byte_offset']:,}"
    context = match.get("context") or match.get("match")
    if context is None:
        shown = element("code", "binary", class_="fb-null")
    else:
        data, end = context.encode(), offset + match["size_bytes"]
        before, found, after = (part.decode(errors="replace") for part in (data[:offset], data[offset:end], data[end:]))
        shown = element("code", before, element("mark", found), after)
    return element(
        "li",
        element("a", text, href=_make_link(entry.output_handle, target), class_="fb-link"),
        shown,
        class_="fb-match",
    )


def _make_query_view(store: Store, principal: Principal, entry: StoredOutput, state: _State) -> Html:
    if not state.sql:
        return _make_body(element("p", "Type one SELECT, and press Run.", class_="fb-note"))
    page = store.query(entry.output_handle, state.sql, max_bytes=MAX_PAGE_BYTES, principal=principal)
    rows = parse_exact(page.content)
    columns = [column["name"] for column in page.columns]
    table = make_table(columns, rows, titles=[column["type"] for column in page.columns])
    count = "many rows" if page.row_count is None else format_count(page.row_count, "row")
    status = f"the first {len(rows):,} of {count}" if page.truncated else count
    return join(
        _make_body(table),
        None if page.hint is None else element("p", page.hint, class_="fb-note"),
        _make_pages(f"{status} · {page.ms:,.0f} ms"),
    )


_VIEWS = {"read": _make_read_view, "search": _make_search_view, "query": _make_query_view}
_FORMS = {"read": _make_read_form, "search": _make_search_form, "query": _make_query_form}
