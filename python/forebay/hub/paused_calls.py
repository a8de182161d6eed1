"""Calls that pause until the client answers a question of the server in another request (2026-07-28)."""

import asyncio
import contextlib
import dataclasses
import itertools
import json
import logging
import secrets
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from forebay.hub.connection import ServerConnection
from forebay.hub.exchanges import Exchange, Response, keep_response
from forebay.wire.errors import RequestFailed
from forebay.wire.framing import Message
from forebay.wire.lazy_json import LazyJSON, dump, open_container
from forebay.wire.messages import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from forebay.wire.protocol import REQUEST_TIMEOUT, check_input_request, supports_request

if TYPE_CHECKING:
    from forebay.hub.tenant import Request, RoutedRequest

__all__ = ["PausableCall", "PausedCalls", "has_answers", "read_answers", "select_repeated"]

_log = logging.getLogger("forebay")

_MAX_PAUSED_CALLS = 32
"""Maximum number of paused calls of one principal."""

_BATCH_WINDOW_SECONDS = 0.05
"""Questions that arrive within this time are sent to the client together."""

_ANSWER_PARAMS = ("inputResponses", "requestState")
"""Params that only a request with answers has."""


@dataclasses.dataclass(eq=False, slots=True)
class _Question:
    """Request of the server, and the answer of the client to come."""

    request: dict[str, Any]
    answer: "asyncio.Future[dict[str, Any]]"


