"""A call of a client whose requests stand alone, at a server that may ask that client something before it answers."""

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
    "CLIENT_CAPABILITIES",
    "Call",
    "CallFinished",
    "Caller",
    "PausableTimeout",
    "Result",
    "request_key",
    "required_capability",
    "supports_request",
]

_log = logging.getLogger("forebay")

CLIENT_CAPABILITIES: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"context": {}, "tools": {}},
    "roots": {},
}
"""What a server is told that may be asked; what of it can be asked of a client, that says with each request."""

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

_BATCH_SECONDS = 0.05
"""Seconds: what a server asks at the same time goes out together."""

Result = dict[str, Any]


def required_capability(method: str) -> str | None:
    """What a client must be able to do that is asked this."""
    return _CAPABILITY_BY_METHOD.get(method)


def supports_request(capabilities: object, method: str, params: Mapping[str, Any]) -> bool:
    """Whether a client that says it can do this can be asked that."""
    said = capabilities.get(required_capability(method)) if isinstance(capabilities, Mapping) else None
    if not isinstance(said, Mapping):
        return False
    if method == "elicitation/create" and params.get("mode") == "url":
        return "url" in said
    if method == "sampling/createMessage" and "tools" in params:
        return "tools" in said
    return True


class CallFinished(Exception):
    """A call has ended, and what its server asks was not asked in it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a call."""

    principal: str | None
    identity: object
    """The same for requests that are known to be of the same principal or client: nobodies are not."""
    capabilities: object = None

    def supports(self, method: str, params: Mapping[str, Any]) -> bool:
        """Whether it can be asked this."""
        return supports_request(self.capabilities, method, params)


@dataclasses.dataclass(eq=False, slots=True)
class _InputRequest:
    request: dict[str, Any]
    response: asyncio.Future[Result]


class PausableTimeout:
    """Seconds from when it was asked, or last said how far it is, but for the time that its client takes to answer.

    Raises `TimeoutError` when they are over. With `None` there is no limit.
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
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_running = False
        await self._timeout.__aexit__(kind, error, trace)

    def restart(self) -> None:
        """It has all of its time once more."""
        if self._is_running and not self._timeout.expired():
            is_open = self._seconds is None or self._pauses
            self._timeout.reschedule(None if is_open else asyncio.get_running_loop().time() + (self._seconds or 0))

    def pause(self) -> None:
        """Someone else is to do something first; as often as this is called, `go_on` is to be."""
        self._pauses += 1
        self.restart()

    def resume(self) -> None:
        self._pauses -= 1
        self.restart()


class Call:
    """Its server works on it in a task of its own, which outlasts the request that began it."""

    def __init__(self, method: str, params: Mapping[str, Any], progress_token: object, caller: Caller) -> None:
        if method not in INPUT_REQUIRED_METHODS:
            caller = dataclasses.replace(caller, capabilities=None)
        self.caller = caller
        self.request = request_key(method, params)
        self.progress_token = progress_token
        """By which its server reports progress."""
        self._open_requests: dict[str, _InputRequest] = {}
        self._numbers = itertools.count(1)
        self._state_changed = asyncio.Event()
        # It is kept here because a result that is stored is told to it, by whoever reads it off the wire.
        self._sink = current_sink()

    def start(self, send: Callable[[PausableTimeout], Coroutine[Any, Any, Result]], seconds: float | None) -> None:
        """Sends it. It may take so long, but for the time that its client takes to answer."""
        self.timeout = PausableTimeout(seconds)
        self._task = asyncio.create_task(send(self.timeout))
        self._task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[Result]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            # Nobody may come back to hear of it.
            _log.debug("forebay: a call failed: %s", error)
        self._state_changed.set()

    @property
    def is_finished(self) -> bool:
        return self._task.done()

    def add_done_callback(self, step: Callable[[], object]) -> None:
        """Soon after it has ended, however it did."""
        self._task.add_done_callback(lambda _: step())

    @property
    def input_requests(self) -> dict[str, dict[str, Any]]:
        """What its server waits for, by the keys that the answers are to have."""
        return {key: question.request for key, question in self._open_requests.items()}

    async def request_input(self, method: str, params: Mapping[str, Any] | None) -> Result:
        """What the client answers. Raises `MCPError` where it cannot be asked, and `CallOver`."""
        if not self.caller.supports(method, params or {}):
            raise MCPError(code=METHOD_NOT_FOUND, message="Method not found", data=method)
        request = {"method": method} if params is None else {"method": method, "params": dict(params)}
        _validate_request(request)
        key = f"question-{next(self._numbers)}"
        question = self._open_requests[key] = _InputRequest(request, asyncio.get_running_loop().create_future())
        self._state_changed.set()
        try:
            return await question.response
        finally:
            self._open_requests.pop(key, None)

    async def wait_for_outcome(self) -> Result | None:
        """The result; `None` if there is something to be asked before."""
        while not self._task.done():
            if self._open_requests:
                await asyncio.wait([self._task], timeout=_BATCH_SECONDS)
                if self._open_requests and not self._task.done():
                    return None
            else:
                self._state_changed.clear()
                await self._state_changed.wait()
        self._fail_open_requests(CallFinished())
        now = current_sink()
        if now is not None and self._sink is not None:
            now.replacement = self._sink.replacement
        return self._task.result()

    def pause(self) -> None:
        """It waits for its client, and takes no time."""
        self.timeout.pause()

    def resume(self, answers: Mapping[str, Result]) -> None:
        """Its client has come back. What it did not answer is asked again."""
        now = current_sink()
        if now is not None and self._sink is not None:
            self._sink.call = now.call
        self.timeout.resume()
        for key, answer in answers.items():
            question = self._open_requests.pop(key, None)
            if question is not None and not question.response.done():
                question.response.set_result(answer)

    def reject_inputs(self, code: int, message: str) -> None:
        """Tells its server that what it asks is not answered; the call goes on."""
        self._fail_open_requests(MCPError(code=code, message=message))

    def cancel(self, code: int, message: str) -> None:
        """Tells its server that what it asks is not answered, and then that nobody waits for the call any more."""
        self.reject_inputs(code, message)
        self._task.cancel()

    def _fail_open_requests(self, error: Exception) -> None:
        questions = [*self._open_requests.values()]
        self._open_requests.clear()
        for question in questions:
            if not question.response.done():
                question.response.set_exception(error)


def request_key(method: str, params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """What a request asks for, whichever round it is of."""
    beside = ("_meta", "inputResponses", "requestState")
    return method, {key: value for key, value in params.items() if key not in beside}


def _validate_request(request: dict[str, Any]) -> None:
    """Raises `MCPError` for what no client of the newest version could read."""
    try:
        _REQUEST_MODELS[request["method"]].model_validate(request, by_name=False)
    except ValidationError as error:
        wrong = error.errors()[0]
        where = ".".join(str(part) for part in wrong["loc"])
        raise MCPError(code=INVALID_PARAMS, message=f"{request['method']}: {where}: {wrong['msg']}") from None
