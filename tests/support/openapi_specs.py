"""What documents become, for tests of how they are read."""

import asyncio
from typing import Any

from forebay.operations import OperationSpec, from_openapi
from forebay.operations.openapi import HTTPOperations
from http_api import document, one

HERE = "http://127.0.0.1:1"

PETS = document({"/pets/{id}": {"get": {"operationId": "getPet", "summary": "One pet"}}}, HERE, version="3.0.3")


def content(schema: Any, content_type: str = "application/json") -> dict[str, Any]:
    return {"content": {content_type: {"schema": schema}}}


def read(source: Any, **options: Any) -> HTTPOperations:
    async def run() -> HTTPOperations:
        async with await from_openapi(source, **options) as operations:
            return operations

    return asyncio.run(run())


def specs(source: Any, **options: Any) -> list[OperationSpec]:
    return [operation.spec for operation in read(source, **options)]


def spec_of(version: str = "3.1.0", components: Any = None, **operation: Any) -> OperationSpec:
    more = {"components": {"schemas": components}} if components else {}
    [found] = specs(document(one("/x", "post", **operation), HERE, version=version, **more))
    return found


def output_of(schema: Any, version: str = "3.1.0", **components: Any) -> Any:
    return spec_of(version, components, responses={"200": content(schema)}).output_schema


def input_of(schema: Any, version: str = "3.1.0", **components: Any) -> Any:
    return spec_of(version, components, requestBody=content(schema)).input_schema
