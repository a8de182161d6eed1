"""Calls of stateless clients (2026-07-28) to servers that may request input before they answer."""

import asyncio
import dataclasses
import itertools
import logging
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND, CreateMessageRequest, ElicitRequest, ListRootsRequest
from mcp_types.methods import INPUT_REQUIRED_METHODS
from pydantic import BaseModel, ValidationError

from forebay.outputs.pipeline import current_sink

__all__ = [
    "Call",
    "CallFinished",
    "Caller",
    "PausableTimeout",
    "Result",
    "get_required_capability",
    "make_request_key",
    "normalize_capabilities",
    "supports_request",
]

_log = logging.getLogger("forebay")

_CAPABILITY_MODES = {"elicitation": ("form", "url"), "sampling": ("context", "tools"), "roots": ()}
"""Capabilities that concern requests of servers, and what a client may declare in each of them."""

_REQUEST_MODELS: dict[str, type[BaseModel]] = {
    "elicitation/create": ElicitRequest,
    "sampling/createMessage": CreateMessageRequest,
    "roots/list": ListRootsRequest,
}

_CAPABILITY_BY_METHOD = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}

_BATCH_WINDOW_SECONDS = 0.05
"""Input requests that arrive within this time are sent to the client together."""

Result = dict[str, Any]


def get_required_capability(method: str) -> str | None:
    """Return the client capability that a server request needs."""
    return _CAPABILITY_BY_METHOD.get(method)


def normalize_capabilities(capabilities: object) -> dict[str, dict[str, Any]]:
    """Return those of a client's capabilities that concern requests of servers, in one of 40 forms."""
    declared = capabilities if isinstance(capabilities, Mapping) else {}
    normalized: dict[str, dict[str, Any]] = {
        name: {mode: {} for mode in modes if declared[name].get(mode) is not None}
        for name, modes in _CAPABILITY_MODES.items()
        if isinstance(declared.get(name), Mapping)
    }
    if normalized.get("elicitation") == {}:
        # Before there were modes, elicitation was by form.
        normalized["elicitation"] = {"form": {}}
    return normalized


def supports_request(capabilities: object, method: str, params: Mapping[str, Any]) -> bool:
    """Return whether a client with these capabilities accepts this server request."""
    declared = normalize_capabilities(capabilities).get(get_required_capability(method) or "")
    if declared is None:
        return False
    if method == "elicitation/create":
        return ("url" if params.get("mode") == "url" else "form") in declared
    if method == "sampling/createMessage" and ("tools" in params or "toolChoice" in params):
        return "tools" in declared
    return True


class CallFinished(Exception):
    """An input request arrived for a call that has ended; it must belong to another call."""


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """The client that makes a call."""

    principal: str | None
    identity: object
    """A value that is equal for all requests of one principal or client. Each anonymous request has its own."""
    capabilities: object = None

    def supports(self, method: str, params: Mapping[str, Any]) -> bool:
        """Return whether the client accepts this server request."""
        return supports_request(self.capabilities, method, params)


@dataclasses.dataclass(eq=False, slots=True)
class _InputRequest:
    """Request from the server to the client, and its future response."""

    request: dict[str, Any]
    response: asyncio.Future[Result]


