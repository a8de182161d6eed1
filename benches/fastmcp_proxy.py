"""fastmcp's proxy on stdio in front of a server: `python fastmcp_proxy.py COMMAND…`."""

import sys

from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy

create_proxy(StdioTransport(sys.argv[1], sys.argv[2:]), name="proxy").run(show_banner=False)
