"""Calls of the one operation of an HTTP API."""

import asyncio
from typing import Any

import pytest
from forebay.operations import CallContext, CallError, OperationRegistry, from_openapi
from forebay.operations.envelope import ResponseEnvelope
from http_api import API, document, one


def call(
    api: API,
    operation: dict[str, Any] | None = None,
    *,
    method: str = "get",
    context: CallContext | None = None,
    **options: Any,
) -> ResponseEnvelope[Any]:
    async def run() -> ResponseEnvelope[Any]:
        paths = one("/x", method, **(operation or {}))
        async with await from_openapi(document(paths, api.url), namespace="api", **options) as operations:
            return await operations.register_into(OperationRegistry()).execute("api.op", {}, context)

    return asyncio.run(run())


def failed(api: API, **options: Any) -> CallError:
    with pytest.raises(CallError) as caught:
        call(api, **options)
    return caught.value
