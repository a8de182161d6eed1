"""Paused calls that another replica continues: the store carries the client's answers and the server's response.

A call that waits for its client (2026-07-28) runs in one process, whose server waits for the answers. A load balancer
may send the client's answers to another process. The first process offers the call under its `requestState`, and looks
for answers; the other process takes the offer, posts the answers, and waits for the outcome.
"""

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from forebay.errors import ForebayError
from forebay.hub.paused_calls import PausableCall, PausedCalls, read_answers, select_repeated
from forebay.store.mailbox import Mailbox
from forebay.wire.errors import RequestFailed
from forebay.wire.framing import Message
from forebay.wire.lazy_json import dump
from forebay.wire.messages import INVALID_PARAMS, parse, read_bytes

if TYPE_CHECKING:
    from forebay.hub.tenant import Request

__all__ = ["Handover"]

_log = logging.getLogger("forebay")

_MIN_POLL_SECONDS, _MAX_POLL_SECONDS = 0.05, 0.5
"""Interval of polling for a message: short at first, because many answers come soon."""

_PICKUP_SECONDS = 10.0
"""How long posted answers may wait until the process of the call is taken to be gone."""

_RESPONSE, _QUESTIONS, _FAILURE = b"r", b"q", b"f"
"""The first byte of an outcome."""


class Handover:
    """Lets other processes continue paused calls of this process, and continues theirs."""

    def __init__(self, mailbox: Mailbox, paused_calls: PausedCalls, timeout: float) -> None:
        self._mailbox = mailbox
        self._paused_calls = paused_calls
        paused_calls.on_pause = self._offer
        self._timeout = timeout
        self._tasks: set[asyncio.Task[None]] = set()

    # The process of the call

    async def _offer(self, state: str, call: PausableCall) -> None:
        """Let other processes continue a paused call, until it continues here or is cancelled.

        Return once the offer is stored: the client gets the state only after that.
        """
        try:
            await self._post(f"offer/{state}", _make_digest(call.principal, call.capabilities, call.request))
        except ForebayError as error:
            _log.warning("forebay: only this replica can continue a paused call: %s", error)
            return
        task = asyncio.create_task(self._serve(state, call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, state: str, call: PausableCall) -> None:
        try:
            answers = await self._poll(f"answers/{state}", self._timeout, lambda: self._paused_calls.is_paused(state))
            if answers is None:
                # The call was continued here, or has ended.
                await asyncio.to_thread(self._mailbox.take, f"offer/{state}")
                return
            if not self._paused_calls.claim(state):
                return
            call.resume(None, _parse_answers(answers))
            await self._post(f"outcome/{state}", await self._wait_for_outcome(call))
        except ForebayError as error:
            _log.warning("forebay: a paused call cannot be continued at another replica: %s", error)

    async def _wait_for_outcome(self, call: PausableCall) -> bytes:
        try:
            outcome = await self._paused_calls.wait(call)
        except (RequestFailed, ForebayError) as error:
            return _FAILURE + str(error).encode("utf-8", "replace")
        if isinstance(outcome, dict):
            return _QUESTIONS + dump(outcome)
        return _RESPONSE + read_bytes(outcome[1])

    # The process that the client answers to

    async def continue_call(
        self, principal: str | None, capabilities: Mapping[str, Any], request: "Request"
    ) -> Message | dict[str, Any] | None:
        """Continue a call of another process. Return the response of its server, or an input-required result.

        Returns `None` if no process offers such a call to this principal.
        """
        state, answers = request.params.get("requestState"), read_answers(request.params)
        offer = await asyncio.to_thread(self._mailbox.read, f"offer/{state}") if isinstance(state, str) else None
        if offer is None or offer != _make_digest(principal, capabilities, request):
            return None
        if await asyncio.to_thread(self._mailbox.take, f"offer/{state}") is None:
            return None
        await self._post(f"answers/{state}", dump(answers))
        outcome = await self._poll(f"outcome/{state}", _PICKUP_SECONDS)
        if outcome is None:
            if await asyncio.to_thread(self._mailbox.take, f"answers/{state}") is not None:
                # Nobody has taken the answers: the process of the call is gone.
                return None
            outcome = await self._poll(f"outcome/{state}", self._timeout)
        if outcome is None:
            raise RequestFailed(INVALID_PARAMS, "the replica that runs this call has not answered; call again")
        return _parse_outcome(outcome)

    async def _post(self, key: str, content: bytes) -> None:
        await asyncio.to_thread(self._mailbox.post, key, content, self._timeout)

    async def _poll(self, key: str, seconds: float, goes_on: Callable[[], bool] = lambda: True) -> bytes | None:
        """Take and return a message, or `None` if none comes in time or `goes_on` returns false."""
        loop = asyncio.get_running_loop()
        deadline, interval = loop.time() + seconds, _MIN_POLL_SECONDS
        while goes_on() and loop.time() < deadline:
            content = await asyncio.to_thread(self._mailbox.take, key)
            if content is not None:
                return content
            await asyncio.sleep(interval)
            interval = min(_MAX_POLL_SECONDS, interval * 1.5)
        return None

    async def close(self) -> None:
        """Stop looking for answers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _make_digest(principal: str | None, capabilities: Mapping[str, Any], request: "Request") -> bytes:
    """Return a digest of what a request and its repetition with answers have in common."""
    described = dump([principal, dict(capabilities), request.pending.method, select_repeated(request.params)])
    # Members are sorted, except in JSON that is nested too deeply.
    with contextlib.suppress(ValueError, RecursionError):
        described = orjson.dumps(orjson.loads(described), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(described).digest()


def _parse_answers(content: bytes) -> dict[str, Any]:
    answers = parse(content)
    return answers if isinstance(answers, dict) else {}


def _parse_outcome(outcome: bytes) -> Message | dict[str, Any]:
    kind, content = outcome[:1], outcome[1:]
    if kind == _QUESTIONS:
        questions: dict[str, Any] = orjson.loads(content)
        return questions
    if kind == _FAILURE:
        raise RequestFailed(INVALID_PARAMS, content.decode())
    return content
