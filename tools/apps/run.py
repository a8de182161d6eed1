"""Show the viewer in a host made of the protocol's own packages, in Chromium, and use it as a person would.

    python -m apps.run --packages target/apps

The page of the host is a client of `forebay serve` over HTTP. Prints a line for each check, and exits with 0 if all
hold. With `--screenshots FOLDER` it saves what the host shows.
"""

import argparse
import functools
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import ConsoleMessage, FrameLocator, Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60

CHROMIUM_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
]

STORED, READ = "network", "output_fetch"
"""The tools whose results are shown: one whose results are all stored, and the one that reads them."""


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Print nothing."""


def bundle(packages: Path, site: Path) -> None:
    """Write the pages of the host, with the packages in its script."""
    for name in ("host.html", "sandbox.html", "sandbox.js"):
        shutil.copy(Path(__file__).with_name(name), site)
    # The bundler looks for packages beside the script.
    script = shutil.copy(Path(__file__).with_name("host.js"), packages)
    esbuild = packages / "node_modules" / ".bin" / "esbuild"
    options = ["--bundle", "--format=esm", "--log-level=error", f"--outfile={site / 'host.js'}"]
    subprocess.run([esbuild, script, *options], check=True)


@contextmanager
def serve_pages(folder: Path) -> Iterator[str]:
    """Serve a folder on a port of its own, and yield the origin."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_QuietHandler, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def serve_gateway(folder: Path, origin: str) -> Iterator[str]:
    """Run `forebay serve` for pages of an origin, and yield its URL."""
    config = folder / "forebay.toml"
    config.write_text(
        f'store = "{(folder / "store").as_uri()}"\nallowed_origins = ["{origin}"]\ntools = {{ {STORED} = "handle" }}\n'
        f'[upstreams.browser]\ncommand = "{sys.executable}"\nargs = ["{ROOT / "examples" / "server.py"}", "--plain"]\n',
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "forebay", "serve", "--config", str(config), "--http", "127.0.0.1:0"]
    with subprocess.Popen([*command, "--log-level", "info"], stderr=subprocess.PIPE, text=True) as gateway:
        timer = threading.Timer(START_SECONDS, gateway.kill)
        timer.start()
        try:
            assert gateway.stderr is not None  # noqa: S101 - it is a pipe
            log = ""
            for line in gateway.stderr:
                log += line
                if found := re.search(r"listening on (http://\S+/mcp)", line):
                    break
            else:
                raise SystemExit(f"the gateway did not start:\n{log}")
            timer.cancel()
            # Read on, so that the gateway never waits for its log.
            reader = threading.Thread(target=gateway.stderr.read)
            reader.start()
            yield found[1]
            gateway.terminate()
            reader.join()
        finally:
            timer.cancel()
            gateway.kill()


