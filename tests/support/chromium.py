"""Chromium for tests, driven by Playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import Browser, Frame, Page, sync_playwright

__all__ = ["audit", "open_browser"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")

_OPTIONS = [
    # Containers do not allow what its sandbox needs.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # The shared memory of containers is small.
    "--disable-dev-shm-usage",
]


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Run the Chromium of this system. Playwright's own downloads are not needed."""
    path = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.fail("this test runs in a browser: install Chromium (Debian: apt install chromium)")
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=path, args=_OPTIONS) as browser:
        yield browser


def audit(page: Page | Frame) -> list[str]:
    """Return what axe finds wrong with the accessibility of a page, or of a frame in it."""
    # As a call of the debugger, to which the content security policy of the page does not apply.
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    result: dict[str, Any] = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{violation['id']}: {violation['help']}: {[node['html'][:200] for node in violation['nodes']]}"
        for violation in result["violations"]
    ]
