"""Operations as MCP tools: their definitions for `tools/list`, and their calls. Needs no SDK."""

import contextlib
import dataclasses
import difflib
import functools
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import orjson

from forebay.envelope import MCPResponseMeta, ResponseEnvelope
from forebay.operations.deadlines import deadline_after
from forebay.operations.errors import CallError
from forebay.operations.registry import OperationRegistry
from forebay.operations.responses import (
    error_to_call_tool_result,
    needs_result_wrapper,
    to_body_result,
    to_call_tool_result,
    wrap_schema,
)
from forebay.operations.results import is_large
from forebay.operations.spec import CallContext, Identity, OperationSpec
from forebay.operations.tool_names import MAX_NAME_CHARS
from forebay.operations.validation import Schema, is_openapi_3_0, modernize
from forebay.outputs.modes import Mode
from forebay.outputs.pipeline import Pipeline
from forebay.outputs.result import UNSTRUCTURED, BodyResult, Result
from forebay.outputs.schemas import allow_alternative
from forebay.outputs.tool_call import ToolCall
from forebay.store.threads import run_in_pool

__all__ = ["call_operation", "define_tool", "describe_unknown_tool", "finish_result"]

_log = logging.getLogger("forebay")

_INPUT_KEY = "input"
"""Argument that holds an input which is not an object."""

_MAX_DEPTH = 180
"""Maximum nesting depth of structured content. The SDK writes messages up to 254 levels deep, and reads up to 200."""

_UNSTRUCTURED_SCHEMA = {
    "type": "object",
    "description": "The answer is in the content, and is not structured.",
    "properties": {"unstructured": {"const": True}},
    "required": ["unstructured"],
}
"""Alternative in every listed output schema, for results that are not structured, such as an HTML page or plain text.

Without this alternative, clients that validate results would reject such a result, content included.
"""


def define_tool(name: str, spec: OperationSpec, *, is_legacy: bool = False) -> dict[str, Any]:
    """Return the definition of an operation's tool for `tools/list`, with wire keys.

    Set `is_legacy` for protocol versions up to 2025-11-25, in which output schemas are of type `object`.
    """
    tool: dict[str, Any] = {"name": name}
    if spec.description:
        tool["description"] = _replace_surrogates(spec.description)
    tool["inputSchema"] = _replace_surrogates(_make_input_schema(spec.input_schema))
    # An invalid output schema is not listed, because clients would reject all results.
    if spec.output.has_rules:
        tool["outputSchema"] = _replace_surrogates(_make_output_schema(spec.output_schema, is_legacy))
    return {**tool, "annotations": {"readOnlyHint": spec.type == "query"}}


def describe_unknown_tool(name: str, visible_names: Iterable[str], unavailable: Sequence[str] = ()) -> str:
    """Return the error message for a call of a tool that is not listed, with similar names that are.

    It also names the upstreams that are `unavailable`, because one of them may have the tool.
    """
    near = difflib.get_close_matches(name[:MAX_NAME_CHARS], visible_names, 3, 0.4)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    if unavailable:
        names = f"{', '.join(unavailable):.512}"
        subject = f"upstream {names} is" if len(unavailable) == 1 else f"upstreams {names} are"
        hint += f"the {subject} not available now, and tools/list has all others"
    else:
        hint += "tools/list has all"
    return f"Unknown tool: {name:.128}; {hint}"


async def call_operation(
    registry: OperationRegistry,
    spec: OperationSpec,
    arguments: Mapping[str, Any],
    *,
    tool: str | None = None,
    identity: Identity | None = None,
    request_id: str | int | None = None,
    timeout: float | None = None,
    is_legacy: bool = False,
) -> Result | BodyResult:
    """Run an operation with the arguments of a `tools/call`, and return the tool result, with wire keys.

    A failed call is an error result, whose message names the operation by `tool`, the name that was called. A caller
    without access gets the error of an operation that does not exist. A large body that nothing has to decode is a
    `BodyResult`; `finish_result` makes it a result for the client.
    """
    try:
        if not spec.access_control.allows(identity):
            raise CallError("OPERATION_NOT_FOUND", f"there is no operation {spec.id!r:.128}")
        input_data = arguments.get(_INPUT_KEY) if _takes_input_argument(spec.input_schema) else dict(arguments)
        context = CallContext(
            None if request_id is None else str(request_id), identity=identity, deadline=deadline_after(timeout)
        )
        envelope = await registry.execute(spec.id, input_data, context)
        to_result = functools.partial(_to_result, envelope, spec, is_legacy)
        try:
            return await run_in_pool(to_result) if is_large(envelope.data) else to_result()
        except (TypeError, ValueError, RecursionError) as error:
            _log.debug("forebay: %s cannot be served", spec.id, exc_info=True)
            raise CallError("EXECUTION_ERROR", f"{spec.id} answered what cannot be written as JSON: {error}") from error
    except CallError as error:
        return error_to_call_tool_result(error if tool is None else _rename_operation(error, spec.id, tool))


