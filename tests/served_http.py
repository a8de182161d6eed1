"""`headgate serve` over HTTP, for whoever says who they are (`Bearer NAME`): `python served_http.py http CONFIG`."""

import sys

from headgate.config.load import load
from headgate.gateway.serve import Serving
from listening import serve_http
from mcp_server import AUTH, Believing

if __name__ == "__main__":
    settings = load("serve", {"config": sys.argv[2]}, {})
    serve_http(Serving(settings).server.streamable_http_app(auth=AUTH, token_verifier=Believing(), json_response=True))
