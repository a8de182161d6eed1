"""Operations that have more than one answer."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterator
from typing import Any

from forebay.operations.deadlines import within
from forebay.operations.envelope import ResponseEnvelope
from forebay.operations.errors import CallError
from forebay.operations.registry import OperationRegistry, checked_input, raising_call_errors, run
from forebay.operations.results import finished
from forebay.operations.spec import CallContext, OperationSpec

__all__ = ["subscribe"]


async def subscribe(
    registry: OperationRegistry,
    operation_id: str,
    input: Any = None,  # noqa: A002
    context: CallContext | None = None,
) -> AsyncGenerator[ResponseEnvelope[Any], None]:
    """The envelopes of what a subscription yields, each with the time at which it came.

    Nobody's access is checked. Raises `CallError`. Closing this, as `contextlib.aclosing` does, closes the handler's
    generator.
    """
    operation = registry.find(operation_id)
    spec = operation.spec
    if spec.type != "subscription":
        raise CallError("VALIDATION_ERROR", f"{operation_id} is a {spec.type}; use execute()")
    context = registry.bound(context)
    with raising_call_errors(spec):
        given = checked_input(spec, input)
        values = _iterator(await run(operation, given, context), spec)
    try:
        while (envelope := await _next(values, spec, context)) is not None:
            yield envelope
    finally:
        with raising_call_errors(spec):
            await _close(values)


_END = object()


def _iterator(yielded: Any, spec: OperationSpec) -> AsyncIterator[Any] | Iterator[Any]:
    if isinstance(yielded, AsyncIterable):
        return aiter(yielded)
    if isinstance(yielded, Iterator):
        return yielded
    raise CallError(
        "EXECUTION_ERROR",
        f"{spec.id} is a subscription and returned {type(yielded).__name__}; its handler has to yield",
    )


async def _next(
    values: AsyncIterator[Any] | Iterator[Any], spec: OperationSpec, context: CallContext
) -> ResponseEnvelope[Any] | None:
    """What is yielded next, by the deadline. That is for the handler: whoever consumes it may take longer."""
    with raising_call_errors(spec):
        async with within(context.deadline, spec.id):
            if isinstance(values, AsyncIterator):
                value = await anext(values, _END)
            else:
                # A generator that never waits would let nobody else do anything.
                await asyncio.sleep(0)
                value = next(values, _END)
        return None if value is _END else finished(value, spec)


async def _close(values: AsyncIterator[Any] | Iterator[Any]) -> None:
    close = getattr(values, "aclose", None) or getattr(values, "close", None)
    if close is not None:
        closed = close()
        if inspect.isawaitable(closed):
            await closed
