"""The dashboard over HTTP: who is let in, what the cookie is like, and the headers of every response."""

import http.client
import json
import re
import select
import shutil
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import forebay
import pytest
from command import run
from dashboard_site import run_dashboard
from forebay.dashboard.layout import ASSETS
from listening_harness import TIMEOUT_SECONDS, Response
from private_files import write_private
from serve_harness import upstream_command, write_config
from serve_http_harness import NAMES, connect_as, serving_config, token, write_tokens
from waiting import wait_until
from wires import MODERN, connect_http

pytestmark = pytest.mark.slow

ROWS = [{"id": number, "name": f"row {number}"} for number in range(500)]


class Site:
    """A server with a dashboard, and a client that keeps one cookie."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.cookie: str | None = None

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Response:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie is not None:
            sent.setdefault("cookie", self.cookie)
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_SECONDS)) as connection:
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            lower = {name.lower(): value for name, value in response.getheaders()}
            return Response(response.status, lower, response.read())

    def get(self, path: str = "/dashboard", **headers: str) -> Response:
        return self.request("GET", path, None, **headers)

    def sign_in(self, secret: str, **headers: str) -> Response:
        body = urllib.parse.urlencode({"token": secret}).encode()
        response = self.request("POST", "/dashboard/sign-in", body, **headers)
        if "set-cookie" in response.headers:
            self.cookie = response.headers["set-cookie"].partition(";")[0]
        return response

    def call(self, tool: str, arguments: Any, **headers: str) -> Response:
        sent = {"content_type": "application/json", **headers}
        return self.request("POST", f"/dashboard/api/{tool}", json.dumps(arguments).encode(), **sent)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str, Path]]:
    """The port of a server with tokens, a handle of ann, and the server's folder."""
    folder = tmp_path_factory.mktemp("served")
    write_tokens(folder / "tokens", NAMES)
    upstreams = {
        "main": upstream_command("plain_server.py"),
        "broken": {**upstream_command("plain_server.py"), "env": {"COMPLAINT": "it cannot start"}},
    }
    path = write_config(folder, upstreams, journal=True)
    with serving_config(path, "--token-file", str(folder / "tokens")) as server:
        with forebay.open_store((folder / "store").as_uri(), sweep_interval=0) as store:
            handle = store.put(ROWS, source_tool="list_rows", principal='["client", "ann"]').output_handle
        yield server.port, handle, folder


@pytest.fixture
def site(served: tuple[int, str, Path]) -> Site:
    return Site(served[0])


@contextmanager
def open_dashboard(root: Path, *options: str) -> Iterator[tuple[Site, str]]:
    """Run `forebay dashboard`, and yield a client and the path of the address that the command prints."""
    with run_dashboard(root, *options) as url:
        parts = urllib.parse.urlsplit(url)
        assert parts.port is not None
        yield Site(parts.port), url.partition(parts.netloc)[2]


def make_store(root: Path, **options: Any) -> str:
    with forebay.open_store(root.as_uri(), sweep_interval=0) as store:
        return store.put(ROWS, source_tool="list_rows", **options).output_handle


def check_headers(response: Response) -> None:
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; ")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "same-origin"
    assert response.headers["cache-control"] == "no-store"


# With tokens, behind `forebay serve`.


def test_nobody_gets_in_without_a_token(site: Site, served: tuple[int, str, Path]) -> None:
    handle = served[1]
    for path in ("/dashboard", f"/dashboard/{handle}", "/dashboard/", "/dashboard/open?handle=x", "/dashboard?token=x"):
        response = site.get(path)
        assert response.status == 401
        assert b"list_rows" not in response.body
        assert b"<form" in response.body
        check_headers(response)
    assert site.request("POST", "/dashboard").status == 401
    response = site.call("output_fetch", {"output_handle": handle})
    assert response.status == 401
    assert response.message["error"]["code"] == "unauthorized"
    assert site.get(cookie="forebay_token=x").status == 401
    assert site.get(authorization="Bearer x").status == 401


