"""The contract for a tool that was written without it."""

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from forebay.errors import InvalidArgument
from forebay.outputs.contract.artifacts import sanitize_domain
from forebay.outputs.contract.context import find_context
from forebay.outputs.contract.limits import Category, ResponseLimits, category_of, resolve_limits
from forebay.outputs.contract.response import PayloadView, Response, build_response

if TYPE_CHECKING:
    from forebay.store import Store

__all__ = ["contracted", "describe_view"]

_log = logging.getLogger("forebay")

_F = TypeVar("_F", bound=Callable[..., Any])


@overload
def contracted(function: _F, /) -> _F: ...
@overload
def contracted(
    *,
    summary: str | Callable[[Any], str] | None = None,
    category: Category | None = None,
    limits: ResponseLimits | None = None,
    store: "Store | None" = None,
    domain: str | None = None,
) -> Callable[[_F], _F]: ...
def contracted(
    function: Callable[..., Any] | None = None,
    /,
    *,
    summary: str | Callable[[Any], str] | None = None,
    category: Category | None = None,
    limits: ResponseLimits | None = None,
    store: "Store | None" = None,
    domain: str | None = None,
) -> Any:
    """A tool, sync or async, whose answers keep to the contract. Put it below the server's own `@server.tool()`.

    `summary` is a line, or makes one of what the tool returned. The category is that of the tool's name, if not given.
    What the tool raises is its server's to answer, as before, and so is a result of an SDK's own types.
    """
    if function is None:
        return functools.partial(
            _wrap_tool, summary=summary, category=category, limits=limits, store=store, domain=domain
        )
    return _wrap_tool(function)


def _wrap_tool(
    function: Callable[..., Any],
    *,
    summary: str | Callable[[Any], str] | None = None,
    category: Category | None = None,
    limits: ResponseLimits | None = None,
    store: "Store | None" = None,
    domain: str | None = None,
) -> Callable[..., Any]:
    if isinstance(function, classmethod | staticmethod):
        raise InvalidArgument("put @contracted below @classmethod and @staticmethod")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidArgument(
            "a tool that answers by the contract returns what it has, all at once, and yields nothing"
        )
    name = getattr(function, "__name__", "tool")
    chosen = resolve_limits(category or category_of(name), limits)
    where = domain or sanitize_domain(name)

    def wrapped(data: Any) -> Any:
        if isinstance(data, Response) or _is_sdk_result(data):
            return data
        line = _make_summary(summary, data)

        def summarize(view: PayloadView) -> str:
            return describe_view(name, view) if line is None else line

        place = find_context(store)
        return build_response(data, summarize, True, place.tighten_limits(chosen), place, where)

    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004

        @functools.wraps(function)
        async def answer(*args: Any, **kwargs: Any) -> Any:
            # Storing waits for a disk.
            return await asyncio.to_thread(wrapped, await function(*args, **kwargs))
    else:

        @functools.wraps(function)
        def answer(*args: Any, **kwargs: Any) -> Any:
            return wrapped(function(*args, **kwargs))

    # An SDK that knows what it returns would list a schema of that, and send every answer twice.
    signature = _get_signature(function).replace(return_annotation=inspect.Signature.empty)
    answer.__signature__ = signature  # type: ignore[attr-defined]
    answer.__annotations__ = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if parameter.annotation is not inspect.Parameter.empty
    }
    return answer


def _is_sdk_result(data: Any) -> bool:
    """Whether it is a result already, as an SDK has them: `CallToolResult`, `ToolResult`."""
    return hasattr(data, "content") and hasattr(data, "is_error") and hasattr(data, "structured_content")


def _make_summary(summary: str | Callable[[Any], str] | None, data: Any) -> str | None:
    if not callable(summary):
        return summary
    try:
        line = summary(data)
    except Exception:
        # What the tool has done must not be lost for a line about it.
        _log.exception("forebay: a summary could not be made")
        return None
    return line if isinstance(line, str) else None


def _get_signature(function: Callable[..., Any]) -> inspect.Signature:
    """With annotations that mean something here, too, where they are written as text."""
    try:
        return inspect.signature(function, eval_str=True)
    except NameError:
        return inspect.signature(function)


def describe_view(name: str, view: PayloadView) -> str:
    """What there is to say of a payload that nobody summed up."""
    if view.count is not None:
        return f"{name}: {view.count} items"
    match view.nature:
        case "text" if view.lines > 1:
            return f"{name}: {view.lines} lines of text"
        case "binary":
            return f"{name}: {view.size} bytes"
    return f"{name}: done"
