"""Results that were stored on their way to the server, before anyone made objects of them."""

import contextvars
import dataclasses
from types import TracebackType

from forebay.outputs.modes import Mode
from forebay.outputs.pipeline import Call, Pipeline
from forebay.outputs.result import Result
from forebay.wire.lazy_json import LazyJSON

__all__ = ["PLACEHOLDER", "Delivery", "current_delivery"]

PLACEHOLDER: Result = {"content": [], "isError": False}
"""What goes on in place of a result that was delivered; nobody sees it."""

_current: contextvars.ContextVar["Delivery | None"] = contextvars.ContextVar("delivery", default=None)


@dataclasses.dataclass(eq=False, slots=True, weakref_slot=True)
class Delivery:
    """For whom a call is made and how it is to be answered, for whoever reads its result off the wire.

    What is put into `answer` is the client's as it is. Nothing that a server says can get there: it is no message.
    """

    pipeline: Pipeline
    call: Call
    mode: Mode
    answer: Result | None = None
    _token: "contextvars.Token[Delivery | None] | None" = None

    def take(self, result: "Result | LazyJSON", size: int, around: int = 0) -> bool:
        """Stores a result of so many bytes, unless it goes inline: then it is not taken."""
        if self.pipeline.is_inline(result, self.mode, size=size):
            return False
        answer = self.pipeline.stored(result, dataclasses.replace(self.call, around=around))
        if answer is result or isinstance(answer, LazyJSON):
            return False
        self.answer = answer
        return True

    def __enter__(self) -> "Delivery":
        self._token = _current.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _current.reset(self._token)


def current_delivery() -> Delivery | None:
    """The call that is being answered here, if it may be delivered."""
    return _current.get()
