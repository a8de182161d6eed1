"""The contract for a tool that was written without it."""

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from headgate.contract.artifacts import plain_domain
from headgate.contract.limits import Category, ResponseLimits, category_of, limits_for
from headgate.contract.place import place_for
from headgate.contract.response import Response, respond
from headgate.contract.view import View

if TYPE_CHECKING:
    from headgate.store import Store

__all__ = ["contracted", "described"]

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
    What the tool raises is its server's to answer, as before.
    """
    if function is None:
        return functools.partial(
            _contracted, summary=summary, category=category, limits=limits, store=store, domain=domain
        )
    return _contracted(function)


def _contracted(
    function: Callable[..., Any],
    *,
    summary: str | Callable[[Any], str] | None = None,
    category: Category | None = None,
    limits: ResponseLimits | None = None,
    store: "Store | None" = None,
    domain: str | None = None,
) -> Callable[..., Any]:
    name = getattr(function, "__name__", "tool")
    chosen = limits_for(category or category_of(name), limits)
    where = domain or plain_domain(name)

    def wrapped(data: Any) -> Response:
        if isinstance(data, Response):
            return data
        line = summary(data) if callable(summary) else summary

        def summarize(view: View) -> str:
            return described(name, view) if line is None else line

        return respond(data, summarize, True, chosen, place_for(store), where)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def answer(*args: Any, **kwargs: Any) -> Response:
            # Storing waits for a disk.
            return await asyncio.to_thread(wrapped, await function(*args, **kwargs))
    else:

        @functools.wraps(function)
        def answer(*args: Any, **kwargs: Any) -> Response:
            return wrapped(function(*args, **kwargs))

    # An SDK that knows what it returns would list a schema of that, and send every answer twice.
    signature = _signature(function).replace(return_annotation=inspect.Signature.empty)
    answer.__signature__ = signature  # type: ignore[attr-defined]
    answer.__annotations__ = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if parameter.annotation is not inspect.Parameter.empty
    }
    return answer


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """With annotations that mean something here, too, where they are written as text."""
    try:
        return inspect.signature(function, eval_str=True)
    except NameError:
        return inspect.signature(function)


def described(name: str, view: View) -> str:
    """What there is to say of a payload that nobody summed up."""
    if view.count is not None:
        return f"{name}: {view.count} items"
    match view.nature:
        case "text" if view.lines > 1:
            return f"{name}: {view.lines} lines of text"
        case "binary":
            return f"{name}: {view.size} bytes"
    return f"{name}: done"
