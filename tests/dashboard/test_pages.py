"""The pages as HTML: what each visitor sees, and that data never becomes markup."""

import itertools
import re
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson
import pytest
from forebay import OPERATOR, HandleNotFound, Store
from forebay.dashboard import snapshot
from forebay.dashboard.api import call_reader
from forebay.dashboard.layout import ASSETS, Frame, get_asset_url, make_sign_in_page, read_asset
from forebay.dashboard.overview import Upstream, make_overview
from forebay.dashboard.payload_page import make_payload_page
from forebay.dashboard.snapshot import Visitor, read_snapshot
from forebay.errors import InvalidArgument, PathNotFound
from forebay.outputs.monitor import Monitor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stores import Clock, store_at

FRAME = Frame("tests")
ATTACK = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>&lt;"
ANN, BOB = '["client", "ann"]', '["client", "bob"]'


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with store_at(tmp_path / "store") as store:
        yield store


class Tags(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def get_links(self, pattern: str = "") -> list[str]:
        links = [attributes.get("href") or "" for tag, attributes in self.found if tag == "a"]
        return [link for link in links if re.search(pattern, link)]


def check_safe(page: bytes) -> Tags:
    """Check that a page has the one script of the dashboard, and nothing inline."""
    tags = Tags(page)
    assert [attributes.get("src") for tag, attributes in tags.found if tag == "script"] == [
        get_asset_url("dashboard.js")
    ]
    names = {name for _, attributes in tags.found for name in attributes}
    assert not [name for name in names if name.startswith("on") or name in ("style", "srcdoc")]
    assert not {"style", "iframe", "object", "embed", "base"} & {tag for tag, _ in tags.found}
    assert not [tag for tag, _ in tags.found if tag == "img"]
    for link in tags.get_links():
        assert link.startswith(("/dashboard", "#")), link
    return tags


def show(store: Store, principal: Any, *, hides_handles: bool = False, **query: str) -> Tags:
    visitor = Visitor(principal, hides_handles=hides_handles)
    return check_safe(make_overview(read_snapshot(store, visitor), visitor, FRAME, query, None))


def show_payload(store: Store, principal: Any, handle: str, **query: str) -> Tags:
    status, page = make_payload_page(store, principal, FRAME, handle, query)
    tags = check_safe(page)
    assert status == (400 if any(attributes.get("role") == "alert" for _, attributes in tags.found) else 200)
    return tags


def test_an_empty_store_says_what_to_do(store: Store) -> None:
    tags = show(store, OPERATOR)
    assert "Nothing is stored now." in tags.text
    assert "forebay put FILE" in tags.text
    assert "forebay wrap -- COMMAND" in tags.text


def test_a_principal_sees_only_what_is_its_own(store: Store) -> None:
    for principal, tool in ((ANN, "tool_of_ann"), (BOB, "tool_of_bob"), (None, "tool_of_nobody")):
        store.put([1, 2, 3], source_tool=tool, principal=principal)
        store.call_counts.add(tool, principal, calls=1, handles=1, stored_bytes=5000, shown_bytes=1000)
        store.journal.record("capability_denied", principal=principal, tool=tool, capability=f"of_{tool}")
        Monitor(store.journal).record(tool, 100, mode="contract", budget=10, principal=principal)
    of_ann = show(store, ANN)
    assert "tool_of_ann" in of_ann.text
    assert "tool_of_bob" not in of_ann.text
    assert "tool_of_nobody" not in of_ann.text
    of_nobody = show(store, None)
    assert "tool_of_nobody" in of_nobody.text
    assert "tool_of_ann" not in of_nobody.text
    of_operator = show(store, OPERATOR)
    for tool in ("tool_of_ann", "tool_of_bob", "tool_of_nobody"):
        assert tool in of_operator.text
    assert "12.0 kB" in of_operator.text


def test_another_principal_cannot_open_a_handle(store: Store) -> None:
    handle = store.put([1, 2, 3], principal=ANN).output_handle
    assert "#" in show_payload(store, ANN, handle).text
    for other in (BOB, None):
        with pytest.raises(HandleNotFound):
            show_payload(store, other, handle)
        for name, more in (
            ("output_fetch", {}),
            ("output_search", {"pattern": "1"}),
            ("output_query", {"sql": "SELECT 1"}),
        ):
            with pytest.raises(HandleNotFound):
                call_reader(store, other, name, {"output_handle": handle, **more})


def test_callers_without_a_token_see_no_handles(store: Store) -> None:
    handle = store.put([1, 2, 3], source_tool="shared").output_handle
    store.journal.record("output_handle_refused", principal=None, handle=handle, code="x")
    tags = show(store, None, hides_handles=True)
    assert "shared" in tags.text
    assert handle not in str(tags.found) + tags.text
    assert handle in str(show(store, None).found)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).map(lambda text: ATTACK + text))
