"""The crawler recipe: a crawl becomes a handle, and nothing but the site is asked."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import orjson
import pytest
from recipe_client import connect_recipe
from recipes import crawler

pytestmark = pytest.mark.slow

PAGES = 120
WORDS = "The crawler reads this paragraph as one line of text. Größe ✓. " * 20


@dataclass
class Site:
    """A site on loopback, and the paths that were asked."""

    url: str = ""
    other_url: str = ""
    asked: list[str] = field(default_factory=list)
    pages: dict[str, tuple[dict[str, str], bytes]] = field(default_factory=dict)
    """Headers and body of further paths."""

    def get(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Return the status, headers and body of a path."""
        html = {"Content-Type": "text/html; charset=utf-8"}
        if path == "/robots.txt":
            return 200, {"Content-Type": "text/plain"}, b"User-agent: *\nDisallow: /private\n"
        if path == "/":
            links = [*(f"/page/{number}" for number in range(PAGES)), *self.special_links()]
            anchors = "".join(f'<a href="{link}">to {link}</a>' for link in links)
            script = "<script>var hidden = 1 < 2;</script><style>p { color: red }</style>"
            return 200, html, f"<html><title>Home</title>{script}<body>{anchors}</body></html>".encode()
        if path.startswith("/page/"):
            number = int(path.removeprefix("/page/"))
            text = f"<title>Page {number}</title><p>{WORDS}</p><p>Number {number}</p><a href='/#top'>Home</a>"
            return 200, html, text.encode()
        if path in self.pages:
            return 200, *self.pages[path]
        if path == "/moved":
            return 302, {"Location": "/page/1"}, b""
        if path == "/away":
            return 302, {"Location": f"{self.other_url}/stolen"}, b""
        if path == "/data.json":
            return 200, {"Content-Type": "application/json"}, b'{"a": 1}'
        if path == "/latin":
            return 200, {"Content-Type": "text/html; charset=iso-8859-1"}, b"<p>caf\xe9</p>"
        if path == "/huge":
            return 200, {"Content-Type": "text/plain"}, b"x" * (crawler.MAX_PAGE_BYTES + 100_000)
        return 404, {"Content-Type": "text/plain"}, b"nothing here"

    def special_links(self) -> list[str]:
        own = ["/moved", "/away", "/missing", "/private/keys", "/data.json", "/latin", "/huge", "/page/1#part"]
        return [*own, f"{self.other_url}/elsewhere", "mailto:ann@example.com", "http://[broken", "file:///etc/passwd"]


@contextmanager
def serving(site: Site) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append(self.path)
            status, headers, body = site.get(self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def other() -> Iterator[Site]:
    site = Site()
    with serving(site) as site.url:
        yield site


@pytest.fixture
def site(other: Site) -> Iterator[Site]:
    site = Site(other_url=other.url)
    with serving(site) as site.url:
        yield site


def test_questions_about_a_crawl(site: Site, other: Site, tmp_path: Path, era: str) -> None:
    async def ask() -> None:
        async with connect_recipe("crawler.py", site.url, era=era, home=tmp_path) as client:
            handle, descriptor = await client.call_large("crawl", max_pages=500)
            # Home, the pages, and /moved, /away, /missing, /data.json, /latin, /huge.
            assert descriptor["item_count"] == PAGES + 7
            sql = "SELECT status, count(*) FROM items GROUP BY 1 ORDER BY 1"
            assert await client.query(handle, sql) == [[200, PAGES + 4], [302, 2], [404, 1]]
            page = await client.call("output_fetch", output_handle=handle, where={"url": f"{site.url}/page/77"})
            assert page["content"] == [
                {
                    "url": f"{site.url}/page/77",
                    "status": 200,
                    "title": "Page 77",
                    "text": f"{WORDS.strip()}\nNumber 77\nHome",
                    "links": [f"{site.url}/"],
                }
            ]
            found = await client.call("output_search", output_handle=handle, pattern="café", mode="values")
            assert found["total_matches"] == 1
            where = {"url": f"{site.url}/huge"}
            page = await client.call("output_fetch", output_handle=handle, where=where, fields=["url", "status"])
            assert page["content"] == [{"url": f"{site.url}/huge", "status": 200}]
            sizes = await client.query(handle, "SELECT length(text) FROM items WHERE url LIKE '%/huge'")
            assert sizes == [[crawler.MAX_PAGE_BYTES]]
            home = await client.call("output_fetch", output_handle=handle, limit=1, fields=["title", "text"])
            assert "hidden" not in home["content"][0]["text"]
            assert len(client.read_stored(handle)) == descriptor["size_bytes"]

            small = await client.call("crawl", path="/page/5", max_pages=1)
            assert [page["title"] for page in small] == ["Page 5"]
            small = await client.call("crawl", path=f"{other.url}/stolen")
            assert small == []

    asyncio.run(ask())
    assert other.asked == []
    assert "/private/keys" not in site.asked
    assert site.asked.count("/page/1") == 1


def test_a_site_that_cannot_be_reached_is_an_error_in_the_result() -> None:
    with serving(Site()) as url:
        pass
    (page,) = crawler.crawl_site(url, "/", 10)
    assert page["url"] == f"{url}/"
    assert "refused" in page["error"]


def test_a_crawl_ends_in_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crawler, "MAX_SECONDS", 0)
    assert crawler.crawl_site(site.url, "/", 10) == []


@pytest.mark.parametrize(
    ("codec", "body", "text"),
    [
        # No codec for text, one that always fails, and one that decodes to half a character.
        ("hex", b"<p>hello", "hello"),
        ("undefined", b"<p>hello", "hello"),
        ("utf-7", b"<p>+2AA-", "?"),
    ],
)
def test_a_page_in_any_codec_is_text(codec: str, body: bytes, text: str, site: Site) -> None:
    site.pages["/odd"] = {"Content-Type": f"text/html; charset={codec}"}, body
    pages = crawler.crawl_site(site.url, "/odd", 1)
    assert [page["text"] for page in pages] == [text]
    assert orjson.loads(orjson.dumps(pages)) == pages


def test_a_page_with_endless_links_has_some(site: Site) -> None:
    links = "".join(f"<a href='/{number}'>" for number in range(crawler.MAX_LINKS + 5))
    long_link = f"<a href='/{'x' * crawler.MAX_LINK_CHARS}'>"
    site.pages["/odd"] = {"Content-Type": "text/html"}, (long_link + links).encode()
    (page,) = crawler.crawl_site(site.url, "/odd", 1)
    assert page["links"] == [f"{site.url}/{number}" for number in range(crawler.MAX_LINKS)]
