"""The `@contracted` decorator: make an existing tool return contract responses."""

import functools
import inspect
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from forebay.errors import InvalidArgument
from forebay.outputs.contract.artifacts import sanitize_domain
from forebay.outputs.contract.context import find_context
from forebay.outputs.contract.limits import Category, ResponseLimits, category_of, resolve_limits
from forebay.outputs.contract.response import PayloadView, Response, build_response, make_default_summary
from forebay.store.threads import run_in_pool

if TYPE_CHECKING:
    from forebay.store import Store

__all__ = ["contracted"]

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
    """Decorate a sync or async tool so that it returns contract responses. Put it below `@server.tool()`.

    `summary` is a line, or a function that makes one from the tool's result. `category` defaults to the one that the
    tool's name suggests. Exceptions and results of an SDK's own types go to the server unchanged.
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
    tool_limits = resolve_limits(category or category_of(name), limits)
    artifact_domain = domain or sanitize_domain(name)

    def wrap_result(data: Any) -> Any:
        if isinstance(data, Response) or _is_sdk_result(data):
            return data
        line = _make_summary(summary, data)

        def summarize(view: PayloadView) -> str:
            return make_default_summary(name, view) if line is None else line

        context = find_context(store)
        return build_response(data, summarize, True, context.tighten_limits(tool_limits), context, artifact_domain)

    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004

        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            # In a thread, because storing the payload waits for the disk.
            result = await function(*args, **kwargs)
            return await run_in_pool(lambda: wrap_result(result))
    else:

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return wrap_result(function(*args, **kwargs))

    # Without its return annotation: for one, an SDK would list an output schema and send every response twice.
    signature = _get_signature(function).replace(return_annotation=inspect.Signature.empty)
    wrapper.__signature__ = signature  # type: ignore[attr-defined]
    wrapper.__annotations__ = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if parameter.annotation is not inspect.Parameter.empty
    }
    return wrapper


def _is_sdk_result(data: Any) -> bool:
    """Return whether this is an SDK's own result type: `CallToolResult` or `ToolResult`."""
    return hasattr(data, "content") and hasattr(data, "is_error") and hasattr(data, "structured_content")


def _make_summary(summary: str | Callable[[Any], str] | None, data: Any) -> str | None:
    if not callable(summary):
        return summary
    try:
        line = summary(data)
    except Exception:
        # A failing summary must not lose the tool's result.
        _log.exception("forebay: a summary could not be made")
        return None
    return line if isinstance(line, str) else None


def _get_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function, with string annotations evaluated where possible.

    An SDK would look up the names in these strings in the module of the wrapper, which does not have them.
    """
    try:
        return inspect.signature(function, eval_str=True)
    except NameError:
        return inspect.signature(function)