class PausableTimeout:
    """Timeout that restarts on progress and pauses while the client answers an input request.

    It is a context manager, and raises `TimeoutError` in its block when the time is over. `None` means no limit.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._timeout = asyncio.timeout(None)
        self._pauses = 0
        self._is_running = False

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._is_running = True
        self.restart()

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_running = False
        await self._timeout.__aexit__(error_type, error, traceback)

    def restart(self) -> None:
        """Start the full time again."""
        if self._is_running and not self._timeout.expired():
            is_unlimited = self._seconds is None or self._pauses
            self._timeout.reschedule(None if is_unlimited else asyncio.get_running_loop().time() + (self._seconds or 0))

    def pause(self) -> None:
        """Stop the clock. Each `pause` needs a matching `resume`."""
        self._pauses += 1
        self.restart()

    def resume(self) -> None:
        self._pauses -= 1
        self.restart()


class Call:
    """Call to a server. It runs in its own task, which may outlive the client request that started the call."""

    def __init__(self, method: str, params: Mapping[str, Any], progress_token: object, caller: Caller) -> None:
        if method not in INPUT_REQUIRED_METHODS:
            caller = dataclasses.replace(caller, capabilities=None)
        self.caller = caller
        self.request_key = make_request_key(method, params)
        self.progress_token = progress_token
        """The progress token in the server's notifications."""
        self._open_requests: dict[str, _InputRequest] = {}
        self._key_numbers = itertools.count(1)
        self._state_changed = asyncio.Event()
        # Result sink of the request that starts the call. The relay passes a large result to this sink.
        self._sink = current_sink()

    def start(self, send: Callable[[PausableTimeout], Coroutine[Any, Any, Result]], timeout: float | None) -> None:
        """Send the call. The time that the client takes to answer input requests does not count for the timeout."""
        self.timeout = PausableTimeout(timeout)
        self._task = asyncio.create_task(send(self.timeout))
        self._task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[Result]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            # Read the error here: the client may never fetch it, and asyncio would then log a warning.
            _log.debug("forebay: a call failed: %s", error)
        self._state_changed.set()

    @property
    def is_finished(self) -> bool:
        return self._task.done()

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the call has ended for any reason."""
        self._task.add_done_callback(lambda _: callback())

    @property
    def input_requests(self) -> dict[str, dict[str, Any]]:
        """The open input requests, by the key under which the client must answer."""
        return {key: pending.request for key, pending in self._open_requests.items()}

    async def request_input(self, method: str, params: Mapping[str, Any] | None) -> Result:
        """Send an input request to the client and return its answer.

        Raises `CallFinished`, and `MCPError` if the client does not support the request.
        """
        if not self.caller.supports(method, params or {}):
            raise MCPError(code=METHOD_NOT_FOUND, message="Method not found", data=method)
        request = {"method": method} if params is None else {"method": method, "params": dict(params)}
        _validate_request(request)
        key = f"question-{next(self._key_numbers)}"
        pending = self._open_requests[key] = _InputRequest(request, asyncio.get_running_loop().create_future())
        self._state_changed.set()
        try:
            return await pending.response
        finally:
            self._open_requests.pop(key, None)

    async def wait_for_outcome(self) -> Result | None:
        """Return the result, or `None` if the client must answer an input request first."""
        while not self._task.done():
            if self._open_requests:
                await asyncio.wait([self._task], timeout=_BATCH_WINDOW_SECONDS)
                if self._open_requests and not self._task.done():
                    return None
            else:
                self._state_changed.clear()
                await self._state_changed.wait()
        self._fail_open_requests(CallFinished())
        sink = current_sink()
        if sink is not None and self._sink is not None:
            sink.replacement = self._sink.replacement
        return self._task.result()

    def pause(self) -> None:
        """Stop the timeout while the call waits for its client."""
        self.timeout.pause()

    def resume(self, answers: Mapping[str, Result]) -> None:
        """Continue with the client's answers. Requests without an answer stay open and are sent again."""
        sink = current_sink()
        if sink is not None and self._sink is not None:
            self._sink.call = sink.call
        self.timeout.resume()
        for key, answer in answers.items():
            pending = self._open_requests.pop(key, None)
            if pending is not None and not pending.response.done():
                pending.response.set_result(answer)

    def reject_inputs(self, code: int, message: str) -> None:
        """Answer the open input requests with an error; the call continues."""
        self._fail_open_requests(MCPError(code=code, message=message))

    def cancel(self, code: int, message: str) -> None:
        """Answer the open input requests with an error, then cancel the call."""
        self.reject_inputs(code, message)
        self._task.cancel()

    def _fail_open_requests(self, error: Exception) -> None:
        open_requests = [*self._open_requests.values()]
        self._open_requests.clear()
        for pending in open_requests:
            if not pending.response.done():
                pending.response.set_exception(error)


def make_request_key(method: str, params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a key that is equal for a request and for its repetitions with the client's answers.

    Fields that may differ between them are left out.
    """
    round_fields = ("_meta", "inputResponses", "requestState")
    return method, {key: value for key, value in params.items() if key not in round_fields}


def _validate_request(request: dict[str, Any]) -> None:
    """Raise `MCPError` if the server request is not valid in 2026-07-28."""
    try:
        _REQUEST_MODELS[request["method"]].model_validate(request, by_name=False)
    except ValidationError as error:
        problem = error.errors()[0]
        path = ".".join(str(part) for part in problem["loc"])
        raise MCPError(code=INVALID_PARAMS, message=f"{request['method']}: {path}: {problem['msg']}") from None
