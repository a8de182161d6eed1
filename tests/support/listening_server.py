"""A server over HTTP as `forebay serve` runs it: `python listening_server.py SETTINGS`, with settings as JSON.

With `"parser": "h11"` it parses requests as without httptools. It logs its address to standard error, and its exit code
when it ends in good order.
"""

import contextlib
import json
import logging
import sys

import anyio
from forebay.adapters.mcp import Forebay
from forebay.config.options import Settings
from forebay.http import connection, server
from mcp.server import MCPServer
from sdk_hub import SdkHub


def make_server() -> MCPServer:
    mcp_server = MCPServer("tests")

    @mcp_server.tool(structured_output=False)
    def text(size: int = 3) -> str:
        return "x" * size

    @mcp_server.tool(structured_output=False)
    def echo(text: str) -> str:
        return text

    @mcp_server.tool(structured_output=False)
    def breaking() -> str:
        raise LookupError("broken")

    @mcp_server.tool(structured_output=False)
    async def slow(seconds: float) -> str:
        logging.getLogger("forebay").info("slow has begun")
        await anyio.sleep(seconds)
        return "at last"

    return mcp_server


def main() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    options = json.loads(sys.argv[1])
    options["http"] = tuple(options.get("http", ("127.0.0.1", 0)))
    compression = options.pop("compression", "zstd")
    if options.pop("parser", "") == "h11":
        server.HTTPConnection = connection.H11Connection  # type: ignore[attr-defined]
    settings = Settings(**options, sources=dict.fromkeys(options, "test"))
    with contextlib.closing(Forebay(**settings.policy_options(), compression=compression)) as forebay:
        code = server.run_http(SdkHub(forebay.install(make_server())._lowlevel_server), settings)
    sys.stderr.write(f"ended with {code}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
