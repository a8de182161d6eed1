"""Let a transport store the result of the current call."""

import contextvars
import dataclasses

from forebay.outputs.modes import Mode
from forebay.outputs.pipeline import Pipeline
from forebay.outputs.result import BodyResult, Result
from forebay.outputs.tool_call import ToolCall
from forebay.wire.lazy_json import LazyJSON

__all__ = ["PLACEHOLDER_RESULT", "ResultSink", "current_sink"]

PLACEHOLDER_RESULT: Result = {"content": [], "isError": False}
"""Passed through the SDK in place of a result that a `ResultSink` has stored; clients never get it."""

_current_sink: contextvars.ContextVar["ResultSink | None"] = contextvars.ContextVar("forebay_sink", default=None)


@dataclasses.dataclass(eq=False, slots=True, weakref_slot=True)
class ResultSink:
    """Storage for the result of the current call. A transport can store the result in it before the SDK parses it.

    Use it as a context manager around the call. Only our own code sets `replacement`, never the server.
    """

    pipeline: Pipeline
    call: ToolCall
    mode: Mode
    replacement: Result | None = None
    """The result to send to the client; `None` until the original is stored."""
    _token: "contextvars.Token[ResultSink | None] | None" = None

    def try_store(
        self, result: "Result | LazyJSON | BodyResult", size: int | None = None, envelope_bytes: int = 0
    ) -> bool:
        """Store a result and set `replacement`, unless the result goes inline; return whether it was stored.

        `size` is its size on the wire.
        """
        call = dataclasses.replace(self.call, envelope_bytes=envelope_bytes)
        if self.pipeline.is_inline(result, self.mode, call, size=size):
            return False
        replacement = self.pipeline.store_result(result, call)
        if replacement is result or isinstance(replacement, LazyJSON):
            return False
        self.replacement = replacement
        return True

    def __enter__(self) -> "ResultSink":
        self._token = _current_sink.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _current_sink.reset(self._token)


def current_sink() -> ResultSink | None:
    """Return the sink of the call in progress, if it has one."""
    return _current_sink.get()
