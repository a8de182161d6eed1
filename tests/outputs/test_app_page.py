"""The page of the MCP App in Chromium, in a host that is strict about the protocol, in front of a real gateway."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from app_host import HostServer, serve_host
from chromium import audit, open_browser
from gateway_harness import parse_text, script, wrap
from playwright.sync_api import Frame, Page, expect
from serve_harness import EraClient
from wires import MODERN

pytestmark = [pytest.mark.posix, pytest.mark.slow]

APPS = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}

# Names of tools differ from those that the viewer uses.
PREFIX = "oc_"

HOSTILE = "</td><img src=x onerror='parent.postMessage(1,\"*\")'><script>document.title = 'hacked'</script>&amp;"


class SharedClient(EraClient):
    """A client of the test and of the page at once."""

    def __init__(self, *args: Any) -> None:
        self._lock = threading.Lock()
        super().__init__(*args)

    def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        with self._lock:
            return super().request(method, params)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EraClient]:
    """A client of `forebay wrap`, which declares that it shows apps."""
    server = [*script("mcp_server.py"), "stdio", "null"]
    command = wrap(tmp_path_factory.mktemp("store"), "--prefix", PREFIX, "--output-mode", "handle", server=server)
    client = SharedClient(command, MODERN, APPS)
    try:
        yield client
    finally:
        client.kill()


@pytest.fixture(scope="module")
def server(client: EraClient) -> Iterator[HostServer]:
    with serve_host(lambda name, arguments: client.call(name, **arguments)) as server:
        yield server


@pytest.fixture(scope="module")
def html(client: EraClient) -> str:
    (content,) = client.request("resources/read", {"uri": f"ui://forebay/{PREFIX}output_fetch"})["result"]["contents"]
    return str(content["text"])


@pytest.fixture(scope="module")
def browser_page(server: HostServer) -> Iterator[Page]:
    with open_browser() as browser, browser.new_page(viewport={"width": 1000, "height": 800}) as page:
        page.goto(server.url)
        # Machines of tests are busy.
        expect.set_options(timeout=30_000)
        yield page


class App:
    """An app in the page of a host."""

    def __init__(self, page: Page, html: str) -> None:
        self._page, self._html = page, html

    @property
    def frame(self) -> Frame:
        handle = self._page.query_selector("#view")
        frame = handle and handle.content_frame()
        assert frame
        return frame

    def open(self, **options: Any) -> Frame:
        """Show the app, and wait until it is ready."""
        self._page.evaluate("([html, options]) => host.open(html, options)", [self._html, options])
        self._page.wait_for_function("host.stage === 'ready'")
        return self.frame

    def show(self, arguments: dict[str, Any], result: dict[str, Any]) -> None:
        """Send the app the arguments and the result of a call."""
        self._page.evaluate("([input, result]) => host.showResult(input, result)", [arguments, result])

    def run(self, script: str, argument: Any = None) -> Any:
        """Run JavaScript in the page of the host."""
        return self._page.evaluate(script, argument)

    def wait(self, condition: str) -> None:
        self._page.wait_for_function(condition)


@pytest.fixture
def app(browser_page: Page, html: str, server: HostServer) -> Iterator[App]:
    """An app that must keep to the protocol, and must not get anywhere."""
    messages: list[str] = []

    def record(message: Any) -> None:
        messages.append(message.text)

    browser_page.on("console", record)
    browser_page.on("pageerror", record)
    try:
        yield App(browser_page, html)
        assert browser_page.evaluate("host.faults") == []
        # Violations of the content policy are messages, too.
        assert messages == []
        assert server.unknown_paths == []
    finally:
        browser_page.remove_listener("console", record)
        browser_page.remove_listener("pageerror", record)


def _row(frame: Frame, text: str) -> Any:
    return frame.locator("tr.fb-row", has_text=text)


def test_a_stored_result_is_read_searched_and_queried(app: App, client: EraClient) -> None:
    result = client.call("rows", count=5000)
    frame = app.open()
    expect(frame.get_by_text("Waiting for the result")).to_be_visible()
    app.show({"count": 5000}, result)
    expect(_row(frame, "naïve 0")).to_be_visible()
    expect(frame.locator("#summary")).to_contain_text("5,000 items")
    expect(frame.locator("#outline")).to_contain_text("×5000")

    frame.locator(".fb-body").evaluate("(body) => body.scrollTo(0, body.scrollHeight)")
    expect(_row(frame, "naïve 150")).to_be_attached()

    frame.get_by_role("button", name="Search").first.click()
    frame.get_by_label("Find").fill("naïve 4321")
    frame.get_by_label("Find").press("Enter")
    expect(frame.locator(".fb-match")).to_contain_text("naïve 4321")

    frame.get_by_role("button", name="Query").click()
    frame.get_by_label("SQL").fill("SELECT sum(id) AS total FROM items")
    frame.get_by_role("button", name="Run").click()
    expect(frame.get_by_role("cell", name="12497500")).to_be_visible()

    called = {call["name"] for call in app.run("host.calls")}
    assert called == {f"{PREFIX}{name}" for name in ("output_fetch", "output_search", "output_query")}


def test_the_viewer_opens_at_the_page_that_the_model_has_read(app: App, client: EraClient) -> None:
    handle = parse_text(client.call("rows", count=5000))["output_handle"]
    arguments = {"output_handle": handle, "offset": 3000, "fields": ["name"], "where": {"id": {">": 10}}, "limit": 2}
    frame = app.open()
    app.show(arguments, client.call(f"{PREFIX}output_fetch", **arguments))
    expect(_row(frame, "naïve 3011")).to_be_visible()
    expect(frame.get_by_label("Where")).to_have_value('{"id":{">":10}}')
    expect(frame.get_by_label("Fields")).to_have_value("name")


def test_what_an_output_holds_stays_text(app: App, client: EraClient) -> None:
    result = client.call("text", size=200, of=HOSTILE)
    frame = app.open()
    app.show({}, result)
    expect(frame.locator(".fb-body")).to_contain_text("<script>document.title")
    assert frame.locator("img").count() == 0
    assert frame.title() == "Stored output"
    # Neither as a message of an error, nor in a result that was not stored.
    failed = {"isError": True, "content": [{"type": "text", "text": json.dumps({"error": {"message": HOSTILE}})}]}
    inline = {"content": [{"type": "text", "text": HOSTILE}]}
    for result in (failed, inline, {"content": [], "structuredContent": {"more": HOSTILE}}):
        app.show({}, result)
        expect(frame.locator("#app > h1")).to_be_visible()
        assert frame.locator("img").count() == 0


def test_what_is_not_stored_is_told(app: App, client: EraClient) -> None:
    frame = app.open()
    missing = {"output_handle": "oh_AAAAAAAAAAAA"}
    app.show(missing, client.call(f"{PREFIX}output_fetch", **missing))
    expect(frame.locator("#app")).to_contain_text("nothing is stored under")
    app.show({}, {"content": [{"type": "text", "text": "three rows"}]})
    expect(frame.locator("#app")).to_contain_text("three rows")
    app.run("host.notify('ui/notifications/tool-cancelled', {reason: 'the person said stop'})")
    expect(frame.locator("#app")).to_contain_text("the person said stop")
    # A handle that has expired since: the viewer shows what the server says.
    descriptor = {**parse_text(client.call("rows")), **missing}
    app.show({}, {"content": [{"type": "text", "text": json.dumps(descriptor)}]})
    expect(frame.get_by_role("alert")).to_contain_text("nothing is stored under")


def test_a_host_that_lets_apps_call_no_tools(app: App, client: EraClient) -> None:
    frame = app.open(hostCapabilities={})
    app.show({}, client.call("rows"))
    expect(frame.get_by_role("alert")).to_contain_text("does not let apps call tools")
    assert app.run("host.calls") == []


def test_the_page_follows_the_look_of_the_host(app: App) -> None:
    def background() -> str:
        return str(app.frame.evaluate("getComputedStyle(document.body).backgroundColor"))

    app.open(hostContext={"theme": "light"})
    light = background()
    app.run("host.changeContext({theme: 'dark'})")
    app.frame.wait_for_function("(light) => getComputedStyle(document.body).backgroundColor !== light", arg=light)
    variables = {"--color-background-primary": "rgb(1, 2, 3)", "--color-text-primary": "rgb(250, 250, 250)"}
    app.run("(variables) => host.changeContext({styles: {variables}})", variables)
    app.frame.wait_for_function("getComputedStyle(document.body).backgroundColor === 'rgb(1, 2, 3)'")
    # A background without a text colour could make the text invisible.
    app.run("host.changeContext({styles: {variables: {'--color-background-primary': 'rgb(250, 250, 250)'}}})")
    app.frame.wait_for_function("!getComputedStyle(document.body).backgroundColor.startsWith('rgb(250')")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_is_accessible(theme: str, app: App, client: EraClient) -> None:
    result = client.call("rows", count=5000)
    frame = app.open(hostContext={"theme": theme, "availableDisplayModes": ["inline", "fullscreen"]})
    app.show({}, result)
    expect(_row(frame, "naïve 0")).to_be_visible()
    assert audit(frame) == []
    app.show({}, {"content": [{"type": "text", "text": "three rows"}]})
    assert audit(frame) == []


def test_the_page_keeps_to_the_size_that_the_host_gives(app: App, client: EraClient) -> None:
    result = client.call("rows", count=5000)
    frame = app.open(hostContext={"containerDimensions": {"maxHeight": 400}})
    app.wait("host.sizes.length > 0")
    small = app.run("host.sizes.at(-1).height")
    app.show({}, result)
    expect(_row(frame, "naïve 0")).to_be_visible()
    app.wait(f"host.sizes.at(-1).height > {small}")
    assert app.run("host.sizes.at(-1).height") <= 400
    # Everything is in reach: the list scrolls, not the page.
    assert frame.evaluate("document.documentElement.scrollHeight <= window.innerHeight")

    frame = app.open(hostContext={"containerDimensions": {"height": 700, "width": 900}})
    app.run("host.frame.style.height = '700px'")
    app.show({}, result)
    expect(_row(frame, "naïve 0")).to_be_visible()
    assert app.run("host.sizes") == []
    assert frame.locator("#app").bounding_box()["height"] > 500  # type: ignore[index]


def test_full_screen_and_back(app: App, client: EraClient) -> None:
    modes = {"displayMode": "inline", "availableDisplayModes": ["inline", "fullscreen"]}
    frame = app.open(hostContext=modes)
    app.show({}, client.call("rows"))
    frame.get_by_role("button", name="Full screen").click()
    frame.get_by_role("button", name="Exit full screen").click()
    expect(frame.get_by_role("button", name="Full screen")).to_be_visible()
    assert app.run("host.hostContext.displayMode") == "inline"
    frame = app.open(hostContext={"displayMode": "inline", "availableDisplayModes": ["inline"]})
    app.show({}, client.call("rows"))
    expect(_row(frame, "naïve 0")).to_be_visible()
    expect(frame.locator("#fullscreen")).to_be_hidden()


def test_requests_of_the_host_are_answered(app: App, client: EraClient) -> None:
    frame = app.open()
    app.show({}, client.call("rows"))
    expect(_row(frame, "naïve 0")).to_be_visible()
    assert app.run("host.request('ping')")["result"] == {}
    assert app.run("host.request('no/such/method')")["error"]["code"] == -32601
    assert app.run("host.request('constructor')")["error"]["code"] == -32601
    assert app.run("host.request('ui/resource-teardown', {reason: 'closed'})")["result"] == {}
    expect(frame.locator("#app")).to_be_empty()


def test_messages_of_others_are_ignored(app: App, client: EraClient) -> None:
    """Only the page around the frame is the host, and only JSON-RPC is for the app."""
    frame = app.open()
    forged = {"jsonrpc": "2.0", "method": "ui/notifications/tool-cancelled", "params": {"reason": "forged"}}
    frame.evaluate("(message) => window.postMessage(message, '*')", forged)
    app.run("host.frame.contentWindow.postMessage('text', '*')")
    app.run("host.frame.contentWindow.postMessage({method: 'ui/notifications/tool-cancelled'}, '*')")
    app.show({}, client.call("rows"))
    expect(_row(frame, "naïve 0")).to_be_visible()
    expect(frame.get_by_text("forged")).to_have_count(0)
