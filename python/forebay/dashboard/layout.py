"""The frame of every page, the page to sign in, and pages with a single message."""

import dataclasses
import functools
import hashlib
import importlib.resources

from forebay.dashboard.html import Child, Html, element, join

__all__ = [
    "ASSETS",
    "PATH",
    "Frame",
    "get_asset_url",
    "make_message_page",
    "make_section",
    "make_sign_in_page",
    "read_asset",
    "wrap_page",
]

PATH = "/dashboard"
"""The path of the dashboard. All of its other paths begin with it."""

_VIEWER, _DASHBOARD = "forebay.outputs.viewer", "forebay.dashboard.assets"

ASSETS = {
    "viewer.css": (_VIEWER, "text/css; charset=utf-8"),
    "viewer.js": (_VIEWER, "text/javascript; charset=utf-8"),
    "dashboard.css": (_DASHBOARD, "text/css; charset=utf-8"),
    "dashboard.js": (_DASHBOARD, "text/javascript; charset=utf-8"),
}
"""Files that pages load: the package that contains each file, and its content type."""

_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect width='16' height='16' "
    "rx='3' fill='%2308627f'/%3E%3Cpath d='M3 5h10M3 8h10M5 11h6' stroke='%23fff' stroke-width='1.6' "
    "stroke-linecap='round'/%3E%3C/svg%3E"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Frame:
    """What the header of a page shows."""

    who: str
    """Whose data is shown."""
    is_signed_in: bool = False
    """Whether the header has a button to sign out."""


@functools.cache
def read_asset(name: str) -> bytes:
    """Return one of the files in `ASSETS`."""
    return importlib.resources.files(ASSETS[name][0]).joinpath(name).read_bytes()


@functools.cache
def get_asset_url(name: str) -> str:
    """Return the address of a file. It changes with the content, so browsers may cache the file forever."""
    return f"{PATH}/assets/{name}?v={hashlib.sha256(read_asset(name)).hexdigest()[:12]}"


def wrap_page(title: str, frame: Frame | None, *content: Child) -> bytes:
    """Return a whole page."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("link", rel="icon", href=_ICON),
        *(element("link", rel="stylesheet", href=get_asset_url(name)) for name in ("viewer.css", "dashboard.css")),
        element("script", type="module", src=get_asset_url("dashboard.js")),
    )
    body = element("body", _make_header(frame), element("main", *content, id="main"))
    return f"<!doctype html>{element('html', head, body, lang='en')}".encode(errors="replace")


def _make_header(frame: Frame | None) -> Html:
    brand = element("a", "forebay", href=PATH, class_="brand")
    if frame is None:
        return element("header", brand, class_="top")
    sign_out = element(
        "form",
        element("button", "Sign out", class_="quiet"),
        method="post",
        action=f"{PATH}/sign-out",
        class_="sign-out",
    )
    return element(
        "header",
        element("a", "Skip to the content", href="#main", class_="skip"),
        brand,
        element("span", frame.who, class_="who"),
        sign_out if frame.is_signed_in else None,
        class_="top",
    )


def make_sign_in_page(fault: str | None = None) -> bytes:
    """Return the page that asks for a token."""
    form = element(
        "form",
        element("h1", "Sign in"),
        element(
            "p", "The dashboard shows what belongs to a token. For a gateway, enter the one that your MCP client sends."
        ),
        None if fault is None else element("p", fault, class_="fault", role="alert"),
        element(
            "label",
            element("span", "Token"),
            element("input", type="password", name="token", required=True, autofocus=True, autocomplete="off"),
        ),
        element("button", "Sign in"),
        method="post",
        action=f"{PATH}/sign-in",
        class_="panel sign-in",
    )
    return wrap_page("Sign in · forebay", None, form)


def make_message_page(title: str, text: str, frame: Frame | None) -> bytes:
    """Return a page with an error and the way back."""
    return wrap_page(
        f"{title} · forebay",
        frame,
        element(
            "section",
            element("h1", title),
            element("p", text),
            element("p", element("a", "Back to the dashboard", href=PATH)),
            class_="panel message",
        ),
    )


def make_section(title: str, identifier: str, *content: Child, note: str | None = None, is_wide: bool = False) -> Html:
    """Return a section of the dashboard. The script replaces a section with its newer version, by its id."""
    heading = element("h2", title, id=f"{identifier}-title")
    return element(
        "section",
        join(heading, None if note is None else element("p", note, class_="note")),
        *content,
        id=identifier,
        aria_labelledby=f"{identifier}-title",
        class_="panel wide" if is_wide else "panel",
    )
