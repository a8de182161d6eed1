"""An MCP server that crawls one site. A crawl that is too large for a context becomes a handle.

    pip install 'forebay[sql]' 'mcp>=2.3'
    python crawler.py https://docs.example.com        # over stdio: the command for a client's configuration

The model gets a descriptor of at most 4 KB for a crawl of any size. It finds pages with `output_search`, reads them
with `output_fetch`, and asks about them with `output_query`: `SELECT url FROM items WHERE status = 404`.

You choose the site, and the model only a path on it. Links and redirects to other origins are listed but not followed,
robots.txt is respected, and pages, bytes and time are limited.
"""

import argparse
import time
from contextlib import closing, suppress
from html.parser import HTMLParser
from typing import Annotated, Any
from urllib.parse import urldefrag, urljoin, urlsplit
from urllib.robotparser import RobotFileParser

import httpx2
import orjson
from forebay.adapters.mcp import Forebay
from mcp.server import MCPServer
from pydantic import Field

USER_AGENT = "forebay-crawler"
MAX_PAGES, MAX_PAGE_BYTES = 1000, 2 << 20
MAX_LINKS, MAX_LINK_CHARS = 2000, 2000
MAX_SECONDS, REQUEST_SECONDS = 120.0, 10.0


class PageParser(HTMLParser):
    """Collects the title, the text and the links of a page."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.title, self.texts, self.links = "", list[str](), dict[str, None]()
        self._url, self._tag = url, ""

    def add_link(self, link: str) -> None:
        with suppress(ValueError):  # It may not be a URL.
            if len(url := urldefrag(urljoin(self._url, link)).url) <= MAX_LINK_CHARS and len(self.links) < MAX_LINKS:
                self.links[url] = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag = tag
        if tag == "a" and (link := dict(attrs).get("href")):
            self.add_link(link)

    def handle_endtag(self, tag: str) -> None:
        self._tag = "" if tag == self._tag else self._tag

    def handle_data(self, data: str) -> None:
        if self._tag == "title":
            self.title += data.strip()
        elif self._tag not in ("script", "style") and not data.isspace():
            self.texts.append(" ".join(data.split()))


def decode(data: bytes, encoding: str) -> str:
    """Decode what a server has sent. It may name a codec that is not for text, or one that decodes to surrogates."""
    with suppress(LookupError, UnicodeError):
        return data.decode(encoding, "replace").encode(errors="replace").decode()
    return data.decode(errors="replace")


def read_page(client: httpx2.Client, url: str, deadline: float) -> dict[str, Any]:
    """Return the title, text and first links of a page. A redirect is a link."""
    page, body = PageParser(url), b""
    try:
        with client.stream("GET", url) as response:
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MAX_PAGE_BYTES or time.monotonic() > deadline:
                    break
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        return {"url": url, "error": str(error)}
    text = decode(body[:MAX_PAGE_BYTES], response.encoding or "utf-8")
    if location := response.headers.get("location"):
        page.add_link(location)
    if "html" in response.headers.get("content-type", ""):
        page.feed(text)
        text = "\n".join(page.texts)
    return {"url": url, "status": response.status_code, "title": page.title, "text": text, "links": [*page.links]}


def crawl_site(site: str, path: str, max_pages: int) -> list[dict[str, Any]]:
    """Return the pages that links lead to, in the order of their distance from the path."""
    pages, deadline = list[dict[str, Any]](), time.monotonic() + MAX_SECONDS
    known = set(waiting := [urljoin(site, path)])
    with httpx2.Client(headers={"User-Agent": USER_AGENT}, timeout=REQUEST_SECONDS) as client:
        rules = read_page(client, urljoin(site, "/robots.txt"), deadline)
        robots = RobotFileParser()
        robots.parse(rules["text"].splitlines() if rules.get("status") == 200 else [])
        for url in waiting:  # The list grows while the loop runs.
            if len(pages) == max_pages or time.monotonic() > deadline:
                break
            if urlsplit(url)[:2] == urlsplit(site)[:2] and robots.can_fetch(USER_AGENT, url):
                pages.append(read_page(client, url, deadline))
                waiting += [link for link in pages[-1].get("links", []) if link not in known]
                known.update(pages[-1].get("links", []))
    return pages


def make_server(site: str) -> MCPServer:
    server = MCPServer("crawler", instructions=f"Pages of {site}.", log_level="WARNING")

    @server.tool(structured_output=False)
    def crawl(path: str = "/", max_pages: Annotated[int, Field(ge=1, le=MAX_PAGES)] = 100) -> str:
        """Crawl the site from a path on and return its pages: url, status, title, text, links."""
        return orjson.dumps(crawl_site(site, path, max_pages)).decode()

    return server


def main() -> None:
    parser = argparse.ArgumentParser(description="An MCP server that crawls one site.")
    parser.add_argument("site", help="the origin, such as https://docs.example.com")
    site = parser.parse_args().site
    if urlsplit(site).scheme not in ("http", "https"):
        parser.error(f"{site} is not the URL of a site; begin it with https://")
    with closing(Forebay(output_mode="auto")) as forebay:
        forebay.install(make_server(site)).run()


if __name__ == "__main__":
    main()
