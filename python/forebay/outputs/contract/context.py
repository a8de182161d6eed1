"""Where a response's payload is stored, and for whom: what a server knows and its tools do not."""

import contextvars
import dataclasses
import functools
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from forebay.errors import ForebayError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from forebay.outputs.contract.limits import ResponseLimits
    from forebay.store import Store
    from forebay.store.payload import Redaction

__all__ = ["ResponseContext", "find_context", "is_in_tool_call", "record_failure", "record_response"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclasses.dataclass(slots=True, eq=False)
class ResponseContext:
    """A store, and whose what is put there will be; `with` it, whatever is stored for a response is stored there.

    Every call of a tool has one, so it is made to cost little: it is neither frozen nor a generator's.
    """

    store: "Store | None" = None
    """`None` is the user's own, which is opened when something is stored."""
    principal: str | None = None
    handle_length: int | None = None
    fetch_with: str | None = None
    """The tool that redeems references, where a server has one."""
    is_ascii: bool = False
    """Whether what is answered there goes out with all that is not ASCII escaped."""
    max_bytes: int | None = None
    """What the server lets this tool answer with, where it has a contract with it."""
    responses: list[str] = dataclasses.field(default_factory=list)
    """The responses that were made here: what keeps to the contract is not wrapped in it again."""
    failure: "ForebayError | None" = None
    """What one of these functions raised here: an SDK may show nothing of it, and it says what to do."""
    _token: "contextvars.Token[ResponseContext | None] | None" = dataclasses.field(default=None, init=False, repr=False)

    def __enter__(self) -> "ResponseContext":
        self._token = _current_context.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _current_context.reset(self._token)

    def tighten_limits(self, limits: "ResponseLimits") -> "ResponseLimits":
        """What a response keeps to that is made here: also to what the server says."""
        if self.max_bytes is None or self.max_bytes >= limits.max_bytes:
            return limits
        return dataclasses.replace(limits, max_bytes=self.max_bytes)

    def open_store(self) -> "Store":
        """The store; what is wrong with it, it says now."""
        return _open_default_store() if self.store is None else self.store

    @property
    def redactions(self) -> "Sequence[Redaction]":
        """What must not be shown of anything that would be stored here."""
        return () if self.store is None else self.store.options.redactions


_current_context: contextvars.ContextVar[ResponseContext | None] = contextvars.ContextVar("forebay_place", default=None)


def find_context(store: "Store | None") -> ResponseContext:
    """The store that is given, else that of the server whose tool is being called, else the user's own."""
    current = _current_context.get()
    if current is None:
        return ResponseContext(store)
    if store is None or store is current.store:
        return current
    return ResponseContext(
        store, current.principal, current.handle_length, is_ascii=current.is_ascii, max_bytes=current.max_bytes
    )


def is_in_tool_call() -> bool:
    """Whether a tool of a server with a forebay is being called."""
    return _current_context.get() is not None


def record_failure(function: "Callable[_P, _T]") -> "Callable[_P, _T]":
    """Tells the server whose tool is being called what is raised in it."""

    @functools.wraps(function)
    def told(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except ForebayError as error:
            current = _current_context.get()
            if current is not None:
                current.failure = error
            raise

    return told


def record_response(response: str) -> None:
    """Tells the server whose tool is being called that this is a response."""
    current = _current_context.get()
    if current is not None:
        current.responses.append(response)


def _open_default_store() -> "Store":
    from forebay.store import resolve_root

    return _open_cached(resolve_root(None))


@functools.cache
def _open_cached(root: "Path") -> "Store":
    from forebay.store import open_store

    return open_store(root)
