"""Detect, wrap, normalize, validate: the one way from what a handler returned to an envelope."""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import orjson

from forebay.envelope import (
    Body,
    HTTPResponseMeta,
    MCPResponseMeta,
    ResponseEnvelope,
    is_response_envelope,
    local_envelope,
)
from forebay.envelope.body import is_only_json, parsed, says_json
from forebay.errors import InvalidArgument
from forebay.operations.errors import CallError
from forebay.operations.spec import OperationSpec
from forebay.operations.validation import is_meaningful
from forebay.payload import encoded

__all__ = ["finished", "finished_aside", "in_thread", "is_large", "is_only_blocks"]

_T = TypeVar("_T")

_log = logging.getLogger("forebay")

_MANY_BYTES, _MANY_VALUES = 1 << 20, 10_000
"""What is made to fit a schema in more than a few milliseconds."""


async def finished_aside(result: Any, spec: OperationSpec) -> ResponseEnvelope[Any]:
    """What `finished` gives; of what is large in a thread, so that nobody else has to wait for it.

    What is small goes there, too, while something large is made to fit the same schema: it would wait for that here.
    """
    data = result.data if isinstance(result, ResponseEnvelope) else result
    if is_meaningful(spec.output_schema) and (is_large(data) or spec.caster.is_busy):
        return await in_thread(lambda: finished(result, spec))
    return finished(result, spec)


async def in_thread(function: Callable[[], _T]) -> _T:
    """What a function gives."""

    def run() -> _T:
        try:
            return function()
        except StopIteration as error:
            # Some object's own. No future of asyncio takes it: whoever waits would wait for ever.
            raise RuntimeError(f"StopIteration was raised: {error}") from error

    return await asyncio.to_thread(run)


def is_large(data: Any) -> bool:
    """Whether it takes long to look at all of it; whether that is so does not."""
    if isinstance(data, Body):
        return len(data.content) > _MANY_BYTES
    waiting, count = [data], 0
    while waiting and count <= _MANY_VALUES:
        value = waiting.pop()
        if isinstance(value, str | bytes):
            count += len(value) * _MANY_VALUES // _MANY_BYTES
        elif isinstance(value, Mapping | list | tuple):
            count += len(value)
            if count <= _MANY_VALUES:
                waiting += value.values() if isinstance(value, Mapping) else value
    return count > _MANY_VALUES


def finished(result: Any, spec: OperationSpec) -> ResponseEnvelope[Any]:
    """The envelope of what a handler returned, made to fit the output schema if nothing is lost by it.

    What does not fit is told of, and stays what it is.
    """
    envelope = _detected(result, spec)
    if not is_meaningful(spec.output_schema) or not _is_of_the_schema(envelope):
        return envelope
    envelope = dataclasses.replace(envelope, data=spec.caster.normalize(_as_json_has_it(envelope.data)))
    for problem in spec.output.problems(envelope.data):
        _log.warning(
            "forebay: %s answered what its schema does not say, at %r: %s",
            spec.id,
            problem["path"],
            problem["message"],
        )
    return envelope


def _detected(result: Any, spec: OperationSpec) -> ResponseEnvelope[Any]:
    if not is_response_envelope(result):
        return local_envelope(result, spec.id)
    if isinstance(result, ResponseEnvelope):
        return result
    try:
        return ResponseEnvelope.from_dict(result)
    except InvalidArgument as error:
        raise CallError("EXECUTION_ERROR", f"{spec.id} returned an envelope that is none: {error}") from None


def _is_of_the_schema(envelope: ResponseEnvelope[Any]) -> bool:
    """Whether the schema speaks of this data.

    It does not speak of errors, of the blocks of a tool that says nothing else, and of bodies that are not JSON: a
    page of HTML, or nothing at all, must not become an object of defaults.
    """
    meta, data = envelope.meta, envelope.data
    if isinstance(meta, MCPResponseMeta) and (meta.is_error or is_only_blocks(data, meta)):
        return False
    if isinstance(meta, HTTPResponseMeta) and (data is None or not says_json(meta.content_type)):
        return False
    return not isinstance(data, Body) or _is_parsed(data)


def is_only_blocks(data: Any, meta: MCPResponseMeta) -> bool:
    """Whether a tool's data is its blocks, because it said nothing that is structured."""
    # Equal, and not only the same: an envelope that was JSON has its blocks twice.
    return meta.structured_content is None and bool(data == meta.content)


def _is_parsed(body: Body) -> bool:
    """Parses a body, because a schema asks for it; it keeps what that gave."""
    try:
        body.json()
    except ValueError as error:
        _log.warning("forebay: a body of %s bytes cannot be read as JSON: %.200s", len(body), error)
        return False
    return True


def _as_json_has_it(data: Any) -> Any:
    """Data that a schema can speak of: a body is parsed now, because one asks for it, and only once.

    Objects become what JSON has of them, wherever they are: what a schema does not name goes out of them, too.
    """
    if isinstance(data, Body):
        return data.json()
    if is_only_json(data):
        return data
    failures: list[Exception] = []

    def by_alias(value: object) -> object:
        """A model in the words of the schema that it would have; a JSON body as what it stands for."""
        if isinstance(value, Body) and value.is_json:
            return orjson.Fragment(value.content)
        dump = getattr(value, "model_dump", None)
        if dump is None or isinstance(value, type):
            return value
        try:
            return dump(mode="json", by_alias=True)
        except Exception as error:
            failures.append(error)
            raise

    try:
        return parsed(encoded(data, by_alias))
    except (TypeError, ValueError, RecursionError):
        if failures:
            raise failures[0] from None
        # There are bytes in it, or what nobody can write: whoever validates tells of it.
        return data