def test_a_token_signs_in_and_out(site: Site, served: tuple[int, str, Path]) -> None:
    response = site.sign_in(token("ann"))
    assert (response.status, response.headers["location"]) == (303, "/dashboard")
    assert response.headers["set-cookie"] == (
        f"forebay_token_{site.port}={token('ann')}; Path=/dashboard; HttpOnly; SameSite=Strict"
    )
    page = site.get()
    check_headers(page)
    assert (page.status, b"client:ann" in page.body, b"list_rows" in page.body) == (200, True, True)
    assert site.get(f"/dashboard/{served[1]}").status == 200
    out = site.request("POST", "/dashboard/sign-out")
    assert (out.status, "Max-Age=0" in out.headers["set-cookie"]) == (303, True)
    assert f"forebay_token_{site.port}=;" in out.headers["set-cookie"]


def test_a_browser_that_speaks_https_keeps_the_cookie_to_https(site: Site) -> None:
    response = site.sign_in(token("ann"), origin=f"https://127.0.0.1:{site.port}")
    assert response.headers["set-cookie"].endswith("; Secure")


def test_a_token_that_no_cookie_can_hold_is_for_the_header(tmp_path: Path) -> None:
    long_token = "x" * 4000
    write_private(tmp_path / "tokens", f"ann: {long_token}\n")
    make_store(tmp_path / "store")
    with open_dashboard(tmp_path / "store", "--token-file", str(tmp_path / "tokens")) as (site, _):
        response = site.sign_in(long_token)
        assert (response.status, b"too long for a cookie" in response.body) == (401, True)
        assert site.get(authorization=f"Bearer {long_token}").status == 200


def test_forms_and_queries_have_bounds(site: Site) -> None:
    response = site.sign_in("x" * 20_000)
    assert (response.status, site.cookie) == (401, None)
    site.sign_in(token("ann"))
    many = "&".join(f"f{number}=1" for number in range(40))
    # As without any field.
    assert site.get(f"/dashboard?{many}").status == 200


def test_the_header_of_the_api_works_too(site: Site) -> None:
    assert site.get(authorization=f"Bearer {token('ann')}").status == 200


def test_another_principal_sees_nothing(site: Site, served: tuple[int, str, Path]) -> None:
    handle = served[1]
    site.sign_in(token("bob"))
    page = site.get()
    assert page.status == 200
    assert b"list_rows" not in page.body
    assert handle.encode() not in page.body
    other = site.get(f"/dashboard/{handle}")
    unknown = site.get("/dashboard/oh_AAAAAAAAAAAA")
    assert (other.status, other.body) == (404, unknown.body)
    for tool, more in (
        ("output_fetch", {}),
        ("output_search", {"pattern": "1"}),
        ("output_query", {"sql": "SELECT 1"}),
    ):
        response = site.call(tool, {"output_handle": handle, **more})
        assert (response.status, response.message["error"]["code"]) == (404, "output_handle_not_found")


def test_the_viewer_calls_the_tools(site: Site, served: tuple[int, str, Path]) -> None:
    handle = served[1]
    site.sign_in(token("ann"))
    response = site.call("output_fetch", {"output_handle": handle, "offset": 7, "limit": 1})
    assert (response.status, response.message["content"]) == (200, [ROWS[7]])
    check_headers(response)
    found = site.call("output_search", {"output_handle": handle, "pattern": "row 499"})
    assert found.message["matches"][0]["item"] == 499
    rows = site.call("output_query", {"output_handle": handle, "sql": "SELECT max(id) FROM items"})
    assert rows.message["rows"] == [[499]]


