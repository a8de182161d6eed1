"""The store, principal and limits of the tool call in progress, for code that runs inside the tool."""

import contextvars
import dataclasses
import functools
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from forebay.errors import ForebayError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from forebay.outputs.contract.limits import ResponseLimits
    from forebay.store import RemoteAddress, Store
    from forebay.store.redaction import PayloadRedaction

__all__ = ["ResponseContext", "find_context", "is_in_tool_call", "record_failure", "record_response"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclasses.dataclass(slots=True, eq=False)
class ResponseContext:
    """The store, principal and limits for responses of the current tool call.

    Inside `with context:`, `find_context` returns the context. Every tool call creates one, so it must be cheap: the
    dataclass is not frozen, and `__enter__` is not built on a generator.
    """

    store: "Store | None" = None
    """`None` means the user's default store, which is opened on first use."""
    principal: str | None = None
    handle_length: int | None = None
    fetch_with: str | None = None
    """Name of the server's tool that reads references, if it has one."""
    is_ascii: bool = False
    """Whether the server escapes all non-ASCII characters in its messages."""
    max_bytes: int | None = None
    """Budget that the server's contract sets for this tool, if there is one."""
    responses: list[str] = dataclasses.field(default_factory=list)
    """Responses built during this call; the server does not wrap them a second time."""
    failure: "ForebayError | None" = None
    """Last error raised in this call. Kept because an SDK may hide its message from the caller."""
    _token: "contextvars.Token[ResponseContext | None] | None" = dataclasses.field(default=None, init=False, repr=False)

    def __enter__(self) -> "ResponseContext":
        self._token = _current_context.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _current_context.reset(self._token)

    def tighten_limits(self, limits: "ResponseLimits") -> "ResponseLimits":
        """Return the limits, with `max_bytes` lowered to the server's budget."""
        if self.max_bytes is None or self.max_bytes >= limits.max_bytes:
            return limits
        return dataclasses.replace(limits, max_bytes=self.max_bytes)

    def open_store(self) -> "Store":
        """Return the store, or open the user's default one; raises `StoreUnavailable` if that fails."""
        return _open_default_store() if self.store is None else self.store

    @property
    def redactions(self) -> "Sequence[PayloadRedaction]":
        """The redactions of the store. They also apply to text shown in a response."""
        return () if self.store is None else self.store.options.redactions


_current_context: contextvars.ContextVar[ResponseContext | None] = contextvars.ContextVar(
    "forebay_response_context", default=None
)


def find_context(store: "Store | None") -> ResponseContext:
    """Return a context for the passed store, else for the current tool call, else for the user's default store."""
    current = _current_context.get()
    if current is None:
        return ResponseContext(store)
    if store is None or store is current.store:
        return current
    return ResponseContext(
        store, current.principal, current.handle_length, is_ascii=current.is_ascii, max_bytes=current.max_bytes
    )


def is_in_tool_call() -> bool:
    """Return whether this code runs inside a tool call of a server with forebay."""
    return _current_context.get() is not None


def record_failure(function: "Callable[_P, _T]") -> "Callable[_P, _T]":
    """Decorate a function so that its `ForebayError` is also recorded in the current context."""

    @functools.wraps(function)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except ForebayError as error:
            current = _current_context.get()
            if current is not None:
                current.failure = error
            raise

    return wrapper


def record_response(response: str) -> None:
    """Add a response to the current context, so that the server does not wrap it again."""
    current = _current_context.get()
    if current is not None:
        current.responses.append(response)


def _open_default_store() -> "Store":
    from forebay.store import resolve_address

    return _open_cached(resolve_address(None))


@functools.cache
def _open_cached(address: "Path | RemoteAddress") -> "Store":
    from forebay.store import open_store

    return open_store(address)
