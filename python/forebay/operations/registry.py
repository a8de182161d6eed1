"""The registry of operations, and functions that run them or subscribe to them."""

import asyncio
import dataclasses
import difflib
import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

from forebay.arguments import short_repr
from forebay.envelope import ResponseEnvelope
from forebay.errors import InvalidArgument
from forebay.operations.deadlines import DeadlineScope
from forebay.operations.errors import CallError
from forebay.operations.results import to_envelope, to_envelope_async
from forebay.operations.spec import UNBOUND_ENV, CallContext, Handler, Operation, OperationSpec, build_env

__all__ = ["CallErrorScope", "OperationRegistry", "check_input", "run_handler", "run_operation", "subscribe"]

_log = logging.getLogger("forebay")

_KEYWORDS_WITH_NAMES = {"$ref", "additionalProperties", "allOf", "anyOf", "dependentSchemas", "if", "oneOf"}
_KEYWORDS_WITH_NAMES |= {"patternProperties", "propertyNames", "unevaluatedProperties"}
"""Keywords of an object schema, besides `properties`, that allow or refuse names."""

_MAX_UNKNOWN_NAMES, _MAX_NAME_CHARS = 5, 64
"""Maximum number and length of the unknown arguments that an error names."""


class OperationRegistry:
    """Operations of all sources by their id, `namespace.name`."""

    def __init__(self, operations: Iterable[Operation] = ()) -> None:
        self._specs: dict[str, OperationSpec] = {}
        self._handlers: dict[str, Handler] = {}
        self._default_context = CallContext(env=build_env(self))
        for operation in operations:
            self.register(operation.spec, operation.handler)

    def register(self, spec: OperationSpec, handler: Handler | None = None) -> OperationSpec:
        """Add an operation, or the handler of an operation that was added without a handler.

        Raises `InvalidArgument` if the id has a handler already: `unregister` it first.
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
        """Remove an operation. Return whether it was registered."""
        self._handlers.pop(operation_id, None)
        return self._specs.pop(operation_id, None) is not None

    def get_spec(self, operation_id: str) -> OperationSpec | None:
        """Return the spec of an operation, or `None`."""
        return self._specs.get(operation_id)

    def get_handler(self, operation_id: str) -> Handler | None:
        """Return the handler of an operation, or `None`."""
        return self._handlers.get(operation_id)

    def list(self) -> "list[OperationSpec]":
        """Return all specs in the order of registration."""
        return [*self._specs.values()]

    def __iter__(self) -> Iterator[OperationSpec]:
        return iter(self.list())

    def __len__(self) -> int:
        return len(self._specs)

    def __contains__(self, operation_id: object) -> bool:
        return operation_id in self._specs

    def find(self, operation_id: str) -> Operation:
        """Return an operation and its handler. Raises `CallError` with `OPERATION_NOT_FOUND` if either is missing."""
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
        """Run an operation without checking access.

        Raises `CallError`. An envelope with `is_error` is returned, not raised.
        """
        return await run_operation(self.find(operation_id), input, self.bind_context(context))

    def bind_context(self, context: CallContext | None) -> CallContext:
        """Return a context whose `env` calls this registry. A context that has an env already keeps its env."""
        if context is None:
            return self._default_context
        if context.env is not UNBOUND_ENV:
            return context
        return dataclasses.replace(context, env=build_env(self, context=context))

    async def call_nested(self, parent: CallContext, operation_id: str, input_data: Any, /) -> ResponseEnvelope[Any]:
        """Execute an operation on behalf of the `parent` call. A nested call has a parent id and no request id."""
        parent_id = parent.request_id or parent.parent_request_id
        context = dataclasses.replace(parent, request_id=None, parent_request_id=parent_id, env=UNBOUND_ENV)
        return await self.execute(operation_id, input_data, context)


def _check_handler(handler: object) -> None:
    if handler is None:
        return
    try:
        inspect.signature(handler).bind(None, None)  # type: ignore[arg-type]
    except ValueError:
        # Some functions written in C have no signature to check.
        pass
    except TypeError:
        raise InvalidArgument(
            f"a handler is a function of two, handler(input, context), which {short_repr(handler)} is not"
        ) from None


async def run_operation(
    operation: Operation, input_data: Any, context: CallContext, deadline_scope: DeadlineScope | None = None
) -> ResponseEnvelope[Any]:
    """Run an operation and return its envelope, without checking access. Every failure is raised as `CallError`."""
    spec = operation.spec
    if spec.type == "subscription":
        raise CallError("VALIDATION_ERROR", f"{spec.id} is a subscription; use subscribe()")
    with CallErrorScope(spec):
        result = await run_handler(operation, check_input(spec, input_data), context, deadline_scope)
        if inspect.isgenerator(result) or inspect.isasyncgen(result):
            raise CallError("EXECUTION_ERROR", f"{spec.id} yields; register it as a subscription, and use subscribe()")
        return await to_envelope_async(result, spec)


def check_input(spec: OperationSpec, input_data: Any) -> Any:
    """Return the input for the handler. Raises `CallError` if the input does not fit the input schema."""
    if input_data is None and spec.takes_object:
        input_data = {}
    problems = spec.input.problems(input_data) if spec.input_schema is not None else None
    if problems:
        summary = "; ".join(f"{problem['path'] or 'the input'}: {problem['message']}" for problem in problems)
        summary += _describe_unknown_names(spec.input_schema, input_data)
        raise CallError("VALIDATION_ERROR", f"{spec.id} cannot be called with this: {summary}", {"problems": problems})
    return input_data


def _describe_unknown_names(schema: Any, input_data: Any) -> str:
    """Return a note on arguments that the schema allows but does not name: one may be a misspelt required argument."""
    if not isinstance(schema, Mapping) or not isinstance(input_data, Mapping):
        return ""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not _KEYWORDS_WITH_NAMES.isdisjoint(schema):
        return ""
    unknown = [repr(name)[:_MAX_NAME_CHARS] for name in input_data if name not in properties][:_MAX_UNKNOWN_NAMES]
    return f"; the schema has no {', '.join(unknown)}" if unknown else ""


async def run_handler(
    operation: Operation, input_data: Any, context: CallContext, deadline_scope: DeadlineScope | None = None
) -> Any:
    """Run a handler until the deadline of the context, and return its result.

    With `deadline_scope`, the caller can remove the deadline while the handler runs.
    """
    if context.deadline is None:
        return await _await_result(operation, input_data, context)
    async with deadline_scope or DeadlineScope(context.deadline, operation.spec.id):
        return await _await_result(operation, input_data, context)


async def _await_result(operation: Operation, input_data: Any, context: CallContext) -> Any:
    result = operation.handler(input_data, context)
    # A loop, because an async handler may itself return an awaitable.
    while inspect.isawaitable(result):
        result = await result
    return result


class CallErrorScope:
    """Context manager that turns every exception into a `CallError`."""

    # A class, because a generator-based context manager would add a third to the cost of a call.
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
        message = str(error)[:1000]
    except Exception:
        message = ""
    if isinstance(error, TimeoutError):
        return CallError("TIMEOUT", f"{operation_id} took too long: {message or 'no answer in time'}")
    # The caller gets only the message. The traceback is logged for the operator.
    _log.debug("forebay: %s failed", operation_id, exc_info=error)
    return CallError("EXECUTION_ERROR", f"{operation_id} failed: {message or type(error).__name__}")


async def subscribe(
    registry: OperationRegistry,
    operation_id: str,
    input: Any = None,  # noqa: A002
    context: CallContext | None = None,
) -> AsyncGenerator[ResponseEnvelope[Any], None]:
    """Yield an envelope, with its own timestamp, for each value of a subscription.

    Access is not checked. Raises `CallError`. Closing this generator, as `contextlib.aclosing` does, closes the
    handler's generator.
    """
    operation = registry.find(operation_id)
    spec = operation.spec
    if spec.type != "subscription":
        raise CallError("VALIDATION_ERROR", f"{operation_id} is a {spec.type}; use execute()")
    context = registry.bind_context(context)
    with CallErrorScope(spec):
        values = _to_iterator(await run_handler(operation, check_input(spec, input), context), spec)
    try:
        while (envelope := await _next_envelope(values, spec, context)) is not None:
            yield envelope
    finally:
        with CallErrorScope(spec):
            await _close_iterator(values)


_EXHAUSTED = object()


def _to_iterator(result: Any, spec: OperationSpec) -> AsyncIterator[Any] | Iterator[Any]:
    if isinstance(result, AsyncIterable):
        return aiter(result)
    if isinstance(result, Iterator):
        return result
    raise CallError(
        "EXECUTION_ERROR",
        f"{spec.id} is a subscription and returned {type(result).__name__}; its handler has to yield",
    )


async def _next_envelope(
    values: AsyncIterator[Any] | Iterator[Any], spec: OperationSpec, context: CallContext
) -> ResponseEnvelope[Any] | None:
    """Return the next envelope, or `None` at the end. The deadline ends only the handler's work, not its consumer's."""
    with CallErrorScope(spec):
        async with DeadlineScope(context.deadline, spec.id):
            if isinstance(values, AsyncIterator):
                value = await anext(values, _EXHAUSTED)
            else:
                # Let other tasks run: a sync generator never awaits, and would block the event loop until its end.
                await asyncio.sleep(0)
                value = next(values, _EXHAUSTED)
        return None if value is _EXHAUSTED else to_envelope(value, spec)


async def _close_iterator(values: AsyncIterator[Any] | Iterator[Any]) -> None:
    close = getattr(values, "aclose", None) or getattr(values, "close", None)
    if close is not None:
        closed = close()
        if inspect.isawaitable(closed):
            await closed
