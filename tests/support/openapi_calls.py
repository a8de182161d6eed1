"""Calls of the single operation of an HTTP API."""

import asyncio
from typing import Any

import pytest
from forebay.envelope import ResponseEnvelope
from forebay.operations import CallContext, CallError, OperationRegistry, from_openapi
from http_api import API, document, single_operation


def call(
    api: API,
    operation: dict[str, Any] | None = None,
    *,
    method: str = "get",
    context: CallContext | None = None,
    **options: Any,
) -> ResponseEnvelope[Any]:
    """Call the operation at `/x`."""

    async def run() -> ResponseEnvelope[Any]:
        paths = single_operation("/x", method, **(operation or {}))
        async with await from_openapi(document(paths, api.url), namespace="api", **options) as operations:
            return await operations.register_into(OperationRegistry()).execute("api.op", {}, context)

    return asyncio.run(run())


def call_error(api: API, **options: Any) -> CallError:
    """Call the operation and return the error it raises."""
    with pytest.raises(CallError) as caught:
        call(api, **options)
    return caught.value
