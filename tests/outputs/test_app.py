"""The page of the MCP App, and who gets it."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from forebay.outputs.app.resource import EXTENSION_KEY, MIME_TYPE, ViewerApp, declares_apps
from forebay.outputs.policy import OutputPolicy
from forebay.wire.lazy_json import LazyJSON, parse_lazy
from forebay.wire.messages import parse

NAMES = {"output_fetch": "oc_output_fetch", "output_search": "oc_output_search"}

CAPABILITIES = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}


class PageParser(HTMLParser):
    """Collects the elements of a page, and the text of its scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": []}
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in self.texts:
            self.texts[self._open[-1]].append(data)


@pytest.fixture
def page() -> PageParser:
    (content,) = ViewerApp(NAMES).read()["contents"]
    assert content["text"].startswith("<!doctype html>")
    return PageParser(content["text"])


def test_the_page_is_one_document_that_loads_nothing(page: PageParser) -> None:
    assert [tag for tag, _ in page.elements][:2] == ["html", "head"]
    for tag, attributes in page.elements:
        assert not {"src", "href", "srcset", "action", "data"} & attributes.keys(), tag
    (style,) = page.texts["style"]
    assert "url(" not in style
    assert "@import" not in style
    _, script = page.texts["script"]
    assert not re.search(r"^\s*import\b", script, re.MULTILINE)
    assert "import(" not in script
    for name in (
        "fetch(",
        "XMLHttpRequest",
        "WebSocket",
        "EventSource",
        "sendBeacon",
        "eval(",
        "innerHTML",
        "localStorage",
    ):
        assert name not in script, name
    assert not re.search(r"https?://", script)


def test_the_page_calls_tools_by_their_names_here(page: PageParser) -> None:
    settings, _ = page.texts["script"]
    assert json.loads(settings)["tools"] == NAMES


def test_what_the_resource_says_of_itself() -> None:
    app = ViewerApp(NAMES)
    listed = app.define_resource()
    (content,) = app.read()["contents"]
    assert listed["uri"] == content["uri"] == "ui://forebay/oc_output_fetch"
    assert listed["mimeType"] == content["mimeType"] == "text/html;profile=mcp-app"
    assert listed["_meta"] == content["_meta"]
    csp = content["_meta"]["ui"]["csp"]
    assert csp == {key: [] for key in ["connectDomains", "resourceDomains", "frameDomains", "baseUriDomains"]}


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        (CAPABILITIES, True),
        ({"extensions": {EXTENSION_KEY: {"mimeTypes": ["text/other", MIME_TYPE], "more": 1}}, "roots": {}}, True),
        ({"extensions": {EXTENSION_KEY: {"mimeTypes": ["text/html"]}}}, False),
        ({"extensions": {EXTENSION_KEY: {"mimeTypes": MIME_TYPE}}}, False),
        ({"extensions": {EXTENSION_KEY: {"mimeTypes": {MIME_TYPE: 1}}}}, False),
        ({"extensions": {EXTENSION_KEY: {}}}, False),
        ({"extensions": {EXTENSION_KEY: [MIME_TYPE]}}, False),
        ({"extensions": [EXTENSION_KEY]}, False),
        ({"experimental": CAPABILITIES["extensions"]}, False),
        ({}, False),
        (None, False),
        ("extensions", False),
    ],
)
def test_only_clients_that_name_the_type_show_apps(capabilities: Any, expected: bool) -> None:
    assert declares_apps(capabilities) is expected


def test_large_capabilities_are_read_all_the_same() -> None:
    paddings: list[Any] = [{"x": "y" * 100_000}, {str(number): {} for number in range(5000)}]
    for padding in paddings:
        capabilities: Any = {**CAPABILITIES, "experimental": padding}
        for given in (capabilities, {"extensions": {**CAPABILITIES["extensions"], "other/x": padding}}):
            assert declares_apps(parse(json.dumps(given).encode()))


def test_many_capabilities_and_extensions_are_read_all_the_same() -> None:
    many: Any = {f"other/{number}": {} for number in range(5000)}
    extensions = {**many, **CAPABILITIES["extensions"]}
    for capabilities in ({**many, **CAPABILITIES}, {"extensions": extensions}, {**many, "extensions": extensions}):
        message = parse(json.dumps({"params": {"capabilities": capabilities}}).encode())
        assert isinstance(message["params"]["capabilities"], LazyJSON | dict)
        assert declares_apps(message["params"]["capabilities"])
    assert not declares_apps(parse_lazy(json.dumps({"extensions": many}).encode()))


@pytest.fixture
def policy(tmp_path: Path) -> Any:
    modes: Any = {"rows": "handle", "limited": "handle"}
    policy = OutputPolicy(tmp_path.as_uri(), output_mode="auto", tools=modes, contract=["limited"], sweep_interval=0)
    yield policy
    policy.close()


def test_tools_whose_every_result_is_stored_get_the_app(policy: OutputPolicy) -> None:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("rows", "limited", "other")]
    plain = policy.list_visible(tools)
    rows, *others = policy.list_visible(tools, shows_apps=True)
    assert rows == {**plain[0], "_meta": {"ui": {"resourceUri": "ui://forebay/output_fetch"}}}
    assert others == plain[1:]


@pytest.mark.parametrize(
    "meta", [{"ui": {"resourceUri": "ui://own"}}, {"ui/resourceUri": "ui://own"}, {"ui": {"visibility": ["app"]}}]
)
def test_a_tool_keeps_its_own_app(meta: dict[str, Any], policy: OutputPolicy) -> None:
    tool = {"name": "rows", "inputSchema": {"type": "object"}, "_meta": meta}
    assert policy.list_visible([tool], shows_apps=True) == policy.list_visible([tool])


def test_of_our_tools_only_output_fetch_has_the_app(policy: OutputPolicy) -> None:
    plain, shown = policy.list_own_tools(), policy.list_own_tools(shows_apps=True)
    assert plain == policy.tools.list_definitions()
    assert shown[1:] == plain[1:]
    assert shown[0]["_meta"] == {**plain[0]["_meta"], "ui": {"resourceUri": "ui://forebay/output_fetch"}}


def test_the_app_follows_the_names_of_our_tools(policy: OutputPolicy) -> None:
    policy.learn_tools([{"name": "output_search", "inputSchema": {}}])
    assert policy.app.uri == "ui://forebay/forebay_output_fetch"
    assert '"output_search":"forebay_output_search"' in policy.app.read()["contents"][0]["text"]
