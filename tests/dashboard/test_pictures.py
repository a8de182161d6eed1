"""The pictures of the README, which `make pictures` writes: the dashboard in light and dark, and the viewer."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from busy_store import fill_store
from chromium import open_browser
from dashboard_site import run_dashboard
from playwright.sync_api import Browser, expect

pytestmark = [pytest.mark.posix, pytest.mark.slow]

MAX_BYTES = 150_000
SIZE: Any = {"width": 1200, "height": 780}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


def test_pictures_are_small(browser: Browser, tmp_path: Path) -> None:
    folder = Path(os.environ.get("PICTURES") or tmp_path)
    handle = fill_store(tmp_path / "forebay")
    with run_dashboard(tmp_path / "forebay") as url:
        base = url.partition("?")[0]
        for scheme in ("light", "dark"):
            context = browser.new_context(color_scheme=scheme, viewport=SIZE)
            page = context.new_page()
            page.goto(url)
            # The path of a temporary folder says nothing.
            page.locator(".who").evaluate("who => { who.textContent = '~/.local/share/forebay' }")
            expect(page.locator("#figures")).to_contain_text("tokens")
            page.screenshot(path=folder / f"dashboard-{scheme}.png")
            page.goto(f"{base}/{handle}")
            page.locator(".who").evaluate("who => { who.textContent = '~/.local/share/forebay' }")
            page.get_by_role("button", name="Item 2", exact=True).click()
            expect(page.locator(".fb-detail")).to_be_visible()
            page.screenshot(path=folder / f"viewer-{scheme}.png")
            context.close()
    written = {path.name: path.stat().st_size for path in folder.glob("*-light.png")}
    written |= {path.name: path.stat().st_size for path in folder.glob("*-dark.png")}
    assert written.keys() == {
        f"{name}-{scheme}.png" for name in ("dashboard", "viewer") for scheme in ("light", "dark")
    }
    assert {name: size for name, size in written.items() if size > MAX_BYTES} == {}
