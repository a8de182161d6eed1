"""The OPTIMADE reference server with its sample data, over HTTP; prints its port."""

from listening import serve_http
from optimade.server.main import app  # type: ignore[import-untyped]

if __name__ == "__main__":
    serve_http(app)