@pytest.mark.parametrize(
    ("tool", "body", "content_type", "status"),
    [
        ("journal", b"{}", "application/json", 404),
        ("output_fetch", b"{}", "text/plain", 415),
        ("output_fetch", b"{", "application/json", 400),
        ("output_fetch", b"[]", "application/json", 400),
        ("output_fetch", b" " * 70_000, "application/json", 413),
        ("output_fetch", b'{"output_handle": "../../etc/passwd"}', "application/json", 404),
    ],
)
def test_wrong_calls_are_refused(site: Site, tool: str, body: bytes, content_type: str, status: int) -> None:
    site.sign_in(token("ann"))
    response = site.request("POST", f"/dashboard/api/{tool}", body, content_type=content_type)
    assert response.status == status
    assert response.message["error"]["message"]


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        # Another server of this machine.
        {"origin": "http://127.0.0.1:1"},
        {"origin": "http://localhost:1"},
    ],
)
def test_other_sites_are_refused(site: Site, served: tuple[int, str, Path], headers: dict[str, str]) -> None:
    site.sign_in(token("ann"))
    for response in (
        site.get(**headers),
        site.call("output_fetch", {"output_handle": served[1]}, **headers),
        site.sign_in(token("ann"), **headers),
    ):
        assert response.status == 421
        assert "set-cookie" not in response.headers
        assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize(
    ("fetch_site", "mode", "destination", "status"),
    [
        ("cross-site", "no-cors", "image", 403),
        # Another server of this machine: sites have no ports.
        ("same-site", "no-cors", "script", 403),
        ("cross-site", "cors", "empty", 403),
        ("cross-site", "navigate", "iframe", 403),
        ("cross-site", "navigate", "document", 200),
        ("same-site", "navigate", "document", 200),
        ("same-origin", "cors", "empty", 200),
        ("none", "navigate", "document", 200),
    ],
)
def test_pages_of_other_sites_can_link_to_the_dashboard_but_not_load_it(
    site: Site, served: tuple[int, str, Path], fetch_site: str, mode: str, destination: str, status: int
) -> None:
    site.sign_in(token("ann"))
    headers = {"sec_fetch_site": fetch_site, "sec_fetch_mode": mode, "sec_fetch_dest": destination}
    for path in ("/dashboard", f"/dashboard/{served[1]}", "/dashboard/assets/dashboard.js"):
        assert site.get(path, **headers).status == status


def test_other_methods_and_addresses(site: Site) -> None:
    site.sign_in(token("ann"))
    for method in ("PUT", "DELETE", "OPTIONS"):
        response = site.request(method, "/dashboard")
        assert (response.status, response.headers["allow"]) == (405, "GET, HEAD, POST")
    for path in (
        "/dashboard/nope",
        "/dashboard/..%2f..%2fetc%2fpasswd",
        "/dashboard/api/output_fetch",
        "/dashboard/open?handle=x",
    ):
        assert site.get(path).status == 404, path
    assert site.request("POST", "/dashboard").status == 404
    assert site.get("/dashboards").body.startswith(b"Not Found")
    assert site.request("HEAD", "/dashboard").body == b""
    for path in ("/dashboard/sign-in", "/dashboard/sign-out"):
        assert site.get(path).headers["location"] == "/dashboard"
    redirect = site.get("/dashboard/open?handle=ax://domain/id~oh_AAAAAAAAAAAA")
    assert (redirect.status, redirect.headers["location"]) == (303, "/dashboard/oh_AAAAAAAAAAAA")


def test_files_may_be_kept_under_an_address_of_their_content(site: Site) -> None:
    page = site.get().body.decode()
    for name in ASSETS:
        assert site.get(f"/dashboard/assets/{name}").headers["cache-control"] == "no-store"
    for address in re.findall(r'"(/dashboard/assets/[^"]+)"', page):
        response = site.get(address)
        assert response.status == 200
        assert "immutable" in response.headers["cache-control"]
        assert response.headers["x-content-type-options"] == "nosniff"
    assert site.get("/dashboard/assets/__init__.py").status == 404
    assert site.get("/dashboard/assets/../app.py").status == 404


