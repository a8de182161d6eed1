"""A browser's MCP server of some sixty tools, each of which says what it is for; forebay shows those that are wanted.

python examples/browser_server.py --tools-only core --hidden-tools 'network*,geolocation'
python examples/browser_server.py --plain                  without forebay, to put a gateway before it
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
    """A server like any other, but that its tools say in their `_meta` what they are for."""
    server = MCPServer("example-tabs", version="1.0", log_level="WARNING")
    browser = Browser()
    for name, method in inspect.getmembers(browser, inspect.ismethod):
        if not name.startswith("_") and name != "record":
            meta = {META_KEY: CAPABILITY_OF.get(name, CORE)}
            server.add_tool(_recorded(browser, name, method), name=name, meta=meta, structured_output=False)
    return server


def _recorded(browser: Browser, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
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
    def names(text: str) -> list[str]:
        return [name.strip() for name in text.split(",") if name.strip()]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plain", action="store_true", help="without forebay")
    parser.add_argument("--store", metavar="URL", help="where large results and the journal are")
    parser.add_argument("--journal", action="store_true", help="add the journal tool")
    parser.add_argument("--tools-only", metavar="NAMES", type=names, help="capabilities that are there")
    parser.add_argument("--disable-tools", metavar="NAMES", type=names, default=[], help="capabilities that are not")
    parser.add_argument("--hidden-tools", metavar="NAMES", type=names, default=[], help="what expand_tools shows")
    asked = parser.parse_args()
    server = make_server()
    if not asked.plain:
        Forebay(
            asked.store,
            journal=asked.journal,
            tools_only=asked.tools_only,
            disable_tools=asked.disable_tools,
            hidden_tools=asked.hidden_tools,
        ).install(server)
    server.run()


if __name__ == "__main__":
    main()
