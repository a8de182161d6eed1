"""Calls of an HTTP API that requires authentication."""

import asyncio
from typing import Any

from forebay.operations import OperationRegistry, from_openapi
from http_api import API, document, single_operation

SECRET = "s3cr/t+ü=5"  # noqa: S105
"""A secret that is escaped in URLs and JSON."""

PLAIN_SECRET = "plain-s3cret"  # noqa: S105
"""A secret that is the same in URLs and JSON."""

SCHEMES = {
    "in_header": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "in_query": {"type": "apiKey", "in": "query", "name": "key"},
    "in_cookie": {"type": "apiKey", "in": "cookie", "name": "session"},
    "basic": {"type": "http", "scheme": "basic"},
    "bearer": {"type": "http", "scheme": "bearer"},
    "oauth": {"type": "oauth2", "flows": {}},
    "openid": {"type": "openIdConnect", "openIdConnectUrl": "https://example.com"},
    "certificate": {"type": "mutualTLS"},
}


def secured_document(api: API, requirements: Any, **more: Any) -> dict[str, Any]:
    """Return a document with one operation that has these security requirements."""
    return document(
        single_operation("/x", security=requirements), api.url, components={"securitySchemes": SCHEMES}, **more
    )


def call(api: API, requirements: Any, credentials: dict[str, Any], client: Any = None, **options: Any) -> Any:
    """Call an operation that has these security requirements."""

    async def run() -> Any:
        source = secured_document(api, requirements)
        async with await from_openapi(source, client, security=credentials, **options) as operations:
            return await operations.register_into(OperationRegistry()).execute("api.op", {})

    return asyncio.run(run())