class Host:
    """The page of the host."""

    def __init__(self, page: Page, screenshots: Path | None) -> None:
        self.page, self._screenshots = page, screenshots
        self.messages: list[str] = []
        page.on("console", self._record)
        page.on("pageerror", lambda error: self.messages.append(str(error)))

    def _record(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.messages.append(message.text)

    @property
    def app(self) -> FrameLocator:
        return self.page.frame_locator("#sandbox").frame_locator("#view")

    def connect(self, gateway: str, sandbox: str, *, shows_apps: bool) -> dict[str, str | None]:
        """Connect to the server, and return the URI of each tool's app."""
        script = "([gateway, sandbox, showsApps]) => host.connect(gateway, sandbox, {showsApps})"
        return dict(self.page.evaluate(script, [gateway, f"{sandbox}/sandbox.html", shows_apps]))

    def run(self, tool: str, arguments: dict[str, Any], **context: Any) -> Any:
        """Call a tool and show its app."""
        return self.page.evaluate("(options) => host.run(...options)", [tool, arguments, context])

    def check(self, name: str, holds: object = True) -> None:
        """Print that a check holds; end the run if it does not."""
        if self._screenshots is not None:
            self.page.screenshot(path=self._screenshots / f"{name.replace(' ', '-')}.png", full_page=True)
        if not holds:
            raise SystemExit(f"FAILED  {name}")
        print(f"ok  {name}")


def use(host: Host, gateway: str, sandbox: str) -> None:
    """Use the viewer as a person would."""
    plain = host.connect(gateway, sandbox, shows_apps=False)
    host.check("a client that does not declare apps gets none", set(plain.values()) == {None})
    uris = host.connect(gateway, sandbox, shows_apps=True)
    shown = {tool for tool, uri in uris.items() if uri is not None}
    host.check("the tools have an app", shown == {STORED, READ} and uris[READ] == "ui://forebay/output_fetch")

    modes = {"displayMode": "inline", "availableDisplayModes": ["inline", "fullscreen"]}
    ran = host.run(STORED, {"count": 500}, theme="light", **modes)
    rows = host.app.locator("tr.fb-row")
    expect(rows.first).to_be_visible()
    host.check(
        "the app starts",
        ran["app"]["name"] == "forebay" and "fullscreen" in ran["capabilities"]["availableDisplayModes"],
    )
    expect(host.app.locator("#summary")).to_contain_text("500 items")
    host.check("a stored result is shown")
    host.app.locator(".fb-body").evaluate("(body) => body.scrollTo(0, body.scrollHeight)")
    expect(host.app.get_by_label("Item 100", exact=True)).to_be_attached()
    host.check("the list goes on while it is scrolled")
    host.app.get_by_role("button", name="Search").first.click()
    host.app.get_by_label("Find").fill("http")
    host.app.get_by_label("Find").press("Enter")
    expect(host.app.locator(".fb-match").first).to_contain_text("http")
    host.check("a search finds text")
    host.app.get_by_role("button", name="Query").click()
    host.app.get_by_label("SQL").fill("SELECT count(*) AS pages FROM items")
    host.app.get_by_role("button", name="Run").click()
    expect(host.app.get_by_role("cell", name="500")).to_be_visible()
    host.check("a query runs")
    host.page.evaluate("(context) => host.setContext(context)", {"theme": "dark", **modes})
    expect(host.app.locator("html")).to_have_css("color-scheme", "dark")
    host.check("the page follows the theme of the host")
    host.app.get_by_role("button", name="Full screen").click()
    expect(host.app.get_by_role("button", name="Exit full screen")).to_be_visible()
    host.check("the host shows it in full screen")
    host.check("its size is told", host.page.evaluate("host.sizes.at(-1).height === 600"))

    handle = host.page.evaluate("(text) => JSON.parse(text).output_handle", ran["result"]["content"][0]["text"])
    host.run(READ, {"output_handle": handle, "offset": 300})
    expect(host.app.get_by_label("Item 300", exact=True)).to_be_visible()
    host.check("the page that a model has read is shown")
    host.check("the app ends when the host ends it", host.page.evaluate("host.tearDown()") == {})
    errors = [*host.page.evaluate("host.errors"), *host.messages]
    host.check(f"nothing was refused {errors or ''}".strip(), not errors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--packages", type=Path, required=True, help="folder of the packages from npm")
    parser.add_argument("--screenshots", type=Path, help="folder for pictures of what the host shows")
    options = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("there is no chromium on the PATH; install the system's package")
    if options.screenshots is not None:
        options.screenshots.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        site = folder / "site"
        site.mkdir()
        bundle(options.packages, site)
        # Two ports: the sandbox must have another origin than the host.
        origin, sandbox = (stack.enter_context(serve_pages(site)) for _ in range(2))
        gateway = stack.enter_context(serve_gateway(folder, origin))
        playwright = stack.enter_context(sync_playwright())
        browser = stack.enter_context(playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_OPTIONS))
        page = browser.new_page(viewport={"width": 960, "height": 800})
        page.goto(f"{origin}/host.html")
        use(Host(page, options.screenshots), gateway, sandbox)


if __name__ == "__main__":
    main()