def test_slow_queries_of_one_principal_do_not_stop_others(site: Site, served: tuple[int, str, Path]) -> None:
    count = 30
    with ExitStack() as stack:
        slow = [stack.enter_context(closing(http.client.HTTPConnection("127.0.0.1", site.port))) for _ in range(count)]
        for connection in slow:
            query = urllib.parse.urlencode({"view": "query", "sql": "SELECT count(*) FROM range(300000000)"})
            connection.request(
                "GET", f"/dashboard/{served[1]}?{query}", headers={"authorization": f"Bearer {token('ann')}"}
            )
        assert site.get(authorization=f"Bearer {token('bob')}").status == 200
        answered, _, _ = select.select([connection.sock for connection in slow], [], [], 0)
        # If they took all threads, the page would have come after nearly all of them.
        assert len(answered) < count - 6
        assert {connection.getresponse().status for connection in slow} == {200}


@pytest.mark.posix
def test_a_page_that_takes_too_long_is_ended_with_the_server(tmp_path: Path) -> None:
    handle = make_store(tmp_path / "store", handle_length=26)
    path = write_config(tmp_path, {"main": upstream_command("plain_server.py")}, shutdown_grace_seconds=0.1)
    query = urllib.parse.urlencode({"view": "query", "sql": "SELECT count(*) FROM range(300000000000)"})
    with (
        serving_config(path) as server,
        closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_SECONDS)) as connection,
    ):
        connection.request("GET", f"/dashboard/{handle}?{query}")
        # Answered after the other request has arrived.
        assert Site(server.port).get().status == 200
        server.terminate()
        assert connection.getresponse().status == 503
        assert server.wait() == 0
        assert "Traceback" not in server.log


def test_upstreams_are_those_of_the_principal(site: Site) -> None:
    site.sign_in(token("cid"))
    assert b"not in use" in site.get().body
    connect_as(site.port, MODERN, "cid").request("tools/list")
    wait_until(lambda: re.search(rb"main.{,80}state-connected.*broken.{,80}state-failed", site.get().body))
    site.sign_in(token("dan"))
    assert b'class="state state-connected"' not in site.get().body


def test_sign_ins_are_limited_but_pages_are_not(tmp_path: Path) -> None:
    write_tokens(tmp_path / "tokens", NAMES)
    path = write_config(tmp_path, {"main": upstream_command("plain_server.py")})
    with serving_config(path, "--token-file", str(tmp_path / "tokens")) as server:
        site = Site(server.port)
        statuses = [site.sign_in("x" * 30).status for _ in range(40)]
        assert statuses[:30] == [401] * 30
        assert 429 in statuses[30:]
        refused = site.sign_in(token("ann"))
        assert (refused.status, int(refused.headers["retry-after"]) > 0) == (429, True)
        assert site.get(authorization=f"Bearer {token('ann')}").status == 200


def test_a_removed_token_is_refused_at_once_and_requests_are_limited(tmp_path: Path) -> None:
    write_tokens(tmp_path / "tokens", NAMES)
    path = write_config(tmp_path, {"main": upstream_command("plain_server.py")}, rate_limit_per_minute=5)
    with serving_config(path, "--token-file", str(tmp_path / "tokens")) as server:
        site = Site(server.port)
        site.sign_in(token("ann"))
        assert site.get().status == 200
        write_tokens(tmp_path / "tokens", ["bob"])
        assert site.get().status == 401
        site.sign_in(token("bob"))
        assert [site.get().status for _ in range(6)][-1] == 429


def test_it_can_be_turned_off(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"main": upstream_command("plain_server.py")})
    with serving_config(path, "--no-dashboard") as server:
        response = Site(server.port).get()
        assert (response.status, b"/mcp" in response.body) == (404, True)
        assert "dashboard" not in server.log


def test_without_tokens_handles_are_not_listed(tmp_path: Path) -> None:
    handle = make_store(tmp_path / "store", handle_length=26)
    path = write_config(tmp_path, {"main": upstream_command("plain_server.py")})
    with serving_config(path) as server:
        site = Site(server.port)
        page = site.get()
        assert (page.status, b"list_rows" in page.body) == (200, True)
        assert handle.encode() not in page.body
        # Whoever has a handle can read it, as with the tools.
        assert site.get(f"/dashboard/{handle}").status == 200
        assert site.call("output_fetch", {"output_handle": handle, "limit": 1}).message["content"] == ROWS[:1]