def _rename_operation(error: CallError, operation_id: str, tool: str) -> CallError:
    """Return an error whose message begins with the name of the tool, because clients do not know the operation id."""
    message = str(error)
    if not message.startswith(f"{operation_id} "):
        return error
    return CallError(error.code, tool + message.removeprefix(operation_id), error.details)


async def finish_result(
    result: Result | BodyResult, pipeline: Pipeline, mode: Mode, call: ToolCall
) -> tuple[Result, bool]:
    """Return the result that the client gets, and whether it is the whole result, not a handle.

    A large result is stored in a thread.
    """
    if isinstance(result, BodyResult):
        return await run_in_pool(functools.partial(_finish, result, pipeline, mode, call))
    if pipeline.is_inline(result, mode, call):
        return result, True
    return await run_in_pool(functools.partial(pipeline.store_result, result, call)), False


def _finish(result: BodyResult, pipeline: Pipeline, mode: Mode, call: ToolCall) -> tuple[Result, bool]:
    if pipeline.is_inline(result, mode, call):
        return result.to_result(), True
    return pipeline.store_result(result, call), False


def _to_result(envelope: ResponseEnvelope[Any], spec: OperationSpec, is_legacy: bool) -> Result | BodyResult:
    body_result = to_body_result(envelope, spec)
    if body_result is not None:
        template = _match_listed_schema(body_result.template, spec, is_legacy)
        return dataclasses.replace(body_result, template=template)
    result = _match_listed_schema(to_call_tool_result(envelope, spec=spec, is_legacy=is_legacy), spec, is_legacy)
    if isinstance(envelope.meta, MCPResponseMeta):
        _check_json(result)
    return result


def _check_json(result: dict[str, Any]) -> None:
    """Raise if a result is not JSON. A handler may have built it from anything."""
    try:
        orjson.dumps(result)
    except TypeError:
        # The reason may be an integer of more than 64 bits, which is JSON.
        json.dumps(result, ensure_ascii=False).encode()


def _match_listed_schema(result: dict[str, Any], spec: OperationSpec, is_legacy: bool) -> dict[str, Any]:
    """Return a result that fits the listed output schema, marked as unstructured if its data does not fit."""
    if _is_too_deep(result.get("structuredContent")):
        result = {key: value for key, value in result.items() if key != "structuredContent"}
    if result["isError"] or not spec.output.has_rules:
        return result
    structured = data = result.get("structuredContent")
    if is_legacy and needs_result_wrapper(spec.output_schema) and isinstance(structured, Mapping):
        data = structured["result"]
    # In a message, `null` means that there is no structured content, so `None` does not fit any schema.
    fits = structured is not None and not spec.output.problems(data)
    return result if fits else {**result, "structuredContent": UNSTRUCTURED}


def _is_too_deep(value: Any) -> bool:
    """Return whether a value is nested too deeply to be sent or read."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        containers = [item for item in level if isinstance(item, Mapping | list | tuple)]
        if not containers:
            return False
        level = [child for item in containers for child in (item.values() if isinstance(item, Mapping) else item)]
    return True


def _replace_surrogates(value: Any) -> Any:
    """Replace lone surrogates, which occur in truncated text and cannot be written as UTF-8."""
    try:
        orjson.dumps(value)
    except TypeError:
        with contextlib.suppress(TypeError, ValueError, RecursionError):
            text = json.dumps(value, ensure_ascii=False)
            return json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    return value


def _make_input_schema(schema: Schema | None) -> dict[str, Any]:
    """Return the input schema to list. It always describes an object."""
    original = schema if isinstance(schema, Mapping) else {}
    if not _takes_input_argument(schema):
        return {**original, "type": "object"}
    properties = {_INPUT_KEY: {"$id": "forebay:input", **original}}
    return {"type": "object", "properties": properties, "required": [_INPUT_KEY]}


def _takes_input_argument(schema: Schema | None) -> bool:
    """Return whether the input is a list or a scalar, which has to be passed as the argument `input`."""
    if not isinstance(schema, Mapping) or "type" not in schema:
        return False
    return "object" not in (schema["type"] if isinstance(schema["type"], list) else [schema["type"]])


def _make_output_schema(schema: Schema | None, is_legacy: bool) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        schema = {"not": {}}
    # Clients do not understand the OpenAPI 3.0 dialect.
    converted: Mapping[str, Any] = cast("Mapping[str, Any]", modernize(schema)) if is_openapi_3_0(schema) else schema
    if not (is_legacy and needs_result_wrapper(schema)):
        return allow_alternative(converted, _UNSTRUCTURED_SCHEMA)
    return {"type": "object", "anyOf": [wrap_schema(converted), _UNSTRUCTURED_SCHEMA]}
