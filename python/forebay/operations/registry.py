"""All operations by their ids, and how to run one."""

import asyncio
import dataclasses
import difflib
import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any

from forebay.arguments import short_repr
from forebay.errors import InvalidArgument
from forebay.operations.deadlines import DeadlineScope
from forebay.operations.env import UNBOUND_ENV, build_env
from forebay.operations.envelope import ResponseEnvelope
from forebay.operations.errors import CallError
from forebay.operations.results import to_envelope, to_envelope_async
from forebay.operations.spec import CallContext, Handler, Operation, OperationSpec

__all__ = ["CallErrorScope", "OperationRegistry", "check_input", "run_handler", "run_operation", "subscribe"]

_log = logging.getLogger("forebay")


class OperationRegistry:
    """Operations of every source, by `namespace.name`."""

    def __init__(self, operations: Iterable[Operation] = ()) -> None:
        self._specs: dict[str, OperationSpec] = {}
        self._handlers: dict[str, Handler] = {}
        self._default_context = CallContext(env=build_env(self))
        for operation in operations:
            self.register(operation.spec, operation.handler)

    def register(self, spec: OperationSpec, handler: Handler | None = None) -> OperationSpec:
        """Adds an operation, or the handler of one that is known by its spec alone.

        Raises `InvalidArgument` if one of that id has a handler already: `unregister` it first.
        """
        if not isinstance(spec, OperationSpec):
            raise InvalidArgument(f"register() takes an OperationSpec, and then its handler, not {short_repr(spec)}")
        _check_handler(handler)
        if spec.id in self._handlers:
            raise InvalidArgument(f"{spec.id} is registered already; unregister it first, or use another namespace")
        self._specs[spec.id] = spec
        if handler is not None:
            self._handlers[spec.id] = handler
        return spec

    def unregister(self, operation_id: str) -> bool:
        """Forgets an operation; whether there was one."""
        self._handlers.pop(operation_id, None)
        return self._specs.pop(operation_id, None) is not None

    def get_spec(self, operation_id: str) -> OperationSpec | None:
        """What is known of an operation."""
        return self._specs.get(operation_id)

    def get_handler(self, operation_id: str) -> Handler | None:
        """What runs when it is called."""
        return self._handlers.get(operation_id)

    def list(self) -> "list[OperationSpec]":
        """All of them, in the order in which they came."""
        return [*self._specs.values()]

    def __iter__(self) -> Iterator[OperationSpec]:
        return iter(self.list())

    def __len__(self) -> int:
        return len(self._specs)

    def __contains__(self, operation_id: object) -> bool:
        return operation_id in self._specs

    def find(self, operation_id: str) -> Operation:
        """An operation that can be run. Raises `CallError` with `OPERATION_NOT_FOUND` for any other."""
        spec, handler = self._specs.get(operation_id), self._handlers.get(operation_id)
        if spec is not None and handler is not None:
            return Operation(spec, handler)
        if spec is not None:
            raise CallError("OPERATION_NOT_FOUND", f"No handler registered for operation: {operation_id}")
        near = ", ".join(sorted(difflib.get_close_matches(str(operation_id)[:256], self._specs, n=8, cutoff=0)))
        raise CallError(
            "OPERATION_NOT_FOUND", f"there is no operation {operation_id!r:.128}; there are {near or 'none'}"
        )

    async def execute(
        self,
        operation_id: str,
        input: Any = None,  # noqa: A002
        context: CallContext | None = None,
    ) -> ResponseEnvelope[Any]:
        """Runs an operation for this process itself: nobody's access is checked.

        Raises `CallError`. An envelope that says `is_error` is a result, and returned.
        """
        return await run_operation(self.find(operation_id), input, self.bind_context(context))

    def bind_context(self, context: CallContext | None) -> CallContext:
        """A context whose `env` is the operations of this registry, unless it has others."""
        if context is None:
            return self._default_context
        return (
            context
            if context.env is not UNBOUND_ENV
            else dataclasses.replace(context, env=build_env(self, context=context))
        )

    async def call_nested(self, parent: CallContext, operation_id: str, given: Any, /) -> ResponseEnvelope[Any]:
        """Executes an operation as a part of answering another call. It has no id of its own: nobody asked for it."""
        asked_for = parent.request_id or parent.parent_request_id
        context = dataclasses.replace(parent, request_id=None, parent_request_id=asked_for, env=UNBOUND_ENV)
        return await self.execute(operation_id, given, context)


def _check_handler(handler: object) -> None:
    if handler is None:
        return
    try:
        inspect.signature(handler).bind(None, None)  # type: ignore[arg-type]
    except ValueError:
        # Some that are written in C do not say what they take.
        pass
    except TypeError:
        raise InvalidArgument(
            f"a handler is a function of two, handler(input, context), which {short_repr(handler)} is not"
        ) from None