def test_names_never_become_markup(store: Store, name: str) -> None:
    descriptor = store.put([{name: name, "a": {name: [name]}}] * 3, source_tool=name, mime_type=None)
    store.call_counts.add(name, None, calls=1, handles=1, stored_bytes=1, shown_bytes=0)
    store.journal.record("file_ref_denied", tool=name, path=name, code=name)
    store.journal.record("response_oversize", tool=name, response_bytes=5, budget_bytes=1, ts=name)
    store.journal.record("tool_called", tool=name, response_bytes=5)
    show(store, OPERATOR, sort=name, order=name, page=name)
    handle = descriptor.output_handle
    for query in (
        {"path": "/0"},
        {"path": f"/{name}"},
        {"view": "search", "pattern": "script"},
        {"view": "search", "pattern": name, "regex": "on"},
        {"where": name, "fields": name, "format": name, "offset": name},
        {"view": "query", "sql": name},
        {"view": name},
    ):
        show_payload(store, None, handle, **query)
    store.delete(handle)


@pytest.mark.parametrize("payload", [ATTACK, f"{ATTACK}\n{ATTACK}", ATTACK.encode() + b"\xff\0", {ATTACK: ATTACK}])
@pytest.mark.parametrize("page_format", ["auto", "text", "lines", "bytes"])
def test_content_never_becomes_markup(store: Store, payload: Any, page_format: str) -> None:
    handle = store.put(payload).output_handle
    show_payload(store, None, handle, format=page_format)


def test_columns_of_a_query_never_become_markup(store: Store) -> None:
    handle = store.put([{"a": 1}]).output_handle
    tags = show_payload(
        store, None, handle, view="query", sql="SELECT a AS \"<script>x</script>\", '<b>' AS b FROM items"
    )
    assert "<script>x</script>" in tags.text


def test_columns_sort_and_pages_follow(store: Store) -> None:
    for size in range(30):
        store.put("x" * (100 + size), source_tool=f"tool{size:02}")
    smallest = show(store, OPERATOR, sort="size", order="asc")
    assert re.findall(r"tool\d\d", smallest.text)[:3] == ["tool00", "tool01", "tool02"]
    assert "1–25 of 30" in smallest.text
    (link,) = smallest.get_links(r"page=2")
    assert "sort=size" in link
    assert "order=asc" in link
    last = show(store, OPERATOR, sort="size", order="asc", page="2")
    assert re.findall(r"tool\d\d", last.text) == [f"tool{size}" for size in range(25, 30)]
    assert show(store, OPERATOR, page="99").text.count("26–30 of 30") == 1
    # The column that sorts turns around.
    assert smallest.get_links(r"sort=size&order=desc")


def test_links_of_a_page_lead_through_all_items(store: Store) -> None:
    handle = store.put([{"id": number} for number in range(250)]).output_handle
    query, seen = {"format": "items"}, []
    while True:
        tags = show_payload(store, None, handle, **query)
        seen += [int(link.partition("path=%2F")[2]) for link in tags.get_links(r"path=%2F\d")]
        following = [
            link
            for link in tags.get_links("offset=")
            if int(link.partition("offset=")[2].split("&")[0]) > int(query.get("offset", 0))
        ]
        if not following:
            break
        query["offset"] = following[0].partition("offset=")[2].split("&")[0]
    assert seen == [*range(250)]


def follow(store: Store, handle: str, name: str, query: dict[str, str]) -> Iterator[str]:
    """Yield the status of each page on the way from one page along its links `name`."""
    while True:
        _, page = make_payload_page(store, None, FRAME, handle, query)
        (status,) = re.findall(r'aria-label="Pages"><span>([^<]*)</span>', page.decode())
        yield status
        (link, *_) = [*re.findall(rf'<a href="([^"]*)">{name}</a>', page.decode()), ""]
        if not link:
            return
        query = dict(parse_qsl(urlsplit(unescape(link)).query))


