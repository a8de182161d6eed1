"""An MCP server with about sixty browser tools, each with a capability; forebay filters them.

python examples/browser_server.py --tools-only core --hidden-tools 'network*,geolocation'
python examples/browser_server.py --plain                  without forebay, for use behind `forebay wrap`
"""

import argparse
import functools
import inspect
from collections.abc import Callable
from typing import Any

from browser import CAPABILITIES, Browser, BrowserError
from forebay.adapters.mcp import Forebay
from forebay.outputs.capabilities import CORE, META_KEY
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

CAPABILITY_OF = {tool: capability for capability, tools in CAPABILITIES.items() for tool in tools}


def make_server() -> MCPServer:
    """Return the server. Each tool names its capability in its `_meta`."""
    server = MCPServer("example-tabs", version="1.0", log_level="WARNING")
    browser = Browser()
    for name, method in inspect.getmembers(browser, inspect.ismethod):
        if not name.startswith("_") and name != "record":
            meta = {META_KEY: CAPABILITY_OF.get(name, CORE)}
            server.add_tool(_make_tool(browser, name, method), name=name, meta=meta, structured_output=False)
    return server


def _make_tool(browser: Browser, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def run(**arguments: Any) -> Any:
        try:
            answer = method(**arguments)
        except BrowserError as error:
            raise ToolError(str(error)) from None
        browser.record(name, arguments)
        return answer

    return run


def main() -> None:
    def split_names(text: str) -> list[str]:
        return [name.strip() for name in text.split(",") if name.strip()]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plain", action="store_true", help="do not install forebay")
    parser.add_argument("--store", metavar="URL", help="URL of the store")
    parser.add_argument("--journal", action="store_true", help="add the journal tool")
    parser.add_argument("--tools-only", metavar="NAMES", type=split_names, help="capabilities to serve")
    parser.add_argument(
        "--disable-tools", metavar="NAMES", type=split_names, default=[], help="capabilities not to serve"
    )
    parser.add_argument(
        "--hidden-tools", metavar="NAMES", type=split_names, default=[], help="tools to list only after expand_tools"
    )
    options = parser.parse_args()
    server = make_server()
    if not options.plain:
        Forebay(
            options.store,
            output_mode="auto",
            journal=options.journal,
            tools_only=options.tools_only,
            disable_tools=options.disable_tools,
            hidden_tools=options.hidden_tools,
        ).install(server)
    server.run()


if __name__ == "__main__":
    main()