async def run_operation(
    operation: Operation, given: Any, context: CallContext, limit: DeadlineScope | None = None
) -> ResponseEnvelope[Any]:
    """The envelope of a call that may be made. Whatever goes wrong is a `CallError`."""
    spec = operation.spec
    if spec.type == "subscription":
        raise CallError("VALIDATION_ERROR", f"{spec.id} is a subscription; use subscribe()")
    with CallErrorScope(spec):
        given = check_input(spec, given)
        result = await run_handler(operation, given, context, limit)
        if inspect.isgenerator(result) or inspect.isasyncgen(result):
            raise CallError("EXECUTION_ERROR", f"{spec.id} yields; register it as a subscription, and use subscribe()")
        return await to_envelope_async(result, spec)


def check_input(spec: OperationSpec, given: Any) -> Any:
    """What a handler is given. Refuses what does not fit the input schema."""
    if given is None and spec.takes_object:
        given = {}
    found = spec.input.problems(given) if spec.input_schema is not None else None
    if found:
        told = "; ".join(f"{problem['path'] or 'the input'}: {problem['message']}" for problem in found)
        raise CallError("VALIDATION_ERROR", f"{spec.id} cannot be called with this: {told}", {"problems": found})
    return given


async def run_handler(
    operation: Operation, given: Any, context: CallContext, limit: DeadlineScope | None = None
) -> Any:
    """What a handler returns, by the deadline if there is one. That is in `limit`, if someone may have to lift it."""
    if context.deadline is None:
        return await _await_result(operation, given, context)
    async with limit or DeadlineScope(context.deadline, operation.spec.id):
        return await _await_result(operation, given, context)


async def _await_result(operation: Operation, given: Any, context: CallContext) -> Any:
    result = operation.handler(given, context)
    # Also one that was returned without waiting for it.
    while inspect.isawaitable(result):
        result = await result
    return result


class CallErrorScope:
    """Whatever is raised in it is a `CallError`."""

    # No generator: every call goes through one of these, and it would be a third of what a call costs.
    __slots__ = ("_spec",)

    def __init__(self, spec: OperationSpec) -> None:
        self._spec = spec

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, CallError):
            raise _to_call_error(error, self._spec.id) from error


def _to_call_error(error: Exception, operation_id: str) -> CallError:
    try:
        told = str(error)[:1000]
    except Exception:
        told = ""
    if isinstance(error, TimeoutError):
        return CallError("TIMEOUT", f"{operation_id} took too long: {told or 'no answer in time'}")
    # The message is for whoever called; where it came from is for whoever runs this.
    _log.debug("forebay: %s failed", operation_id, exc_info=error)
    return CallError("EXECUTION_ERROR", f"{operation_id} failed: {told or type(error).__name__}")


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
    context = registry.bind_context(context)
    with CallErrorScope(spec):
        given = check_input(spec, input)
        values = _to_iterator(await run_handler(operation, given, context), spec)
    try:
        while (envelope := await _next_envelope(values, spec, context)) is not None:
            yield envelope
    finally:
        with CallErrorScope(spec):
            await _close_iterator(values)


_EXHAUSTED = object()


def _to_iterator(yielded: Any, spec: OperationSpec) -> AsyncIterator[Any] | Iterator[Any]:
    if isinstance(yielded, AsyncIterable):
        return aiter(yielded)
    if isinstance(yielded, Iterator):
        return yielded
    raise CallError(
        "EXECUTION_ERROR",
        f"{spec.id} is a subscription and returned {type(yielded).__name__}; its handler has to yield",
    )


async def _next_envelope(
    values: AsyncIterator[Any] | Iterator[Any], spec: OperationSpec, context: CallContext
) -> ResponseEnvelope[Any] | None:
    """What is yielded next, by the deadline. That is for the handler: whoever consumes it may take longer."""
    with CallErrorScope(spec):
        async with DeadlineScope(context.deadline, spec.id):
            if isinstance(values, AsyncIterator):
                value = await anext(values, _EXHAUSTED)
            else:
                # A generator that never waits would let nobody else do anything.
                await asyncio.sleep(0)
                value = next(values, _EXHAUSTED)
        return None if value is _EXHAUSTED else to_envelope(value, spec)


async def _close_iterator(values: AsyncIterator[Any] | Iterator[Any]) -> None:
    close = getattr(values, "aclose", None) or getattr(values, "close", None)
    if close is not None:
        closed = close()
        if inspect.isawaitable(closed):
            await closed
