"""The caller's side of the call protocol: sends requests and waits for the events that answer them."""

import asyncio
import logging
import time
import uuid
from collections.abc import Mapping
from typing import Any, Self, TypeAlias, cast

from forebay.arguments import short_repr
from forebay.envelope import ResponseEnvelope, is_response_envelope
from forebay.errors import InvalidArgument
from forebay.operations.bus.events import (
    CallAbortedEvent,
    CallErrorEvent,
    InProcessPubSub,
    PubSub,
    Unsubscribe,
    build_requested_event,
    subscribe_all,
)
from forebay.operations.deadlines import (
    CLEANUP_SECONDS,
    DeadlineScope,
    deadline_after,
    earliest_deadline,
    wait_bounded,
    wait_shielded,
)
from forebay.operations.errors import CODES, CallCode, CallError
from forebay.operations.spec import CallContext, Identity

__all__ = ["PendingRequestMap"]

_log = logging.getLogger("forebay")

_CLOSED_MESSAGE = "the calls of this map were ended when it was closed; make another PendingRequestMap"

_Outcome: TypeAlias = ResponseEnvelope[Any] | CallError


class PendingRequestMap:
    """Calls operations over a `PubSub` and waits for their responses. Responses after the first are ignored.

    A call waits until its deadline or for `timeout` seconds; without either, until it is answered.
    """

    def __init__(self, pubsub: PubSub | None = None, *, timeout: float | None = None) -> None:
        self.pubsub: PubSub = pubsub if pubsub is not None else InProcessPubSub()
        self._timeout = timeout
        self._pending: dict[str, asyncio.Future[_Outcome]] = {}
        self._unsubscribe: Unsubscribe | None = None
        self._subscribe_lock = asyncio.Lock()
        self._is_closed = False

    async def call(
        self,
        operation_id: str,
        input: Any = None,  # noqa: A002
        *,
        identity: Identity | None = None,
        deadline: float | None = None,
        timeout: float | None = None,
        parent_request_id: str | None = None,
    ) -> ResponseEnvelope[Any]:
        """Call an operation and return its envelope. Raises `CallError` if the call fails.

        `deadline` is in seconds of `time.monotonic()`; with a `timeout` too, the earlier one counts. When the deadline
        passes or the caller is cancelled, the call is also aborted in the process that runs the operation.
        """
        if not isinstance(operation_id, str):
            raise InvalidArgument(
                f"an operation is called by its id, such as 'crm.get', not {short_repr(operation_id)}"
            )
        if identity is not None and not isinstance(identity, Identity):
            raise InvalidArgument(f"identity is an Identity(id, scopes), not {short_repr(identity)}")
        deadline = earliest_deadline(deadline, deadline_after(self._timeout if timeout is None else timeout))
        context = CallContext(str(uuid.uuid4()), parent_request_id, identity, deadline)
        async with DeadlineScope(deadline, operation_id):
            outcome = await self._request(operation_id, input, context)
        if isinstance(outcome, CallError):
            raise outcome
        return outcome

    async def call_nested(self, parent: CallContext, operation_id: str, input_data: Any, /) -> ResponseEnvelope[Any]:
        """Call an operation on behalf of the `parent` call, with the identity and deadline of `parent`."""
        return await self.call(
            operation_id,
            input_data,
            identity=parent.identity,
            deadline=parent.deadline,
            parent_request_id=parent.request_id or parent.parent_request_id,
        )

    async def respond(self, request_id: str, envelope: ResponseEnvelope[Any] | Mapping[str, Any]) -> None:
        """Publish the response to a call. Raises `InvalidArgument` if the response is not an envelope."""
        if not is_response_envelope(envelope):
            raise InvalidArgument(f"a call is answered with an envelope, not {type(envelope).__name__}; wrap it first")
        output = envelope.to_dict() if isinstance(envelope, ResponseEnvelope) else envelope
        await self.pubsub.publish("call.responded", {"requestId": request_id, "output": output})

    async def error(
        self, request_id: str, code: CallCode, message: str, details: Mapping[str, Any] | None = None
    ) -> None:
        """Publish the failure of a call."""
        event: CallErrorEvent = {"requestId": request_id, "code": code, "message": message}
        if details:
            event["details"] = dict(details)
        await self.pubsub.publish("call.error", event)

    async def abort(self, request_id: str, reason: str | None = None) -> None:
        """Abort a call, both for its caller and for its handler."""
        event: CallAbortedEvent = {"requestId": request_id}
        if reason is not None:
            event["reason"] = reason
        await self.pubsub.publish("call.aborted", event)

    async def close(self) -> None:
        """End all pending calls with `ABORTED`, and accept no more calls."""
        self._is_closed = True
        request_ids = [*self._pending]
        for request_id in request_ids:
            self._settle(request_id, CallError("ABORTED", _CLOSED_MESSAGE))
        await wait_shielded(self._shut_down(request_ids))

    async def _shut_down(self, request_ids: list[str]) -> None:
        await asyncio.gather(*(self._publish_abort(request_id, "its caller was closed") for request_id in request_ids))
        async with asyncio.timeout(CLEANUP_SECONDS), self._subscribe_lock:
            if self._unsubscribe is not None:
                await self._unsubscribe()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _request(self, operation_id: str, input_data: Any, context: CallContext) -> _Outcome:
        request_id = context.request_id or ""
        response: asyncio.Future[_Outcome] = asyncio.get_running_loop().create_future()
        try:
            await self._ensure_subscribed()
            if self._is_closed:
                return CallError("ABORTED", _CLOSED_MESSAGE)
            self._pending[request_id] = response
            await self.pubsub.publish("call.requested", build_requested_event(operation_id, input_data, context))
            return await response
        except asyncio.CancelledError:
            # Either the caller was cancelled, or the deadline has passed and `DeadlineScope` has cancelled this call.
            is_late = context.deadline is not None and time.monotonic() >= context.deadline
            reason = "its deadline passed" if is_late else "its caller was cancelled"
            await wait_shielded(self._publish_abort(request_id, reason))
            raise
        except Exception as error:
            return CallError("EXECUTION_ERROR", f"{operation_id} could not be asked for: {str(error)[:1000]}")
        finally:
            self._pending.pop(request_id, None)

    async def _publish_abort(self, request_id: str, reason: str) -> None:
        try:
            await wait_bounded(self.abort(request_id, reason))
        except Exception:
            _log.warning("forebay: nobody could be told that %s was aborted", request_id, exc_info=True)

    async def _ensure_subscribed(self) -> None:
        async with self._subscribe_lock:
            if self._unsubscribe is not None or self._is_closed:
                return
            self._unsubscribe = await subscribe_all(
                self.pubsub,
                {"call.responded": self._on_responded, "call.error": self._on_error, "call.aborted": self._on_aborted},
            )

    def _on_responded(self, event: Any) -> None:
        if self._is_pending(event):
            self._settle(event["requestId"], _parse_output(event.get("output")))

    def _on_error(self, event: Any) -> None:
        if self._is_pending(event):
            self._settle(event["requestId"], _parse_error(event))

    def _on_aborted(self, event: Any) -> None:
        if self._is_pending(event):
            reason = str(event.get("reason") or "no reason was given")
            self._settle(event["requestId"], CallError("ABORTED", f"this call was aborted: {reason[:1000]}"))

    def _is_pending(self, event: Any) -> bool:
        """Return whether an event belongs to a call pending here: callers share topics, and events may arrive twice."""
        match event:
            case {"requestId": str(request_id)}:
                return request_id in self._pending
        return False

    def _settle(self, request_id: str, outcome: _Outcome) -> None:
        response = self._pending.pop(request_id)
        if not response.done():
            response.set_result(outcome)


def _parse_output(output: Any) -> _Outcome:
    """Return the envelope of a response."""
    try:
        return ResponseEnvelope.from_dict(output)
    except InvalidArgument as error:
        return CallError("EXECUTION_ERROR", f"this call was answered with no envelope: {error}")


def _parse_error(event: Mapping[str, Any]) -> CallError:
    """Return the error of a `call.error` event, with defaults for missing or invalid fields."""
    code, message, details = event.get("code"), event.get("message"), event.get("details")
    return CallError(
        cast("CallCode", code) if code in CODES else "EXECUTION_ERROR",
        str(message or "this call failed, and nobody said why"),
        details if isinstance(details, Mapping) else None,
    )
