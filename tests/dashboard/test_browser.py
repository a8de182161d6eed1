"""The dashboard and its viewer in Chromium."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import forebay
import pytest
from chromium import audit, open_browser
from dashboard_site import run_dashboard
from playwright.sync_api import Browser, BrowserContext, Page, expect
from serve_http_harness import token, write_tokens
from waiting import wait_until

pytestmark = [pytest.mark.posix, pytest.mark.slow]

ATTACK = "\"'></td><script>window.hacked = 1</script><img src=x onerror=window.hacked=1>"
ITEMS = 30_000
BIG_NUMBER = "12345678901234567890123"
MAX_ROWS = 1200
"""More rows than a page ever has, and fewer than a test scrolls through."""


class Site(NamedTuple):
    """A running dashboard: its address with the token, its store, and the handles in it."""

    url: str
    root: Path
    handles: dict[str, str]

    @property
    def base(self) -> str:
        return self.url.partition("?")[0]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("site") / "store"
    with forebay.open_store(root.as_uri(), sweep_interval=0) as store:
        rows = [{"id": number, "name": f"row {number}", "tags": ["a", {"b": number}]} for number in range(ITEMS)]
        payloads: dict[str, Any] = {
            "rows": {"rows": rows, "more": {"page": 1, "note": "x" * 3000}},
            "attack": [{ATTACK: ATTACK, "inner": {ATTACK: [ATTACK]}}] * 3,
            "attack_text": f"{ATTACK}\n" * 30,
            "log": "".join(f"line {number} took {number % 977} ms é\n" for number in range(ITEMS)),
            "binary": bytes(range(256)) * 200,
            "numbers": f'[{{"id": {BIG_NUMBER}, "price": 1.10}}, {{"id": 2, "price": 3}}]'.encode(),
            "few": rows[:6],
            "keys": [{f"{item}_{key}": 1 for key in range(60)} for item in range(100)],
            "deep": b"[" * 400 + b"1" + b"]" * 400,
            "wide": [{"id": 0, "text": "y" * 100_000}, {"id": 1, "text": "short"}],
        }
        handles = {
            name: store.put(payload, source_tool=ATTACK if name == "attack" else name).output_handle
            for name, payload in payloads.items()
        }
        store.call_counts.add("crawl", None, calls=9, handles=4, stored_bytes=8_000_000, shown_bytes=12_000)
        store.call_counts.add(ATTACK, None, calls=1, handles=1, stored_bytes=50_000, shown_bytes=3000)
        store.call_counts.add("output_fetch", None, calls=7, shown_bytes=90_000)
        store.journal.record("capability_denied", tool=ATTACK, capability=ATTACK)
        store.journal.record("tool_called", tool="crawl", response_bytes=20_000)
        store.journal.record("response_oversize", tool="crawl", response_bytes=20_000, budget_bytes=10_240)
    with run_dashboard(root) as url:
        yield Site(url, root, handles)


@contextmanager
def open_context(browser: Browser, site: Site, **options: Any) -> Iterator[BrowserContext]:
    """Open a window that is signed in."""
    context = browser.new_context(**options)
    try:
        response = context.request.get(site.url)
        assert response.status == 200
        yield context
    finally:
        context.close()


class Watched:
    """A page, and everything that went wrong in it."""

    def __init__(self, context: BrowserContext) -> None:
        self.page = context.new_page()
        self.faults: list[str] = []
        self.page.on("console", lambda message: self.faults.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", lambda dialog: self.faults.append(f"dialog: {dialog.message}"))
        self.page.on(
            "request",
            lambda request: None if request.url.startswith(("http://127.0.0.1", "data:")) else self.fail(request.url),
        )

    def fail(self, url: str) -> None:
        self.faults.append(f"loads {url}")


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    """A page that is signed in. Errors in its console fail the test."""
    with open_context(browser, site, viewport={"width": 1280, "height": 800}) as context:
        watched = Watched(context)
        yield watched.page
        # Wrong arguments are answered with 400, which the console reports.
        assert [fault for fault in watched.faults if "status of 40" not in fault] == []


@pytest.fixture
def plain_page(browser: Browser, site: Site) -> Iterator[Page]:
    """A page without JavaScript."""
    with open_context(browser, site, java_script_enabled=False) as context:
        yield context.new_page()


def open_output(page: Page, site: Site, name: str, query: str = "") -> None:
    page.goto(f"{site.base}/{site.handles[name]}{query}")
    # The viewer has replaced what the server has written.
    expect(page.locator("button.fb-tab").first).to_be_visible()
    wait_ready(page)


def wait_ready(page: Page) -> None:
    expect(page.locator(".fb-body:not([aria-busy])")).to_have_count(1)


def get_numbers(page: Page) -> list[int]:
    """Return the numbers of the items on the page."""
    script = "[...document.querySelectorAll('.fb-number')].map((button) => Number(button.ariaLabel.slice(5)))"
    return list(page.evaluate(script))


def scroll_on(page: Page, pixels: int, measure: Callable[[], int]) -> None:
    """Scroll, and wait until a number has changed."""
    before = measure()
    scroll(page, pixels)
    wait_until(lambda: measure() != before)


def scroll(page: Page, pixels: int) -> None:
    page.locator(".fb-body").evaluate("(body, pixels) => body.scrollBy(0, pixels)", pixels)


# The first page.


def test_the_first_page_shows_everything_and_stays_current(page: Page, site: Site) -> None:
    page.goto(site.base)
    for title in ("Saved by day", "Saved by tool", "Live outputs", "Response sizes", "Refusals"):
        expect(page.get_by_role("heading", name=title)).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("Saved on each of the last 7 days"))).to_be_visible()
    expect(page.locator("#figures")).to_contain_text("7.9 MB")
    expect(page.locator("#responses")).to_contain_text("1 response over budget")
    with forebay.open_store(site.root.as_uri(), sweep_interval=0) as store:
        handle = store.put("a new one", source_tool="new_tool").output_handle
    # Without a reload.
    page.evaluate("window.isSame = true")
    expect(page.get_by_role("link", name=handle)).to_be_visible(timeout=15_000)
    assert page.evaluate("window.isSame")


def test_columns_sort_by_links(plain_page: Page, site: Site) -> None:
    plain_page.goto(site.base)
    plain_page.get_by_role("link", name="Size").click()
    first = plain_page.locator("#outputs tbody tr").first
    expect(first).to_contain_text(site.handles["rows"])
    plain_page.get_by_role("link", name="Size").click()
    expect(first).not_to_contain_text(site.handles["rows"])
    expect(plain_page.locator("#outputs [aria-sort=ascending]")).to_have_text("Size↑")


# The viewer.


def test_items_go_on_while_one_scrolls(page: Page, site: Site) -> None:
    open_output(page, site, "rows")
    expect(page.locator(".fb-status")).to_contain_text("30,000 items")
    seen: set[int] = set()
    while max(seen, default=0) < MAX_ROWS:
        numbers = get_numbers(page)
        assert numbers == [*range(numbers[0], numbers[0] + len(numbers))]
        assert len(numbers) < MAX_ROWS
        seen.update(numbers)
        scroll_on(page, 1 << 20, lambda: get_numbers(page)[-1])
    assert seen == {*range(len(seen))}
    # What is far above was dropped, and comes back.
    assert get_numbers(page)[0] > 0
    while get_numbers(page)[0] > 0:
        scroll_on(page, -(1 << 20), lambda: get_numbers(page)[0])
    numbers = get_numbers(page)
    assert numbers == [*range(len(numbers))]
    assert len(numbers) < MAX_ROWS


def test_one_can_jump_anywhere_and_read_on_in_both_directions(page: Page, site: Site) -> None:
    open_output(page, site, "rows")
    page.get_by_label("Go to offset").fill("15000")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Item 15000", exact=True)).to_be_visible()
    expect(page.locator(".fb-position")).to_have_text("from #15,000")
    scroll(page, -500)
    wait_until(lambda: get_numbers(page)[0] < 15_000)
    numbers = get_numbers(page)
    assert numbers == [*range(numbers[0], numbers[0] + len(numbers))]
    # The address shows the same again.
    wait_until(lambda: "offset=" in page.evaluate("location.search"))
    page.reload()
    wait_ready(page)
    assert get_numbers(page)[0] > 10_000
    slider = page.get_by_role("slider", name="Position")
    slider.fill(str(ITEMS - 1))
    expect(page.get_by_role("button", name=f"Item {ITEMS - 1}", exact=True)).to_be_visible()
    slider.focus()
    page.keyboard.press("Home")
    expect(page.get_by_role("button", name="Item 0", exact=True)).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("button", name="Item 1", exact=True)).to_be_visible()
    expect(slider).to_be_focused()


def test_a_row_opens_and_leads_into_the_output(page: Page, site: Site) -> None:
    open_output(page, site, "rows")
    page.get_by_role("button", name="Item 3", exact=True).click()
    detail = page.locator(".fb-detail")
    expect(detail).to_contain_text("/rows/3")
    expect(detail.locator(".fb-string").first).to_have_text('"row 3"')
    detail.get_by_role("button", name="Open /rows/3/tags", exact=True).click()
    expect(page.locator(".fb-crumbs")).to_have_text("whole outputrows3tags")
    expect(page.locator(".fb-status")).to_contain_text("2 items")
    page.locator(".fb-crumbs").get_by_role("button", name="whole output").click()
    expect(page.locator(".fb-status")).to_contain_text("30,000 items")
    # The browser's own button leads back, step by step, without loading the page again.
    page.evaluate("window.isSame = true")
    page.go_back()
    expect(page.locator(".fb-crumbs")).to_have_text("whole outputrows3tags")
    page.go_back()
    expect(page.locator(".fb-crumbs")).to_be_hidden()
    expect(page.locator(".fb-status")).to_contain_text("30,000 items")
    assert page.evaluate("window.isSame")


def test_the_objects_and_lists_of_cells_open(page: Page, site: Site) -> None:
    open_output(page, site, "rows")
    row = page.locator(".fb-row").nth(3)
    cell = row.locator("button.fb-nested")
    expect(cell).to_have_text('["a", {1}]')
    cell.focus()
    page.keyboard.press("Enter")
    detail = page.locator(".fb-detail")
    expect(cell).to_have_attribute("aria-expanded", "true")
    expect(detail).to_contain_text("/rows/3/tags")
    expect(detail.locator(".fb-literal")).to_have_text("3")
    # The row shows one thing at a time.
    page.get_by_role("button", name="Item 3", exact=True).click()
    expect(detail).to_have_count(1)
    expect(detail.locator(".fb-string").first).to_have_text('"row 3"')
    expect(cell).to_have_attribute("aria-expanded", "false")
    page.get_by_role("button", name="Item 3", exact=True).click()
    expect(detail).to_have_count(0)
    cell.click()
    detail.get_by_role("button", name="Open", exact=True).click()
    expect(page.locator(".fb-crumbs")).to_have_text("whole outputrows3tags")
    open_output(page, site, "rows", "?view=query&sql=SELECT+id,+tags+FROM+items+LIMIT+3")
    page.locator(".fb-body").focus()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(detail.locator(".fb-string").first).to_have_text('"a"')


def test_items_with_different_keys_are_in_one_column(page: Page, site: Site) -> None:
    open_output(page, site, "keys")
    expect(page.locator(".fb-table thead th")).to_have_text(["#", "value"])
    expect(page.locator(".fb-table tbody tr").first).to_contain_text("{0_0: 1, 0_1: 1, 0_2: 1, 0_3: 1, 56 more}")


def test_a_deep_path_has_its_last_steps(page: Page, site: Site) -> None:
    open_output(page, site, "deep", f"?path={'/0' * 399}")
    crumbs = page.locator(".fb-crumbs button")
    expect(crumbs).to_have_text(["whole output", *["0"] * 19])
    crumbs.nth(1).click()
    expect(page.get_by_role("textbox", name="Path")).to_have_value("/0" * 381)
    page.locator(".fb-crumbs button").first.click()
    expect(page.get_by_role("textbox", name="Path")).to_have_value("")


def test_conditions_fields_and_what_is_beside_the_items(page: Page, site: Site) -> None:
    open_output(page, site, "rows")
    page.get_by_label("Where").fill('{"id": {">=": 29990}}')
    page.get_by_label("Fields").fill("name")
    page.keyboard.press("Enter")
    expect(page.locator(".fb-status")).to_contain_text("10 matches")
    assert get_numbers(page) == [*range(29_990, 30_000)]
    expect(page.locator(".fb-table thead th")).to_have_text(["#", "name"])
    page.get_by_label("Where").fill("{")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Where is a JSON object")
    page.get_by_label("Where").fill("")
    page.get_by_label("Fields").fill("")
    page.get_by_role("textbox", name="Path").fill("/more/page")
    page.keyboard.press("Enter")
    expect(page.locator(".fb-value")).to_have_text("1")


@pytest.mark.parametrize("name", ["log", "binary"])
def test_text_and_bytes_are_complete(page: Page, site: Site, name: str) -> None:
    open_output(page, site, name, "?format=text" if name == "log" else "")
    shown = page.locator(".fb-text span" if name == "log" else ".fb-hex pre")
    scroll_on(page, 1 << 20, shown.count)
    if name == "log":
        text = page.locator(".fb-text").inner_text()
        lines = text.split("\n")
        assert lines[:2] == ["line 0 took 0 ms é", "line 1 took 1 ms é"]
        assert lines[:-1] == [f"line {number} took {number % 977} ms é" for number in range(len(lines) - 1)]
    else:
        lines = "\n".join(shown.all_inner_texts()).split("\n")
        assert lines[0].startswith("00000000  00 01 02 03 ")
        assert [int(line[:8], 16) for line in lines] == [16 * number for number in range(len(lines))]


def test_a_text_opens_as_lines(page: Page, plain_page: Page, site: Site) -> None:
    open_output(page, site, "log")
    expect(page.locator(".fb-position")).to_have_text("from line 0")
    expect(page.locator(".fb-status")).to_contain_text("30,000 lines")
    page.locator(".fb-goto").fill("20000")
    page.get_by_role("button", name="Go", exact=True).click()
    expect(page.locator(".fb-lines th").filter(has_text="20,000")).to_be_visible()
    for name in ("Path", "Where", "Fields"):
        expect(page.get_by_role("textbox", name=name)).to_be_hidden()
    open_output(page, site, "rows")
    expect(page.get_by_role("textbox", name="Path")).to_be_visible()
    plain_page.goto(f"{site.base}/{site.handles['log']}")
    expect(plain_page.locator(".pages")).to_contain_text("of 30,000 lines")
    plain_page.get_by_role("link", name="Next").click()
    expect(plain_page.locator(".fb-lines th").first).to_have_text("400")


def test_the_caret_of_a_wrong_query_has_its_own_line(page: Page, site: Site) -> None:
    open_output(page, site, "rows", "?view=query&sql=SELECT+nam+FROM+items")
    lines = page.locator(".fb-error p").first.inner_text().split("\n")
    caret = next(index for index, line in enumerate(lines) if "^" in line)
    assert lines[caret - 1][lines[caret].index("^") :].startswith("nam")


def test_the_header_takes_one_line_on_a_phone(browser: Browser, site: Site) -> None:
    with open_context(browser, site, viewport={"width": 400, "height": 800}) as context:
        page = context.new_page()
        page.goto(site.base)
        for selector in (".brand", ".sign-out"):
            box = page.locator(selector).bounding_box()
            assert box is not None
            assert box["height"] < 40
        # A table that is cut at the side says so by a shadow.
        table = page.get_by_role("group", name="List of outputs")
        assert table.evaluate("table => table.scrollWidth > table.clientWidth")
        assert table.evaluate("table => getComputedStyle(table).backgroundAttachment").count("local") == 2


def test_lines_have_their_numbers(page: Page, site: Site) -> None:
    open_output(page, site, "log", "?format=lines&offset=5000")
    row = page.locator(".fb-lines tr", has_text="line 5000 took")
    expect(row.locator("th")).to_have_text("5,000")
    # Text has neither items to query nor values to decode.
    expect(page.get_by_role("button", name="Query")).to_have_count(0)
    page.keyboard.press("/")
    expect(page.get_by_label("ignore case")).to_be_visible()
    expect(page.get_by_label("decoded values")).to_have_count(0)


def test_numbers_keep_their_digits(page: Page, site: Site) -> None:
    open_output(page, site, "numbers")
    expect(page.locator(".fb-row").first).to_contain_text(BIG_NUMBER)
    expect(page.locator(".fb-row").first).to_contain_text("1.10")


def test_an_item_larger_than_a_page_can_be_read_to_its_end(page: Page, site: Site) -> None:
    open_output(page, site, "wide")
    expect(page.locator(".fb-note").first).to_contain_text("Only the beginning is shown")
    page.get_by_role("button", name="Read all of it").click()
    expect(page.locator(".fb-text")).to_contain_text("yyyy")
    expect(page.locator(".fb-status")).to_contain_text("100.0 kB")


def test_a_search_marks_its_matches_and_leads_to_them(page: Page, site: Site) -> None:
    open_output(page, site, "rows")
    page.keyboard.press("/")
    page.keyboard.type("row 2999")
    page.keyboard.press("Enter")
    expect(page.locator(".fb-status")).to_contain_text("11 matches")
    expect(page.locator("mark").first).to_have_text("row 2999")
    page.get_by_label("regular expression").check()
    page.get_by_label("Find").fill("row 1..7\\b")
    page.keyboard.press("Enter")
    expect(page.locator("mark").first).to_have_text("row 1007")
    page.get_by_label("regular expression").uncheck()
    page.get_by_label("ignore case").check()
    page.get_by_label("decoded values").check()
    page.get_by_label("Find").fill("ROW 12345")
    page.keyboard.press("Enter")
    expect(page.locator(".fb-status")).to_contain_text("1 match ")
    expect(page.locator("mark").first).to_have_text("row 12345")
    page.locator(".fb-match button").first.click()
    expect(page.get_by_role("button", name="Item 12345", exact=True)).to_be_visible()
    page.get_by_role("button", name="Search").first.click()
    page.get_by_label("Find").fill("nowhere")
    page.keyboard.press("Enter")
    expect(page.locator(".fb-body")).to_contain_text("Nothing was found in")


def test_matches_go_on_while_one_scrolls(page: Page, site: Site) -> None:
    open_output(page, site, "log", "?view=search&pattern=took")
    shown = page.locator(".fb-match")
    while shown.count() < 300:
        scroll_on(page, 1 << 20, shown.count)
    places = page.locator(".fb-match button").all_inner_texts()
    assert [int(place.removeprefix("line ").replace(",", "")) for place in places] == [*range(len(places))]


def test_a_query_shows_rows_and_errors_say_what_is_there(page: Page, site: Site) -> None:
    open_output(page, site, "rows")
    page.keyboard.press("q")
    page.keyboard.type("SELECT count(*) AS n, max(id) AS last FROM items")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".fb-table thead th")).to_have_text(["n", "last"])
    expect(page.locator(".fb-table tbody td.fb-numeric")).to_have_text(["30000", "29999"])
    page.locator("textarea").fill("SELECT nope FROM items")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("alert")).to_contain_text("An example")


def test_the_call_can_be_copied(browser: Browser, site: Site) -> None:
    with open_context(browser, site, permissions=["clipboard-read", "clipboard-write"]) as context:
        page = context.new_page()
        open_output(page, site, "rows", "?path=/rows&offset=7")
        page.keyboard.press("c")
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        copied = json.loads(page.evaluate("navigator.clipboard.readText()"))
        wanted = {"output_handle": site.handles["rows"], "path": "/rows", "offset": 7}
        assert copied == {"tool": "output_fetch", "arguments": wanted}


def test_the_keyboard_is_enough(page: Page, site: Site) -> None:
    page.goto(f"{site.base}?sort=size&order=desc")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name=site.handles["rows"])).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("button.fb-tab").first).to_be_visible()
    wait_ready(page)
    for key in ("j", "j", "k", "j"):
        page.keyboard.press(key)
    expect(page.locator(".fb-row").nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".fb-detail")).to_contain_text("/rows/1")
    page.keyboard.press("g")
    page.keyboard.type("20000")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Item 20000", exact=True)).to_be_visible()
    page.keyboard.press("?")
    expect(page.locator(".fb-help")).to_be_visible()
    page.keyboard.press("?")
    page.keyboard.press("/")
    page.keyboard.type("row 777")
    page.keyboard.press("Enter")
    expect(page.locator(".fb-status")).to_contain_text("matches")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Item 777", exact=True)).to_be_visible()


def test_it_works_without_javascript(plain_page: Page, site: Site) -> None:
    page = plain_page
    page.goto(site.base)
    page.get_by_role("link", name=site.handles["rows"]).click()
    expect(page.locator(".pages")).to_contain_text("of 30,000 items")
    page.get_by_role("link", name="Next").click()
    expect(page.locator(".pages")).to_contain_text("200–")
    page.get_by_role("textbox", name="Path").fill("/rows/17")
    page.get_by_role("button", name="Read").click()
    expect(page.locator(".fb-value")).to_contain_text('"name": "row 17"')
    page.get_by_role("link", name="Search").click()
    page.get_by_label("Find").fill("row 29999")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("mark")).to_have_text("row 29999")
    page.locator(".fb-match a").click()
    expect(page.locator(".fb-table tbody th").first).to_have_text("29,999")
    page.get_by_role("link", name="Query").click()
    page.locator("textarea").fill("SELECT count(*) AS n FROM items")
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".fb-table td.fb-numeric")).to_have_text("30000")


# What comes from tools is only ever text.


@pytest.mark.parametrize("javascript", [True, False])
def test_data_that_wants_to_be_markup_does_nothing(browser: Browser, site: Site, javascript: bool) -> None:
    column = json.dumps(ATTACK).replace("\\", "").strip('"').replace('"', '""')
    queries = [
        "",
        "?path=/0",
        "?path=/0/inner",
        "?format=text",
        "?format=bytes",
        "?view=search&pattern=script",
        "?view=search&regex=on&pattern=scr.pt",
        f"?view=search&pattern={ATTACK}",
        f"?path=/{ATTACK}&where={ATTACK}",
        f'?view=query&sql=SELECT * , 1 AS "{column}" FROM items',
        f"?view=query&sql={ATTACK}",
    ]
    # What takes effect even where scripts are off is an element that should not be there.
    with open_context(browser, site, java_script_enabled=javascript) as context:
        watched = Watched(context)
        page = watched.page
        for url in [
            site.base,
            *(f"{site.base}/{site.handles[name]}{query}" for name in ("attack", "attack_text") for query in queries),
        ]:
            page.goto(url)
            if javascript and url != site.base:
                expect(page.locator("button.fb-tab").first).to_be_visible()
                wait_ready(page)
                for button in page.locator(".fb-number, button.fb-nested").all():
                    button.click()
            assert page.locator("main img, main script, main iframe").count() == 0
            if javascript:
                assert page.evaluate("window.hacked") is None
        # Wrong arguments are answered with 400, which the console reports.
        assert [fault for fault in watched.faults if "status of 40" not in fault] == []


# Who gets in.


def test_people_sign_in_with_their_token(browser: Browser, tmp_path: Path) -> None:
    write_tokens(tmp_path / "tokens", ["ann", "bob"])
    with forebay.open_store((tmp_path / "store").as_uri(), sweep_interval=0) as store:
        handle = store.put([1, 2, 3], source_tool="tool_of_ann", principal='["client", "ann"]').output_handle
    with run_dashboard(tmp_path / "store", "--token-file", str(tmp_path / "tokens")) as url:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{url}/{handle}")
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        page.get_by_label("Token").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("not valid")
        page.get_by_label("Token").fill(token("bob"))
        page.keyboard.press("Enter")
        expect(page.locator(".who")).to_have_text("client:bob")
        expect(page.locator("#outputs")).to_contain_text("Nothing is stored")
        page.goto(f"{url}/{handle}")
        expect(page.get_by_role("heading", name="Not found")).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_label("Token").fill(token("ann"))
        page.keyboard.press("Enter")
        page.get_by_role("link", name=handle).click()
        expect(page.locator(".fb-status")).to_contain_text("3 items")
        (cookie,) = context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/dashboard")
        assert page.evaluate("document.cookie") == ""
        assert audit(page) == []
        context.close()


# Accessibility.


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_pages_pass_an_audit(browser: Browser, site: Site, scheme: Any, width: int) -> None:
    with open_context(browser, site, color_scheme=scheme, viewport={"width": width, "height": 800}) as context:
        page = context.new_page()
        page.goto(site.base)
        assert audit(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        queries = (
            "",
            "?view=search&pattern=row",
            "?view=query&sql=SELECT+*+FROM+items",
            "?view=query&sql=x",
            "?path=/1",
        )
        for query in queries:
            open_output(page, site, "few", query)
            if query == "":
                page.get_by_role("button", name="Item 1", exact=True).click()
                page.locator("button.fb-nested").first.click()
                page.keyboard.press("?")
            assert audit(page) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        for name in ("wide", "attack_text"):
            open_output(page, site, name)
            assert audit(page) == []
        context.clear_cookies()
        page.goto(site.base)
        assert audit(page) == []


def test_pages_without_javascript_are_as_wide_as_the_window(browser: Browser, site: Site) -> None:
    with open_context(browser, site, java_script_enabled=False, viewport={"width": 390, "height": 800}) as context:
        page = context.new_page()
        for path in ("", f"/{site.handles['rows']}", f"/{site.handles['binary']}"):
            page.goto(site.base + path)
            body = page.locator("body").bounding_box()
            main = page.locator("main").bounding_box()
            assert body is not None
            assert main is not None
            assert main["width"] <= body["width"] <= 390
