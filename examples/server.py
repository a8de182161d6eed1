"""An MCP server for a simulated browser, with forebay installed. The results have the sizes that real ones have.

python examples/server.py --output-mode auto          over stdio
python examples/server.py --http 9881                 streamable HTTP on http://localhost:9881/mcp
python examples/server.py --plain                     without forebay, for use behind `forebay wrap`
"""

import argparse
import base64
import contextlib
import hashlib
import sys
from typing import Annotated, Any

import pages
from forebay import ForebayError
from forebay.adapters.mcp import Forebay
from mcp.server import MCPServer
from mcp_types import BlobResourceContents, CallToolResult, EmbeddedResource, ImageContent
from pydantic import Field

HOME = "https://example.com/"

Count = Annotated[int, Field(ge=1, le=20_000)]
Pixels = Annotated[int, Field(ge=1, le=2_000)]


def make_server() -> MCPServer:
    """Return the server. None of its tools knows about forebay."""
    server = MCPServer("example-browser", version="1.0", log_level="WARNING")
    current_url = HOME

    @server.tool(structured_output=False)
    def navigate(url: str) -> dict[str, Any]:
        """Open a page."""
        nonlocal current_url
        current_url = url
        return {"url": url, "title": pages.make_page(url)["title"], "status": 200}

    @server.tool(structured_output=False)
    def read_page() -> dict[str, Any]:
        """Read the text of the open page."""
        page = pages.make_page(current_url)
        return {"url": page["url"], "title": page["title"], "text": page["text"]}

    @server.tool(structured_output=False)
    def crawl(url: str, max_pages: Count = 30) -> dict[str, Any]:
        """Crawl a site and return its pages with their text."""
        return pages.crawl(url, max_pages)

    @server.tool(structured_output=False)
    def network(count: Count = 500) -> dict[str, Any]:
        """List the network requests of the open page."""
        return pages.record_requests(current_url, count)

    @server.tool(structured_output=True)
    def extract_data(count: Count = 1000) -> pages.Extracted:
        """Extract the records of the open page."""
        return pages.extract_records(current_url, count)

    @server.tool()
    def evidence_bundle() -> CallToolResult:
        """Return the open page with its network requests and trace, as gzip."""
        packed = base64.b64encode(pages.bundle(current_url)).decode()
        resource = BlobResourceContents(uri="evidence://bundle", mime_type="application/gzip", blob=packed)
        return CallToolResult(content=[EmbeddedResource(type="resource", resource=resource)])

    @server.tool()
    def screenshot(width: Pixels = 320, height: Pixels = 200) -> CallToolResult:
        """Take a screenshot of the open page."""
        picture = base64.b64encode(pages.render_png(current_url, width, height)).decode()
        return CallToolResult(content=[ImageContent(type="image", data=picture, mime_type="image/png")])

    @server.tool(structured_output=False)
    def trace(events: Count = 1000) -> str:
        """Return the browser's trace, one event per line."""
        return pages.record_trace(current_url, events)

    @server.tool(structured_output=False)
    def bug_scan(count: Count = 200) -> dict[str, Any]:
        """Scan the open page for bugs, most severe first."""
        return pages.scan_for_bugs(current_url, count)

    @server.tool(structured_output=False)
    def attach(name: str, text: str) -> dict[str, Any]:
        """Attach a text to the open page."""
        data = text.encode()
        return {"url": current_url, "name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    return server


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="An MCP server for a simulated browser, with forebay installed.")
    parser.add_argument("--http", type=int, metavar="PORT", help="serve streamable HTTP on loopback instead of stdio")
    parser.add_argument("--plain", action="store_true", help="do not install forebay")
    parser.add_argument("--output-mode", choices=["inline", "handle", "auto"], default="inline")
    parser.add_argument("--output-handle-ttl-hours", type=float, default=24, metavar="HOURS")
    parser.add_argument("--output-handle-sweep-interval-seconds", type=float, default=300, metavar="SECONDS")
    parser.add_argument("--prefix", default="oc_", help="prefix of forebay's tools (default: %(default)s)")
    parser.add_argument("--store", help="URL of the store, file:///path (default: FOREBAY_STORE, or in your home)")
    return parser.parse_args()


def make_forebay(options: argparse.Namespace) -> Forebay:
    return Forebay(
        options.store,
        output_mode=options.output_mode,
        per_call=True,
        prefix=options.prefix,
        journal=True,
        # Short handles can be guessed by anyone who can reach the server, but it listens on loopback only.
        handle_length=12,
        ttl=options.output_handle_ttl_hours * 3600,
        sweep_interval=options.output_handle_sweep_interval_seconds,
    )


def main() -> None:
    options = parse_arguments()
    if options.plain:
        run(make_server(), options.http)
        return
    try:
        forebay = make_forebay(options)
    except ForebayError as error:
        sys.exit(f"server.py: {error}")
    with contextlib.closing(forebay):
        run(forebay.install(make_server()), options.http)


def run(server: MCPServer, port: int | None) -> None:
    if port is None:
        server.run()
    else:
        # Without sessions a single request can call a tool, for example with `curl`.
        server.run("streamable-http", port=port, stateless_http=True, json_response=True)


if __name__ == "__main__":
    main()
