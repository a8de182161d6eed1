"""Arrays of NumPy in bodies and parameters."""

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
from forebay.operations import CallError, OperationRegistry, from_openapi
from http_api import API, document, http_api, single_operation


@pytest.fixture
def api() -> Iterator[API]:
    with http_api() as server:
        yield server


def call(api: API, operation: dict[str, Any], arguments: dict[str, Any]) -> Any:
    async def run() -> Any:
        paths = single_operation("/x", "post", **operation)
        async with await from_openapi(document(paths, api.url), namespace="api") as operations:
            return await operations.register_into(OperationRegistry()).execute("api.op", arguments)

    return asyncio.run(run())


def test_an_array_is_sent_as_a_list(api: API) -> None:
    call(api, {"requestBody": {"content": {"application/json": {}}}}, {"body": {"d": numpy.arange(2)}})
    assert api.last.body == b'{"d":[0,1]}'


@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_nan_in_an_array_is_not_sent_as_null(api: API, kind: str) -> None:
    value = {"a": numpy.array([float("nan")])}
    in_body: Any = {"requestBody": {"content": {kind: {}}}}, {"body": {"color": value}}
    in_content: Any = {"parameters": [{"name": "color", "in": "query", "content": {kind: {}}}]}, {"color": value}
    in_style: Any = {"parameters": [{"name": "color", "in": "query"}]}, {"color": value}
    for operation, arguments in (in_body, in_content, in_style):
        with pytest.raises(CallError) as caught:
            call(api, operation, arguments)
        assert caught.value.code == "VALIDATION_ERROR"
    assert api.requests == []