# As a command of its own.


def test_the_printed_address_signs_in_as_the_operator(tmp_path: Path) -> None:
    handles = [make_store(tmp_path, principal=name) for name in ("ann", None)]
    with open_dashboard(tmp_path) as (site, address):
        for response in (site.get(), site.request("POST", "/dashboard"), site.get("/dashboard?token=wrong")):
            assert response.status == 401
            # Not even where the store is.
            assert tmp_path.name.encode() not in response.body
        response = site.get(address)
        assert (response.status, response.headers["location"]) == (303, "/dashboard")
        site.cookie = response.headers["set-cookie"].partition(";")[0]
        page = site.get().body.decode()
        assert all(handle in page for handle in handles)
        assert site.get(f"/dashboard/{handles[0]}").status == 200
        assert site.call("output_fetch", {"output_handle": handles[0], "limit": 1}).message["content"] == ROWS[:1]
        assert site.get("/dashboard?token=wrong").status == 401
        # It speaks no MCP.
        message = b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}'
        types = {"content_type": "application/json", "accept": "application/json, text/event-stream"}
        bearer = f"Bearer {address.partition('token=')[2]}"
        spoken = site.request("POST", "/mcp", message, **types, authorization=bearer)
        assert b"only shows a dashboard" in spoken.body
        modern = connect_http(site.port, MODERN, bearer.removeprefix("Bearer "))
        assert b"only shows a dashboard" in modern.request("tools/list")


@pytest.mark.posix
def test_a_store_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    handle = make_store(tmp_path / "store")
    with open_dashboard(tmp_path / "store") as (site, address):
        site.cookie = site.get(address).headers["set-cookie"].partition(";")[0]
        shutil.rmtree(tmp_path / "store")
        (tmp_path / "store").write_text("")
        wait_until(lambda: site.get("/ready").status == 503)
        response = site.get()
        assert response.status == 503
        assert b"The store cannot be read" in response.body
        response = site.get(f"/dashboard/{handle}")
        assert response.status == 503
        assert b"This output cannot be shown" in response.body


def test_with_a_token_file_people_see_their_own(tmp_path: Path) -> None:
    write_tokens(tmp_path / "tokens", NAMES)
    handle = make_store(tmp_path / "store", principal='["client", "ann"]')
    with open_dashboard(tmp_path / "store", "--token-file", str(tmp_path / "tokens")) as (site, address):
        assert address == "/dashboard"
        site.sign_in(token("bob"))
        assert site.get(f"/dashboard/{handle}").status == 404
        site.sign_in(token("ann"))
        assert site.get(f"/dashboard/{handle}").status == 200


def test_more_people_than_totals_are_kept_for_see_their_own(tmp_path: Path) -> None:
    names = [f"name{number}" for number in range(70)]
    write_tokens(tmp_path / "tokens", names)
    handle = make_store(tmp_path / "store", principal='["client", "name0"]')
    with open_dashboard(tmp_path / "store", "--token-file", str(tmp_path / "tokens")) as (site, _):
        pages = [site.get(authorization=f"Bearer {token(name)}") for name in [*names, "name0"]]
    assert [page.status for page in pages] == [200] * 71
    assert [handle in page.body.decode() for page in pages] == [True, *[False] * 69, True]


def test_it_is_not_shown_to_other_machines_without_tokens(tmp_path: Path) -> None:
    result = run("dashboard", "--store", tmp_path.as_uri(), "--http", "0.0.0.0:0")
    assert result.code == 2
    assert "--token-file" in result.error["message"]
    behind_a_proxy = run("dashboard", "--store", tmp_path.as_uri(), "--allowed-hosts", "forebay.example.com")
    assert (behind_a_proxy.code, "--token-file" in behind_a_proxy.error["message"]) == (2, True)
    assert run("dashboard", "--http", "nonsense").code == 2
    assert run("dashboard", "--store", (tmp_path / "nope").as_uri()).code == 5
