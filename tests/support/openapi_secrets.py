"""Calls of an HTTP API that wants to know who calls."""

import asyncio
from typing import Any

from forebay.operations import OperationRegistry, from_openapi
from http_api import API, document, one

SECRET = "s3cr/t+ü=5"  # noqa: S105
PLAIN = "plain-s3cret"

SCHEMES = {
    "in_header": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "in_query": {"type": "apiKey", "in": "query", "name": "key"},
    "in_cookie": {"type": "apiKey", "in": "cookie", "name": "session"},
    "basic": {"type": "http", "scheme": "basic"},
    "bearer": {"type": "http", "scheme": "bearer"},
    "oauth": {"type": "oauth2", "flows": {}},
    "openid": {"type": "openIdConnect", "openIdConnectUrl": "https://example.com"},
}


def described(api: API, requirements: Any, **more: Any) -> dict[str, Any]:
    return document(one("/x", security=requirements), api.url, components={"securitySchemes": SCHEMES}, **more)


def call(api: API, requirements: Any, given: dict[str, Any], client: Any = None, **options: Any) -> Any:
    async def run() -> Any:
        async with await from_openapi(described(api, requirements), client, security=given, **options) as operations:
            return await operations.register_into(OperationRegistry()).execute("api.op", {})

    return asyncio.run(run())