class PausableCall:
    """Call to a server that may ask its client. It runs in its own task, which may outlive the client's request."""

    def __init__(
        self, routed: "RoutedRequest", principal: str | None, identity: object, capabilities: Mapping[str, Any]
    ) -> None:
        self.connection = routed.connection
        self.principal = principal
        self.identity = identity
        self.request = routed.request
        self.expiry_timer: asyncio.TimerHandle | None = None
        """Cancels the call if the client does not answer. It runs while the call is paused."""
        self.capabilities = capabilities
        self._questions: dict[str, _Question] = {}
        self._numbers = itertools.count(1)
        self._has_changed = asyncio.Event()

    def start(
        self, exchange: Exchange, raw: Message, keep_open: Callable[[], AbstractAsyncContextManager[object]]
    ) -> None:
        """Send the call. `keep_open` keeps the connection open while the call is paused and no request is in flight."""
        exchange.respondent = self
        # The response is handled later, for the request that is in flight then.
        exchange.finish, exchange.inline_limit = keep_response, sys.maxsize
        self.exchange = exchange

        async def run() -> Response:
            async with keep_open():
                response: Response = await self.connection.complete(exchange, raw)
                return response

        self._task = asyncio.create_task(run())
        self._task.add_done_callback(self._on_done)

    def _on_done(self, task: "asyncio.Task[Any]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            # Read the error here: the client may never fetch it, and asyncio would then log a warning.
            _log.debug("forebay: a call failed: %s", error)
        self._has_changed.set()

    @property
    def questions(self) -> dict[str, dict[str, Any]]:
        """The open questions, by the key under which the client must answer."""
        return {key: question.request for key, question in self._questions.items()}

    def supports(self, method: str, params: Mapping[str, Any]) -> bool:
        return not self._task.done() and supports_request(self.capabilities, method, params)

    async def ask(
        self, connection: ServerConnection, message: Mapping[str, Any], raw: Message, exchange: Exchange | None
    ) -> dict[str, Any]:
        del connection, raw, exchange
        if self._task.done():
            raise RequestFailed(METHOD_NOT_FOUND, "Method not found", message["method"])
        params = open_container(message.get("params"))
        if not isinstance(params, dict | None):
            raise RequestFailed(INVALID_PARAMS, "params must be an object if present, and its names valid text")
        check_input_request(message["method"], params or {})
        key = f"question-{next(self._numbers)}"
        request = {"method": message["method"]} if params is None else {"method": message["method"], "params": params}
        question = self._questions[key] = _Question(request, asyncio.get_running_loop().create_future())
        self._has_changed.set()
        try:
            return await question.answer
        finally:
            self._questions.pop(key, None)

    async def wait(self) -> Response | None:
        """Return the response, or `None` if the client must answer a question first."""
        while not self._task.done():
            if self._questions:
                await asyncio.wait([self._task], timeout=_BATCH_WINDOW_SECONDS)
                if self._questions and not self._task.done():
                    return None
            else:
                self._has_changed.clear()
                await self._has_changed.wait()
        # Nobody would read the answers.
        self.refuse_questions(METHOD_NOT_FOUND, "Method not found")
        return self._task.result()

    def pause(self) -> None:
        """Stop the timeout while the call waits for its client."""
        self.exchange.pauses += 1
        self.connection.exchanges.restart_timer(self.exchange)

    def resume(self, request: "Request | None", answers: Mapping[str, Any]) -> None:
        """Continue with the client's answers. Questions without an answer stay open and are sent again.

        Without a request, there is no way to send progress to the client.
        """
        self.exchange.reply = None if request is None else request.reply
        self.exchange.progress_token = None if request is None else request.progress_token
        self.exchange.pauses -= 1
        if self.expiry_timer is not None:
            self.expiry_timer.cancel()
        self.connection.exchanges.restart_timer(self.exchange)
        for key, answer in answers.items():
            question = self._questions.pop(key, None)
            if question is not None and not question.answer.done():
                question.answer.set_result({"result": answer})

    def refuse_questions(self, code: int, message: str) -> None:
        """Answer the open questions with an error; the call continues."""
        questions, self._questions = [*self._questions.values()], {}
        for question in questions:
            if not question.answer.done():
                question.answer.set_exception(RequestFailed(code, message))

    def cancel(self, code: int, message: str) -> None:
        """Answer the open questions with an error, then cancel the call."""
        if self.expiry_timer is not None:
            self.expiry_timer.cancel()
        self.refuse_questions(code, message)
        self._task.cancel()


class PausedCalls:
    """The paused calls of all clients by `requestState`. Each state can be used once, to continue its call."""

    def __init__(self, answer_timeout: float) -> None:
        self._answer_timeout = answer_timeout
        self.on_pause: Callable[[str, PausableCall], Awaitable[None]] = _do_nothing
        """Called with each call that waits for its client, and its state."""
        self._paused: dict[str, PausableCall] = {}

    def resume(self, routed: "RoutedRequest", principal: str | None) -> PausableCall | None:
        """Resume and return the paused call that a request continues; `None` if it continues none of this process."""
        request, params = routed.request, routed.request.params
        state = params.get("requestState")
        call = self._paused.get(state) if isinstance(state, str) else None
        owner = principal, routed.connection
        if call is None or (call.principal, call.connection) != owner or not _is_repetition(call.request, request):
            return None
        answers = read_answers(params)
        del self._paused[str(state)]
        call.resume(request, answers)
        return call

    def is_paused(self, state: str) -> bool:
        return state in self._paused

    def claim(self, state: str) -> bool:
        """Take a paused call, to continue it, and return whether it was still paused."""
        return self._paused.pop(state, None) is not None

    async def wait(self, call: PausableCall) -> Response | dict[str, Any]:
        """Return the response to a call or, if its server asks something, an input-required result.

        If this task is cancelled, the call is cancelled, too.
        """
        try:
            while (outcome := await call.wait()) is None:
                if self._can_pause(call):
                    return await self._pause(call)
                call.refuse_questions(INTERNAL_ERROR, "too many calls wait for their client already; retry later")
            return outcome
        except asyncio.CancelledError:
            call.cancel(INTERNAL_ERROR, "the client has cancelled the call")
            raise

    def _can_pause(self, call: PausableCall) -> bool:
        count = sum(paused.principal == call.principal for paused in self._paused.values())
        return count < _MAX_PAUSED_CALLS

    async def _pause(self, call: PausableCall) -> dict[str, Any]:
        state = secrets.token_urlsafe(32)
        call.expiry_timer = asyncio.get_running_loop().call_later(self._answer_timeout, self._expire, state)
        self._paused[state] = call
        call.pause()
        questions = call.questions
        await self.on_pause(state, call)
        return {"inputRequests": questions, "requestState": state}

    def _expire(self, state: str) -> None:
        message = f"the client did not answer within {self._answer_timeout:g} s"
        self._paused.pop(state).cancel(REQUEST_TIMEOUT, message)

    def close(self) -> None:
        """Cancel all paused calls."""
        paused_calls = [*self._paused.values()]
        self._paused.clear()
        for call in paused_calls:
            call.cancel(INTERNAL_ERROR, "the gateway is about to end")


async def _do_nothing(state: str, call: PausableCall) -> None: ...


def has_answers(params: Mapping[str, Any]) -> bool:
    """Return whether a request continues a call, and is not a new one."""
    return any(params.get(name) is not None for name in _ANSWER_PARAMS)


def select_repeated(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params that a request with answers must repeat."""
    return {key: value for key, value in params.items() if key not in ("_meta", *_ANSWER_PARAMS)}


def read_answers(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the client's answers. Raises `RequestFailed` if they are not valid."""
    answers = open_container(params.get("inputResponses"))
    answers = {} if answers is None else answers
    if not isinstance(answers, dict) or not all(isinstance(answer, dict | LazyJSON) for answer in answers.values()):
        raise RequestFailed(INVALID_PARAMS, "params.inputResponses must be an object of results if present")
    return answers


def _is_repetition(first: "Request", second: "Request") -> bool:
    """Return whether two requests differ only in their answers, or in the order of members."""
    if first.pending.method != second.pending.method:
        return False
    dumps = [dump(select_repeated(request.params)) for request in (first, second)]
    # Only if necessary: the arguments may be large, or nested too deeply for this.
    with contextlib.suppress(RecursionError, ValueError):
        return dumps[0] == dumps[1] or json.loads(dumps[0]) == json.loads(dumps[1])
    return False