UNEVEN = [{"id": number, "text": "x" * (number * 7919 % 2500)} for number in range(700)]
LONG_ITEMS = [{"id": number, "text": "x" * (90_000 if number % 3 == 0 else 10)} for number in range(60)]


@pytest.mark.parametrize(
    ("payload", "query", "total"),
    [
        (UNEVEN, {"format": "items"}, 700),
        (UNEVEN, {}, 700),
        (UNEVEN, {"where": '{"id": {">=": 100}}'}, 600),
        (LONG_ITEMS, {"format": "items"}, 60),
        ("\n".join("y" * (number * 7919 % 900) for number in range(1500)), {"format": "lines"}, 1500),
        ("€" * 20_000, {"format": "text"}, 60_000),
        ("\x01😀" * 20_000, {"format": "text"}, 100_000),
    ],
    ids=["items", "auto", "where", "long items", "lines", "text", "escaped text"],
)
def test_the_way_back_shows_everything(store: Store, payload: Any, query: dict[str, str], total: int) -> None:
    def get_spans(statuses: Iterator[str]) -> list[tuple[int, int]]:
        numbers = (re.findall(r"[\d,]+", status) for status in statuses)
        return [(int(first.replace(",", "")), int(last.replace(",", ""))) for first, last, *_ in numbers]

    handle = store.put(payload).output_handle
    forth = get_spans(follow(store, handle, "Next", query))
    back = get_spans(follow(store, handle, "Previous", {**query, "offset": str(forth[-1][0])}))
    assert len(forth) > 2
    for spans in (forth, back[::-1]):
        assert [spans[0][0], spans[-1][1]] == [0, total - 1]
        assert all(last + 1 == first for (_, last), (first, _) in itertools.pairwise(spans)), spans


def test_the_viewer_gets_no_end(store: Store) -> None:
    handle = store.put(UNEVEN).output_handle
    tags = show_payload(store, None, handle, offset="500", end="600")
    (state,) = [attributes["data-state"] for _, attributes in tags.found if "data-state" in attributes]
    assert (orjson.loads(state or "")["offset"], orjson.loads(state or "")["end"]) == (500, 0)
    assert not [link for link in tags.get_links("view=search|path=") if "end=" in link]


def test_a_match_is_marked_and_leads_to_its_item(store: Store) -> None:
    handle = store.put([{"id": 1, "name": "Ada"}, {"id": 2, "name": "Grace"}]).output_handle
    _, page = make_payload_page(store, None, FRAME, handle, {"view": "search", "pattern": "Grace"})
    assert b"<mark>Grace</mark>" in page
    assert check_safe(page).get_links("format=items&offset=1")
    assert "1 match" in check_safe(page).text


def test_a_match_leads_to_its_line_or_byte(store: Store) -> None:
    text = store.put("one\ntwo\nthree\n").output_handle
    _, page = make_payload_page(store, None, FRAME, text, {"view": "search", "pattern": "three"})
    assert b"<mark>three</mark>" in page
    assert check_safe(page).get_links("format=lines&offset=2")
    outside = store.put({"total": "three", "rows": [{"id": number} for number in range(9)]}).output_handle
    _, page = make_payload_page(store, None, FRAME, outside, {"view": "search", "pattern": "three"})
    assert "/total" in check_safe(page).text
    (link,) = check_safe(page).get_links("offset=0.*format=text|format=text.*offset=0|format=text$")
    assert '"three"' in show_payload(store, None, outside, **dict(parse_qsl(urlsplit(link).query))).text


@pytest.mark.parametrize(
    ("query", "shown"), [({"pattern": "three"}, "three"), ({"pattern": r"(?-u:\xfe)", "regex": "on"}, "binary")]
)
def test_a_match_in_binary_leads_to_its_bytes(store: Store, query: dict[str, str], shown: str) -> None:
    handle = store.put(b"\x00\xff" * 3000 + b"three\xfe").output_handle
    _, page = make_payload_page(store, None, FRAME, handle, {"view": "search", **query})
    tags = check_safe(page)
    assert shown in tags.text
    assert re.search(r"byte 6,00[05]", tags.text)
    (link,) = tags.get_links("format=bytes")
    # It begins before the match, to show what is around it.
    bytes_shown = show_payload(store, None, handle, **dict(parse_qsl(urlsplit(link).query)))
    assert "74 68 72 65 65 fe" in bytes_shown.text


