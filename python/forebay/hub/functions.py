"""The functions of a Python module as operations."""

import asyncio
import contextvars
import functools
import importlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

import anyio
from mcp.server.mcpserver.exceptions import InvalidSignature
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata, func_metadata
from pydantic import PydanticUserError, ValidationError

from forebay.errors import InvalidArgument
from forebay.operations.errors import CallError
from forebay.operations.spec import CallContext, Operation, OperationSpec

__all__ = ["from_module", "run_in_daemon_thread"]

_MAX_THREADS = 32
"""How many functions that do not await anything run side by side."""


def from_module(name: str, *, namespace: str, folder: str | None = None) -> list[Operation]:
    """What a module has in `__all__`, else the public functions that are defined in it. Raises `InvalidArgument`.

    It may be in the working directory, in `folder`, or installed.
    """
    module = _import_module(name, folder)
    operations = [_make_operation(namespace, public, function) for public, function in _public_functions(module)]
    if not operations:
        raise InvalidArgument(f"the module {name} has no public functions; define one, or name it in __all__")
    return operations


def _import_module(name: str, folder: str | None) -> ModuleType:
    # As `python -m` does: what is installed as a command does not look where it is run.
    for place in (folder, str(Path.cwd())):
        if place is not None and place not in sys.path:
            sys.path.insert(0, place)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidArgument(f"there is no module {name}; put it beside the configuration or install it") from None
        raise InvalidArgument(f"the module {name} cannot be imported: {error}; install what it needs") from error
    except Exception as error:
        raise InvalidArgument(f"the module {name} cannot be imported: {type(error).__name__}: {error}") from error


def _public_functions(module: ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    listed = getattr(module, "__all__", None)
    for name in vars(module) if listed is None else listed:
        value = getattr(module, name, None)
        if listed is not None and value is None:
            raise InvalidArgument(f"{module.__name__} has no {name}, which its __all__ names")
        is_own = inspect.isfunction(value) and value.__module__ == module.__name__
        if (listed is None and is_own and not name.startswith("_")) or (
            listed is not None and inspect.isroutine(value)
        ):
            yield str(name), cast("Callable[..., Any]", value)


def _make_operation(namespace: str, name: str, function: Callable[..., Any]) -> Operation:
    try:
        described = func_metadata(function)
    except (InvalidSignature, PydanticUserError, TypeError, ValueError) as error:
        raise InvalidArgument(f"{namespace}.{name} cannot be a tool: {error}") from error
    spec = OperationSpec(
        namespace=namespace,
        name=name,
        type="mutation",
        description=inspect.getdoc(function) or "",
        input_schema=described.arg_model.model_json_schema(by_alias=True),
        # One that only wraps what is not an object would have operations answer what nobody returned.
        output_schema=None if described.wrap_output else described.output_schema,
    )
    return Operation(spec, functools.partial(_call_function, function, described, spec.id))


async def _call_function(
    function: Callable[..., Any], described: FuncMetadata, operation_id: str, given: Any, context: CallContext
) -> Any:
    del context
    try:
        arguments = described.validate_arguments(given or {})
    except ValidationError as error:
        problems = [{"path": "/".join(map(str, one["loc"])), "message": one["msg"]} for one in error.errors()]
        told = "; ".join(f"{problem['path']}: {problem['message']}" for problem in problems)
        raise CallError("VALIDATION_ERROR", f"{operation_id} cannot be called with this: {told}") from None
    if inspect.iscoroutinefunction(function):
        return await function(**arguments)
    # Whoever gives up waiting must not keep others from being served; the function itself cannot be stopped.
    async with _thread_limiter():
        return await run_in_daemon_thread(functools.partial(function, **arguments))


@functools.cache
def _thread_limiter() -> anyio.CapacityLimiter:
    """Apart from the threads that the gateway itself waits with."""
    return anyio.CapacityLimiter(_MAX_THREADS)


T = TypeVar("T")


async def run_in_daemon_thread(function: Callable[[], T]) -> T:
    """What a function gives. Whoever is cancelled leaves it alone, and the process ends without it.

    The worker threads of `anyio` and of `asyncio` are waited for when Python ends.
    """
    future: Future[T] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(context.run(function))
        except StopIteration as error:
            # No future of asyncio takes it: whoever waits would wait for ever.
            future.set_exception(RuntimeError(f"StopIteration was raised: {error}"))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="forebay-function", daemon=True).start()
    return await asyncio.wrap_future(future)
