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

__all__ = ["Place", "is_inside", "note", "place_for", "telling"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclasses.dataclass(slots=True, eq=False)
class Place:
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
    made: list[str] = dataclasses.field(default_factory=list)
    """The responses that were made here: what keeps to the contract is not wrapped in it again."""
    failure: "ForebayError | None" = None
    """What one of these functions raised here: an SDK may show nothing of it, and it says what to do."""
    _token: "contextvars.Token[Place | None] | None" = dataclasses.field(default=None, init=False, repr=False)

    def __enter__(self) -> "Place":
        self._token = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _current.reset(self._token)

    def limits(self, limits: "ResponseLimits") -> "ResponseLimits":
        """What a response keeps to that is made here: also to what the server says."""
        if self.max_bytes is None or self.max_bytes >= limits.max_bytes:
            return limits
        return dataclasses.replace(limits, max_bytes=self.max_bytes)

    def open(self) -> "Store":
        """The store; what is wrong with it, it says now."""
        return _default() if self.store is None else self.store

    @property
    def redactions(self) -> "Sequence[Redaction]":
        """What must not be shown of anything that would be stored here."""
        return () if self.store is None else self.store.options.redactions


_current: contextvars.ContextVar[Place | None] = contextvars.ContextVar("forebay_place", default=None)


def place_for(store: "Store | None") -> Place:
    """The store that is given, else that of the server whose tool is being called, else the user's own."""
    current = _current.get()
    if current is None:
        return Place(store)
    if store is None or store is current.store:
        return current
    return Place(
        store, current.principal, current.handle_length, is_ascii=current.is_ascii, max_bytes=current.max_bytes
    )


def is_inside() -> bool:
    """Whether a tool of a server with a forebay is being called."""
    return _current.get() is not None


def telling(function: "Callable[_P, _T]") -> "Callable[_P, _T]":
    """Tells the server whose tool is being called what is raised in it."""

    @functools.wraps(function)
    def told(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except ForebayError as error:
            current = _current.get()
            if current is not None:
                current.failure = error
            raise

    return told


def note(response: str) -> None:
    """Tells the server whose tool is being called that this is a response."""
    current = _current.get()
    if current is not None:
        current.made.append(response)


def _default() -> "Store":
    from forebay.store import root_of

    return _opened(root_of(None))


@functools.cache
def _opened(root: "Path") -> "Store":
    from forebay.store import open_store

    return open_store(root)