def test_a_page_beyond_the_end_is_empty(store: Store) -> None:
    handle = store.put([{"id": 1}]).output_handle
    assert "There is nothing here." in show_payload(store, None, handle, offset="1000").text


def test_the_newest_of_many_refusals_are_shown(store: Store) -> None:
    for number in range(60):
        store.journal.record("capability_denied", principal=None, tool=f"tool {number}", capability="x")
    tags = show(store, OPERATOR)
    assert re.search(r"The newest \d+ of 60\.", tags.text)
    assert "tool 59" in tags.text
    assert "tool 0" not in tags.text


def test_errors_are_shown_on_the_page(store: Store) -> None:
    handle = store.put([{"id": 1}]).output_handle
    assert "nothing at path" in show_payload(store, None, handle, path="/nope").text
    assert "An example" in show_payload(store, None, handle, view="query", sql="SELECT nope FROM items").text


def test_the_page_of_a_deep_path_stays_small(store: Store) -> None:
    handle = store.put(b"[" * 900 + b"1" + b"]" * 900, mime_type="application/json").output_handle
    status, page = make_payload_page(store, None, FRAME, handle, {"path": "/0" * 900})
    links = check_safe(page).get_links("^/dashboard/oh_.*[?]path=")
    # The tab, and the last steps.
    assert (status, len(links), len(page) < 150_000) == (200, 20, True)
    assert links[-1].endswith("%2F0" * 900)


@pytest.mark.parametrize("query", [{}, {"view": "query", "sql": "SELECT * FROM items"}])
@pytest.mark.parametrize("depth", [900, 20_000])
def test_values_that_are_nested_too_deeply_are_read_as_text(store: Store, depth: int, query: dict[str, str]) -> None:
    handle = store.put(b"[" * depth + b"]" * depth, mime_type="application/json").output_handle
    assert "nested too deeply" in show_payload(store, None, handle, **query).text
    assert "[[[[" in show_payload(store, None, handle, format="text").text


def test_items_with_different_keys_make_no_endless_table(store: Store) -> None:
    handle = store.put([{f"{item}_{key}": 1 for key in range(60)} for item in range(100)]).output_handle
    tags = show_payload(store, None, handle)
    assert '"99_59": 1' in tags.text  # In what the cell opens.
    assert '{"99_0": 1, "99_1": 1' in tags.text
    cells = [tag for tag, _ in tags.found if tag == "td"]
    assert len(cells) == 201  # A value and a filler a row, and a filler in the head.


def test_the_data_of_others_takes_no_more_time_than_ones_own(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        store.put([number], principal=BOB)
    store.put([1], principal=ANN)
    # A clock on which every look takes a second, so that there is time for two.
    monkeypatch.setattr(snapshot, "time", SimpleNamespace(monotonic=itertools.count().__next__))
    for principal in (ANN, BOB, None, OPERATOR):
        seen = read_snapshot(store, Visitor(principal))
        assert (seen.has_all_outputs, seen.has_all_events) == (False, False), principal
    monkeypatch.undo()
    assert [entry.principal for entry in read_snapshot(store, Visitor(ANN)).outputs] == [ANN]
    assert read_snapshot(store, Visitor(None)).outputs == []


def test_a_journal_that_is_too_long_to_read_is_noted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "_MAX_EVENTS", 3)
    note = "The journal has more events than could be read in time"
    for _ in range(3):
        store.journal.record("capability_denied", tool="t")
    assert note not in show(store, OPERATOR).text
    store.journal.record("capability_denied", tool="t")
    assert show(store, OPERATOR).text.count(note) == 2  # Response sizes, and refusals.
    store.put([1])
    assert show(store, OPERATOR).text.count(note) == 3  # And the number of reads of each output.


def test_an_upstream_that_failed_stands_out(store: Store) -> None:
    upstreams = [Upstream("a", "command", "failed"), Upstream("b", "url", "connected", 3, 1)]
    visitor = Visitor(ANN)
    tags = check_safe(make_overview(read_snapshot(store, visitor), visitor, FRAME, {}, upstreams))
    states = [
        attributes["class"] for tag, attributes in tags.found if (attributes.get("class") or "").startswith("state ")
    ]
    assert states == ["state state-failed", "state state-connected"]


