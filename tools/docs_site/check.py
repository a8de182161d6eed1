"""Check the built site: every link leads somewhere, and no page loads anything from another host."""

import html.parser
import re
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

__all__ = ["find_problems"]

_ROOT = "http://site.invalid/"
"""Stands for the address of the site, to resolve relative links."""

_LOADED_ATTRIBUTES = {
    ("audio", "src"),
    ("embed", "src"),
    ("iframe", "src"),
    ("image", "href"),
    ("img", "src"),
    ("img", "srcset"),
    ("link", "href"),
    ("object", "data"),
    ("script", "src"),
    ("source", "src"),
    ("source", "srcset"),
    ("use", "href"),
    ("video", "src"),
}
"""Elements and attributes whose address a browser loads without a click."""

_PASSIVE_LINKS = {"canonical", "next", "prev", "alternate"}
"""Kinds of `<link>` that name a page, and load nothing."""

_CSS_ADDRESS = re.compile(r"""@import\s+["']?([^"');\s]+)|url\(\s*["']?([^"')\s]+)""")


class _Page(html.parser.HTMLParser):
    """The links, loaded addresses and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors = {"", "top"}
        self._is_style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        for name in ("id", "name"):
            self.anchors.add(values.get(name) or "")
        if tag == "a" and values.get("href") is not None:
            self.links.append(values["href"] or "")
        if tag == "link" and values.get("rel") in _PASSIVE_LINKS:
            return
        self.loaded += [value for name, value in attrs if (tag, name) in _LOADED_ATTRIBUTES and value]
        self.loaded += _find_css_addresses(values.get("style") or "")
        self._is_style = tag == "style"

    def handle_data(self, data: str) -> None:
        if self._is_style:
            self.loaded += _find_css_addresses(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "style":
            self._is_style = False


def _find_css_addresses(text: str) -> list[str]:
    return [first or second for first, second in _CSS_ADDRESS.findall(text)]


def find_problems(site: Path) -> list[str]:
    """Return a sentence for each dead link, missing anchor and outside resource of a built site."""
    pages = {
        path.relative_to(site).as_posix(): _Page(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
    }
    problems = []
    for name, page in pages.items():
        # The error page is shown at any address, so its links are absolute.
        base = _ROOT + name
        problems += [f"{name} loads {address}" for address in page.loaded if _is_outside(urljoin(base, address))]
        for link in {*page.links, *(link for link in page.loaded if not link.startswith("data:"))}:
            target = urljoin(base, link)
            if target.startswith(_ROOT) and (problem := _check_target(site, pages, target)) is not None:
                problems.append(f"{name} links to {link}: {problem}")
    for path in sorted(site.rglob("*.css")):
        text = path.read_text(encoding="utf-8")
        base = _ROOT + path.relative_to(site).as_posix()
        outside = [address for address in _find_css_addresses(text) if _is_outside(urljoin(base, address))]
        problems += [f"{path.relative_to(site)} loads {address}" for address in outside]
    return problems


def _is_outside(address: str) -> bool:
    return urlsplit(address).scheme != "data" and not address.startswith(_ROOT)


def _check_target(site: Path, pages: dict[str, _Page], target: str) -> str | None:
    address, anchor = urldefrag(target)
    path = unquote(urlsplit(address).path).lstrip("/")
    file = site / path
    if file.is_dir():
        file /= "index.html"
    if not file.is_file():
        return "there is no such file"
    page = pages.get(file.relative_to(site).as_posix())
    if page is not None and unquote(anchor) not in page.anchors:
        return "there is no such heading"
    return None
