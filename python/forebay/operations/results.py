"""The result pipeline: a handler's result is wrapped in an envelope, cast to the output schema, and validated."""

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

import orjson

from forebay.envelope import (
    Body,
    HTTPResponseMeta,
    MCPResponseMeta,
    ResponseEnvelope,
    is_response_envelope,
    local_envelope,
)
from forebay.envelope.body import has_only_json_types, is_json_type, parse
from forebay.errors import InvalidArgument
from forebay.operations.errors import CallError
from forebay.operations.spec import OperationSpec
from forebay.operations.validation import has_rules
from forebay.store.payload import encode
from forebay.store.threads import run_in_pool

__all__ = ["is_blocks_only", "is_large", "to_envelope", "to_envelope_async"]

_log = logging.getLogger("forebay")

_LARGE_BYTES, _LARGE_VALUES = 1 << 20, 10_000
"""Data with more bytes or values takes more than a few milliseconds to cast."""


async def to_envelope_async(result: Any, spec: OperationSpec) -> ResponseEnvelope[Any]:
    """Return the same as `to_envelope`; large data is cast in a thread, so that it does not block the event loop.

    While the caster is busy, small data goes to a thread too: the event loop must not wait for the caster's lock.
    """
    data = result.data if isinstance(result, ResponseEnvelope) else result
    if has_rules(spec.output_schema) and (is_large(data) or spec.caster.is_busy):
        return await run_in_pool(lambda: to_envelope(result, spec))
    return to_envelope(result, spec)


def is_large(data: Any) -> bool:
    """Return whether data has too many bytes or values to cast on the event loop. Stops counting at the limit."""
    if isinstance(data, Body):
        return len(data) > _LARGE_BYTES
    stack, count = [data], 0
    while stack and count <= _LARGE_VALUES:
        value = stack.pop()
        if isinstance(value, str | bytes):
            count += len(value) * _LARGE_VALUES // _LARGE_BYTES
        elif isinstance(value, Mapping | list | tuple):
            count += len(value)
            if count <= _LARGE_VALUES:
                stack += value.values() if isinstance(value, Mapping) else value
    return count > _LARGE_VALUES


def to_envelope(result: Any, spec: OperationSpec) -> ResponseEnvelope[Any]:
    """Return a handler's result as an envelope, with its data cast to the output schema by `Caster.normalize`.

    Data that still does not fit the schema is returned anyway, and the problems are logged.
    """
    envelope = _wrap(result, spec)
    if not has_rules(spec.output_schema) or not _is_covered_by_schema(envelope):
        return envelope
    envelope = dataclasses.replace(envelope, data=spec.caster.normalize(_to_json_types(envelope.data)))
    for problem in spec.output.problems(envelope.data):
        _log.warning(
            "forebay: %s answered what its schema does not say, at %r: %s",
            spec.id,
            problem["path"],
            problem["message"],
        )
    return envelope


def _wrap(result: Any, spec: OperationSpec) -> ResponseEnvelope[Any]:
    if not is_response_envelope(result):
        return local_envelope(result, spec.id)
    if isinstance(result, ResponseEnvelope):
        return result
    try:
        return ResponseEnvelope.from_dict(result)
    except InvalidArgument as error:
        raise CallError("EXECUTION_ERROR", f"{spec.id} returned an envelope that is none: {error}") from None


def _is_covered_by_schema(envelope: ResponseEnvelope[Any]) -> bool:
    """Return whether the output schema applies to this data.

    A schema does not apply to tool errors, to content blocks without structured content, and to bodies that are not
    JSON: an HTML page or an empty body must not become an object of defaults.
    """
    meta, data = envelope.meta, envelope.data
    if isinstance(meta, MCPResponseMeta) and (meta.is_error or is_blocks_only(data, meta)):
        return False
    if isinstance(meta, HTTPResponseMeta) and (data is None or not is_json_type(meta.content_type)):
        return False
    return not isinstance(data, Body) or _is_valid_json(data)


def is_blocks_only(data: Any, meta: MCPResponseMeta) -> bool:
    """Return whether a tool's data is its content blocks, because the tool returned no structured content."""
    # Compared by value, because an envelope that was read from JSON holds two copies of the blocks.
    return meta.structured_content is None and bool(data == meta.content)


def _is_valid_json(body: Body) -> bool:
    """Return whether a body can be parsed. The body caches the parsed value."""
    try:
        body.json()
    except ValueError as error:
        _log.warning("forebay: a body of %s bytes cannot be read as JSON: %.200s", len(body), error)
        return False
    return True


def _to_json_types(data: Any) -> Any:
    """Convert data to JSON types: parse a body, and dump models and other objects at any depth."""
    if isinstance(data, Body):
        return data.json()
    if has_only_json_types(data):
        return data
    failures: list[Exception] = []

    def dump_by_alias(value: object) -> object:
        """Dump a model by its aliases, because its schema uses them. Embed a JSON body."""
        if isinstance(value, Body) and value.is_json:
            return orjson.Fragment(value.content)
        model_dump = getattr(value, "model_dump", None)
        if model_dump is None or isinstance(value, type):
            return value
        try:
            return model_dump(mode="json", by_alias=True)
        except Exception as error:
            failures.append(error)
            raise

    try:
        return parse(encode(data, dump_by_alias))
    except (TypeError, ValueError, RecursionError):
        if failures:
            raise failures[0] from None
        # The data holds bytes, or objects without a JSON form: validation reports them.
        return data
