"""Operations that call the Python functions of a module."""

import asyncio
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import anyio
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata, func_metadata
from pydantic import ValidationError

from forebay.errors import InvalidArgument
from forebay.operations.errors import CallError
from forebay.operations.spec import CallContext, Operation, OperationSpec
from forebay.store.threads import run_in_thread

__all__ = ["from_module"]

_ARGS, _KWARGS = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD

_MAX_THREADS = 32
"""Maximum number of blocking functions that run at the same time."""


def from_module(name: str, *, namespace: str, folder: str | None = None) -> list[Operation]:
    """Return an operation for each function in `__all__`, or for each public function the module defines.

    The module may be in the working directory, in `folder`, or installed. Raises `InvalidArgument`.
    """
    module = _import_module(name, folder)
    try:
        operations = [
            _make_operation(namespace, public_name, function)
            for public_name, function in _list_public_functions(module)
        ]
        if not operations:
            raise InvalidArgument(f"the module {name} has no public functions; define one, or name it in __all__")
    except InvalidArgument:
        # The next attempt must import the file again: it may have been mended.
        sys.modules.pop(name, None)
        raise
    return operations


def _import_module(name: str, folder: str | None) -> ModuleType:
    # Also search the working directory, as `python -m` does. The `sys.path` of an installed command lacks it.
    for directory in (folder, str(Path.cwd())):
        if directory is not None and directory not in sys.path:
            sys.path.insert(0, directory)
    # The module may have been added since an earlier attempt.
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            advice = "put it beside the configuration or install it"
            if name.endswith(".py"):
                advice = f"a module is named without .py: {name.removesuffix('.py').replace('/', '.')}"
            raise InvalidArgument(f"there is no module {name}; {advice}") from None
        raise InvalidArgument(f"the module {name} cannot be imported: {error}; install what it needs") from error
    except (Exception, SystemExit) as error:
        raise InvalidArgument(f"the module {name} cannot be imported: {type(error).__name__}: {error}") from error


def _list_public_functions(module: ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
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
        parameters = inspect.signature(function).parameters.values()
        variadic = [parameter for parameter in parameters if parameter.kind in (_ARGS, _KWARGS)]
        metadata = func_metadata(function, skip_names=[parameter.name for parameter in variadic])
        input_schema = metadata.arg_model.model_json_schema(by_alias=True)
    except Exception as error:
        # An annotation can be any object, with which the SDK, Pydantic and `typing` fail in many ways.
        reason = str(error).partition("\n")[0]
        raise InvalidArgument(f"{namespace}.{name} cannot be a tool: {reason}") from error
    for parameter in parameters:
        if parameter.annotation is parameter.empty and parameter not in variadic:
            # The SDK lists `string`, which other values and many defaults are not.
            del input_schema["properties"][parameter.name]["type"]
    takes_others = any(parameter.kind is _KWARGS for parameter in variadic)
    if takes_others:
        input_schema["additionalProperties"] = True
    spec = OperationSpec(
        namespace=namespace,
        name=name,
        type="mutation",
        description=inspect.getdoc(function) or "",
        input_schema=input_schema,
        # With `wrap_output`, the SDK's schema is for a wrapped value, but the function returns the bare value.
        output_schema=None if metadata.wrap_output else metadata.output_schema,
    )
    known = frozenset(input_schema["properties"]) if takes_others else None
    return Operation(spec, functools.partial(_call_function, function, metadata, known, spec.id))


async def _call_function(
    function: Callable[..., Any],
    metadata: FuncMetadata,
    known_names: frozenset[str] | None,
    operation_id: str,
    arguments: Any,
    context: CallContext,
) -> Any:
    """Call a function. With `known_names`, it also gets the arguments that have other names."""
    del context
    arguments = arguments or {}
    others = {} if known_names is None else {key: arguments[key] for key in arguments.keys() - known_names}
    try:
        arguments = {**metadata.validate_arguments(arguments), **others}
    except ValidationError as error:
        problems = [{"path": "/".join(map(str, detail["loc"])), "message": detail["msg"]} for detail in error.errors()]
        summary = "; ".join(f"{problem['path']}: {problem['message']}" for problem in problems)
        raise CallError("VALIDATION_ERROR", f"{operation_id} cannot be called with this: {summary}") from None
    task = asyncio.current_task()
    try:
        if inspect.iscoroutinefunction(function):
            return await function(**arguments)
        # If the caller is cancelled, other callers get its place at once. The function runs on: it cannot be stopped.
        async with _get_thread_limiter():
            return await run_in_thread(functools.partial(function, **arguments), daemon=True)
    except Exception:
        raise
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        # `sys.exit()` in a function must not end the gateway.
        raise RuntimeError(f"{operation_id} raised {type(error).__name__}") from error


@functools.cache
def _get_thread_limiter() -> anyio.CapacityLimiter:
    """Return the limiter for function threads, separate from the gateway's own threads."""
    return anyio.CapacityLimiter(_MAX_THREADS)
