"""fastmcp's proxy over HTTP in front of the server at a URL: `python fastmcp_http_proxy.py PORT URL`."""

import sys

from fastmcp.server import create_proxy

create_proxy(sys.argv[2], name="proxy").run(
    transport="http", port=int(sys.argv[1]), show_banner=False, uvicorn_config={"access_log": False}, log_level="error"
)