def test_days_begin_with_the_first_one_that_has_data(tmp_path: Path) -> None:
    clock = Clock()
    with store_at(tmp_path / "store", clock=clock) as store:
        shown = []
        for days in (0, 9, 90):
            clock.now += days * 86_400
            store.call_counts.add("crawl", None, calls=1, handles=1, stored_bytes=4000, shown_bytes=40)
            tags = show(store, OPERATOR)
            shown.append(sum(attributes.get("class") == "chart-column" for _, attributes in tags.found))
    assert shown == [7, 10, 30]


@pytest.mark.parametrize(("payload", "has_paths"), [("one\ntwo\n", False), ([{"id": 1}], True), ({"a": 1}, True)])
def test_a_text_opens_as_lines_and_has_no_paths(store: Store, payload: Any, has_paths: bool) -> None:
    tags = show_payload(store, None, store.put(payload).output_handle)
    names = {attributes.get("name") for tag, attributes in tags.found if tag == "input"}
    assert ({"path", "where", "fields"} <= names) == ("path" in names) == has_paths
    has_lines = any(attributes.get("class") == "fb-lines" for _, attributes in tags.found)
    assert has_lines == (not has_paths)


def test_a_payload_without_a_tool_has_the_name_of_the_journal(store: Store) -> None:
    store.put("x" * 100)
    assert "unknown" in show(store, OPERATOR).text


def test_totals_are_those_of_the_command(store: Store) -> None:
    store.call_counts.add("crawl", None, calls=2, handles=1, stored_bytes=4_000_000, shown_bytes=4000)
    store.call_counts.add("output_fetch", None, calls=5, shown_bytes=20_000)
    text = show(store, OPERATOR).text
    assert "4.0 MB" in text
    assert "about 994 k tokens" in text
    assert "20.0 kB" in text


# What the viewer calls.


def test_a_call_returns_what_the_tool_returns(store: Store) -> None:
    handle = store.put([{"id": number} for number in range(10)]).output_handle
    page = orjson.loads(call_reader(store, None, "output_fetch", {"output_handle": handle, "limit": 2, "where": None}))
    assert page["content"] == [{"id": 0}, {"id": 1}]
    found = orjson.loads(call_reader(store, None, "output_search", {"output_handle": handle, "pattern": "7"}))
    assert found["matches"][0]["item"] == 7
    rows = orjson.loads(
        call_reader(store, None, "output_query", {"output_handle": handle, "sql": "SELECT count(*) FROM items"})
    )
    assert rows["rows"] == [[10]]


def test_calls_of_people_are_not_counted_as_calls_of_models(store: Store) -> None:
    handle = store.put([1, 2]).output_handle
    call_reader(store, None, "output_fetch", {"output_handle": handle})
    assert [*store.call_counts.read()] == []
    assert store.journal.recent(1)[0]["event"] == "output_handle_fetched"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("output_fetch", [], "must be a JSON object"),
        ("output_fetch", {"limt": 1}, "did you mean limit?"),
        ("output_fetch", {"max_bytes": 1 << 40}, "no argument 'max_bytes'"),
        ("output_search", {}, "needs pattern"),
        ("output_query", {"sql": "SELECT 1", "timeout": 1e9}, "no argument 'timeout'"),
    ],
)
def test_wrong_arguments_name_the_next_step(store: Store, name: str, arguments: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        call_reader(store, None, name, arguments)


def test_a_wrong_path_is_answered_with_the_outline(store: Store) -> None:
    handle = store.put({"rows": [{"id": 1}] * 50}).output_handle
    with pytest.raises(PathNotFound, match=r"there is .*rows"):
        call_reader(store, None, "output_fetch", {"output_handle": handle, "path": "/nope"})
    with pytest.raises(PathNotFound) as caught:
        call_reader(store, None, "output_fetch", {"output_handle": handle, "path": "/nope", "fields": ["id"]})
    assert "there is" not in str(caught.value)


def test_assets_are_in_the_package_and_load_nothing_else() -> None:
    for name in ASSETS:
        text = read_asset(name).decode()
        assert not re.search(r"https?://", text), name
        assert "innerHTML" not in text
    check_safe(make_sign_in_page(ATTACK))
