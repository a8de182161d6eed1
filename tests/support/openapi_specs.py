"""Operations and schemas read from documents."""

import asyncio
from typing import Any

from forebay.operations import OperationSpec, from_openapi
from forebay.operations.openapi import HTTPOperations
from http_api import document, single_operation

BASE_URL = "http://127.0.0.1:1"

PETS = document({"/pets/{id}": {"get": {"operationId": "getPet", "summary": "One pet"}}}, BASE_URL, version="3.0.3")


def content(schema: Any, content_type: str = "application/json") -> dict[str, Any]:
    """Return a request body or response with this schema."""
    return {"content": {content_type: {"schema": schema}}}


def read_operations(source: Any, **options: Any) -> HTTPOperations:
    async def run() -> HTTPOperations:
        async with await from_openapi(source, **options) as operations:
            return operations

    return asyncio.run(run())


def read_specs(source: Any, **options: Any) -> list[OperationSpec]:
    return [operation.spec for operation in read_operations(source, **options)]


def read_spec(version: str = "3.1.0", components: Any = None, **operation: Any) -> OperationSpec:
    more = {"components": {"schemas": components}} if components else {}
    [spec] = read_specs(document(single_operation("/x", "post", **operation), BASE_URL, version=version, **more))
    return spec


def read_output_schema(schema: Any, version: str = "3.1.0", **components: Any) -> Any:
    return read_spec(version, components, responses={"200": content(schema)}).output_schema


def read_input_schema(schema: Any, version: str = "3.1.0", **components: Any) -> Any:
    return read_spec(version, components, requestBody=content(schema)).input_schema
