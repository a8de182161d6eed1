"""A call of a client whose requests stand alone, at a server that may ask that client something before it answers."""

import asyncio
import dataclasses
import itertools
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND, CreateMessageRequest, ElicitRequest, ListRootsRequest
from mcp_types.methods import INPUT_REQUIRED_METHODS
from pydantic import BaseModel, ValidationError

from forebay.hub.timeouts import Limit
from forebay.outputs.sink import current_delivery

__all__ = ["CAPABILITIES", "Call", "CallOver", "Caller", "Result", "can_be_asked", "capability_for", "request_of"]

_log = logging.getLogger("forebay")

CAPABILITIES: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"context": {}, "tools": {}},
    "roots": {},
}
"""What a server is told that may be asked; what of it can be asked of a client, that says with each request."""

_KINDS: dict[str, type[BaseModel]] = {
    "elicitation/create": ElicitRequest,
    "sampling/createMessage": CreateMessageRequest,
    "roots/list": ListRootsRequest,
}

_CAPABILITY = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}

_TOGETHER = 0.05
"""Seconds: what a server asks at the same time goes out together."""

Result = dict[str, Any]


def capability_for(method: str) -> str | None:
    """What a client must be able to do that is asked this."""
    return _CAPABILITY.get(method)


def can_be_asked(capabilities: object, method: str, params: Mapping[str, Any]) -> bool:
    """Whether a client that says it can do this can be asked that."""
    said = capabilities.get(capability_for(method)) if isinstance(capabilities, Mapping) else None
    if not isinstance(said, Mapping):
        return False
    if method == "elicitation/create" and params.get("mode") == "url":
        return "url" in said
    if method == "sampling/createMessage" and "tools" in params:
        return "tools" in said
    return True


class CallOver(Exception):
    """A call has ended, and what its server asks was not asked in it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a call."""

    principal: str | None
    one: object
    """The same for requests that are known to be of the same principal or client: nobodies are not."""
    capabilities: object = None

    def can(self, method: str, params: Mapping[str, Any]) -> bool:
        """Whether it can be asked this."""
        return can_be_asked(self.capabilities, method, params)


@dataclasses.dataclass(eq=False, slots=True)
class _Question:
    request: dict[str, Any]
    answer: asyncio.Future[Result]


class Call:
    """Its server works on it in a task of its own, which outlasts the request that began it."""

    def __init__(self, method: str, params: Mapping[str, Any], token: object, caller: Caller) -> None:
        if method not in INPUT_REQUIRED_METHODS:
            caller = dataclasses.replace(caller, capabilities=None)
        self.caller = caller
        self.request = request_of(method, params)
        self.token = token
        """By which its server reports progress."""
        self._open: dict[str, _Question] = {}
        self._numbers = itertools.count(1)
        self._changed = asyncio.Event()
        # It is kept here because a result that is stored is told to it, by whoever reads it off the wire.
        self._delivery = current_delivery()

    def start(self, send: Callable[[Limit], Coroutine[Any, Any, Result]], seconds: float | None) -> None:
        """Sends it. It may take so long, but for the time that its client takes to answer."""
        self.limit = Limit(seconds)
        self._task = asyncio.create_task(send(self.limit))
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Result]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            # Nobody may come back to hear of it.
            _log.debug("forebay: a call failed: %s", error)
        self._changed.set()

    @property
    def is_over(self) -> bool:
        return self._task.done()

    def when_over(self, step: Callable[[], object]) -> None:
        """Soon after it has ended, however it did."""
        self._task.add_done_callback(lambda _: step())

    @property
    def questions(self) -> dict[str, dict[str, Any]]:
        """What its server waits for, by the keys that the answers are to have."""
        return {key: question.request for key, question in self._open.items()}

    async def ask(self, method: str, params: Mapping[str, Any] | None) -> Result:
        """What the client answers. Raises `MCPError` where it cannot be asked, and `CallOver`."""
        if not self.caller.can(method, params or {}):
            raise MCPError(code=METHOD_NOT_FOUND, message="Method not found", data=method)
        request = {"method": method} if params is None else {"method": method, "params": dict(params)}
        _check(request)
        key = f"question-{next(self._numbers)}"
        question = self._open[key] = _Question(request, asyncio.get_running_loop().create_future())
        self._changed.set()
        try:
            return await question.answer
        finally:
            self._open.pop(key, None)

    async def news(self) -> Result | None:
        """The result; `None` if there is something to be asked before."""
        while not self._task.done():
            if self._open:
                await asyncio.wait([self._task], timeout=_TOGETHER)
                if self._open and not self._task.done():
                    return None
            else:
                self._changed.clear()
                await self._changed.wait()
        self._refuse(CallOver())
        now = current_delivery()
        if now is not None and self._delivery is not None:
            now.answer = self._delivery.answer
        return self._task.result()

    def pause(self) -> None:
        """It waits for its client, and takes no time."""
        self.limit.pause()

    def go_on(self, answers: Mapping[str, Result]) -> None:
        """Its client has come back. What it did not answer is asked again."""
        now = current_delivery()
        if now is not None and self._delivery is not None:
            self._delivery.call = now.call
        self.limit.go_on()
        for key, answer in answers.items():
            question = self._open.pop(key, None)
            if question is not None and not question.answer.done():
                question.answer.set_result(answer)

    def refuse(self, code: int, message: str) -> None:
        """Tells its server that what it asks is not answered; the call goes on."""
        self._refuse(MCPError(code=code, message=message))

    def end(self, code: int, message: str) -> None:
        """Tells its server that what it asks is not answered, and then that nobody waits for the call any more."""
        self.refuse(code, message)
        self._task.cancel()

    def _refuse(self, error: Exception) -> None:
        questions = [*self._open.values()]
        self._open.clear()
        for question in questions:
            if not question.answer.done():
                question.answer.set_exception(error)


def request_of(method: str, params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """What a request asks for, whichever round it is of."""
    beside = ("_meta", "inputResponses", "requestState")
    return method, {key: value for key, value in params.items() if key not in beside}


def _check(request: dict[str, Any]) -> None:
    """Raises `MCPError` for what no client of the newest version could read."""
    try:
        _KINDS[request["method"]].model_validate(request, by_name=False)
    except ValidationError as error:
        wrong = error.errors()[0]
        where = ".".join(str(part) for part in wrong["loc"])
        raise MCPError(code=INVALID_PARAMS, message=f"{request['method']}: {where}: {wrong['msg']}") from None
