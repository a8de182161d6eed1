"""fastmcp's proxy over HTTP before a server: `python fastmcp_http_proxy.py PORT URL`, or `PORT COMMAND…`."""

import sys

from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy

port, *server = sys.argv[1:]
target = server[0] if len(server) == 1 else StdioTransport(server[0], server[1:])
create_proxy(target, name="proxy").run(
    transport="http", port=int(port), show_banner=False, uvicorn_config={"access_log": False}, log_level="error"
)
