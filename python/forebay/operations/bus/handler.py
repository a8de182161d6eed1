"""The handler's side of the call protocol: runs the requested operations and publishes their outcomes.

calls = PendingRequestMap()
async with CallHandler(registry, calls):
    envelope = await calls.call("crm.get", {"id": 7}, identity=Identity("ada", ["crm:read"]), timeout=5.0)
"""

import asyncio
import contextvars
import dataclasses
import logging
from collections.abc import Mapping, Set
from typing import Any, Self, TypeAlias, cast

from forebay.envelope import ResponseEnvelope
from forebay.errors import InvalidArgument
from forebay.operations.bus.events import Unsubscribe, context_from_event, subscribe_all
from forebay.operations.bus.pending import PendingRequestMap
from forebay.operations.deadlines import CLEANUP_SECONDS, DeadlineScope, wait_shielded
from forebay.operations.errors import CallError
from forebay.operations.registry import OperationRegistry, run_operation
from forebay.operations.spec import CallContext, Identity, OperationSpec, build_env

__all__ = ["CallHandler"]

_log = logging.getLogger("forebay")

_MAX_SETTLED_IDS = 4096
"""Maximum number of settled calls whose ids are remembered. A request with such an id is ignored."""

_Task: TypeAlias = asyncio.Task[None]

_enclosing_calls: contextvars.ContextVar[frozenset[_Task]] = contextvars.ContextVar(
    "enclosing_calls", default=frozenset()
)
"""Task of the call that the current code runs in, and tasks of all calls that led to this call."""


class CallHandler:
    """Runs the operations of a registry that are requested over the bus, each in its own task.

    Nested calls through `context.env` go over the bus too, so that the access of the original caller is checked again.
    """

    def __init__(self, registry: OperationRegistry, call_map: PendingRequestMap) -> None:
        if not isinstance(registry, OperationRegistry) or not isinstance(call_map, PendingRequestMap):
            raise InvalidArgument("a CallHandler takes a registry, and then the PendingRequestMap that asks")
        self._registry = registry
        self._call_map = call_map
        self._running: dict[str, _Task] = {}
        self._tasks: dict[_Task, frozenset[_Task]] = {}
        """All unfinished tasks, aborted ones included. Each value holds the task itself and its enclosing tasks."""
        self._closing_tasks: set[_Task] = set()
        """Tasks of calls whose own code closes this handler. Two such calls must not wait for each other."""
        self._deadline_scopes: dict[_Task, DeadlineScope] = {}
        """Deadlines of the running calls that have one."""
        self._settled_ids: dict[str, None] = {}
        """Ids of the latest answered or aborted calls: a transport may deliver events again or out of order."""
        self._subscribe_lock = asyncio.Lock()
        self._unsubscribe: Unsubscribe | None = None
        self._is_closing = False

    async def start(self) -> None:
        """Start answering calls."""
        async with self._subscribe_lock:
            self._is_closing = False
            if self._unsubscribe is None:
                self._unsubscribe = await subscribe_all(
                    self._call_map.pubsub, {"call.requested": self._on_requested, "call.aborted": self._on_aborted}
                )

    async def close(self, *, timeout: float | None = None) -> None:
        """Accept no more calls, and wait for the running calls. After `timeout` seconds, abort those that still run.

        Without a `timeout`, `close` waits as long as they run. Cancelling `close` aborts the running calls too. An
        operation that closes its own handler is not aborted.
        """
        self._is_closing = True
        spared_tasks = self._find_closing_tasks()
        try:
            if others := self._tasks.keys() - spared_tasks:
                # The handler stays subscribed during the wait, because running calls may make nested calls.
                await asyncio.wait(others, timeout=timeout)
        finally:
            await wait_shielded(self._shut_down(spared_tasks))

    def _find_closing_tasks(self) -> Set[_Task]:
        """Return the tasks that wait for this handler to close. The set grows when more tasks call `close`."""
        if not (enclosing := _enclosing_calls.get() & self._tasks.keys()):
            return frozenset()
        self._closing_tasks |= enclosing
        return self._closing_tasks

    async def _shut_down(self, spared_tasks: Set[_Task]) -> None:
        try:
            if others := self._tasks.keys() - spared_tasks:
                # Let new tasks start: a task that is cancelled before its start never publishes its outcome.
                await asyncio.sleep(0)
                for task in others & {*self._running.values()}:
                    self._remove_deadline(task)
                    task.cancel()
                await asyncio.wait(others)
        finally:
            async with asyncio.timeout(CLEANUP_SECONDS), self._subscribe_lock:
                if self._unsubscribe is not None:
                    await self._unsubscribe()
                    self._unsubscribe = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, error_type: object, *_: object) -> None:
        await self.close(timeout=None if error_type is None else 0)

    def _on_requested(self, event: Any) -> None:
        match event:
            case {"requestId": str(request_id), "operationId": str()}:
                if request_id not in self._running and request_id not in self._settled_ids:
                    self._start_call(request_id, event)
            case _:
                _log.warning("forebay: a request without requestId or operationId was ignored: %.200r", event)

    def _start_call(self, request_id: str, event: Mapping[str, Any]) -> None:
        def on_done(task: _Task) -> None:
            del self._tasks[task]
            self._closing_tasks.discard(task)
            if self._running.get(request_id) is task:
                del self._running[request_id]
            self._remember_settled(request_id)

        task = asyncio.create_task(self._handle_call(request_id, event, is_closing=self._is_closing))
        self._tasks[task] = self._find_caller_tasks(event) | {task}
        self._running[request_id] = task
        task.add_done_callback(on_done)

    def _find_caller_tasks(self, event: Mapping[str, Any]) -> frozenset[_Task]:
        """Return the tasks that wait for a requested call to end, found by its parent id or the current context."""
        match event:
            case {"parentRequestId": str(parent_id)} if parent_id in self._running:
                return self._tasks[self._running[parent_id]]
        return _enclosing_calls.get() & self._tasks.keys()

    def _remember_settled(self, request_id: str) -> None:
        self._settled_ids[request_id] = None
        if len(self._settled_ids) > _MAX_SETTLED_IDS:
            del self._settled_ids[next(iter(self._settled_ids))]

    def _on_aborted(self, event: Any) -> None:
        match event:
            case {"requestId": str(request_id)}:
                # If the request of this call arrives later or again, it is ignored.
                self._remember_settled(request_id)
                task = self._running.pop(request_id, None)
                # A call past its deadline is cancelled already; a second cancellation would interrupt its cleanup.
                if task is not None and self._remove_deadline(task):
                    task.cancel()

    def _remove_deadline(self, task: _Task) -> bool:
        """Remove the deadline of a call before it is cancelled, so that the deadline does not interrupt its cleanup.

        Return `False` if the deadline has passed.
        """
        return task not in self._deadline_scopes or self._deadline_scopes[task].remove()

    async def _handle_call(self, request_id: str, event: Mapping[str, Any], *, is_closing: bool) -> None:
        operation_id, failure = event["operationId"], None
        task = cast("_Task", asyncio.current_task())
        _enclosing_calls.set(self._tasks[task])
        try:
            outcome = await self._run_request(event, is_closing)
        except asyncio.CancelledError:
            outcome = CallError("ABORTED", f"{operation_id} was cancelled where it ran; call it again")
        except BaseException as error:
            # The caller waits for an outcome, so every exception is published as an error.
            _log.exception("forebay: %s ended in a way that no handler should", operation_id)
            outcome, failure = CallError("EXECUTION_ERROR", f"{operation_id} ended with {type(error).__name__}"), error
        # An aborted call is no longer in `_running`, and its caller no longer waits: nothing is published.
        if self._running.get(request_id) is task:
            await wait_shielded(self._publish_outcome(request_id, outcome, operation_id))
        if isinstance(failure, KeyboardInterrupt | SystemExit):
            raise failure

    async def _run_request(self, event: Mapping[str, Any], is_closing: bool) -> ResponseEnvelope[Any] | CallError:
        try:
            context = context_from_event(event)
            if is_closing and context.parent_request_id not in self._running:
                return CallError("ABORTED", "no more calls are taken here; call again when it runs again")
            return await self._run_operation(event["operationId"], event.get("input"), context)
        except CallError as error:
            return error
        except InvalidArgument as error:
            return CallError("VALIDATION_ERROR", f"this is no request: {error}")

    async def _run_operation(self, operation_id: str, input_data: Any, context: CallContext) -> ResponseEnvelope[Any]:
        operation = self._registry.find(operation_id)
        _check_access(operation.spec, context.identity)
        context = dataclasses.replace(context, env=build_env(self._call_map, context=context))
        if context.deadline is None:
            return await run_operation(operation, input_data, context)
        task = cast("_Task", asyncio.current_task())
        scope = self._deadline_scopes[task] = DeadlineScope(context.deadline, operation_id)
        try:
            return await run_operation(operation, input_data, context, scope)
        finally:
            del self._deadline_scopes[task]

    async def _publish_outcome(
        self, request_id: str, outcome: ResponseEnvelope[Any] | CallError, operation_id: str
    ) -> None:
        try:
            if isinstance(outcome, ResponseEnvelope):
                return await self._call_map.respond(request_id, outcome)
        except Exception as error:
            # The transport may be unable to serialize the result; the caller gets an error instead.
            outcome = CallError("EXECUTION_ERROR", f"the answer of {operation_id} could not be sent: {error!s:.1000}")
        try:
            await self._publish_error(request_id, outcome)
        except Exception:
            _log.warning("forebay: the answer of %s could not be sent", operation_id, exc_info=True)

    async def _publish_error(self, request_id: str, error: CallError) -> None:
        try:
            await self._call_map.error(request_id, error.code, str(error), error.details)
        except Exception:
            if not error.details:
                raise
            # The details may not be serializable, and the caller waits for an answer: send the error without them.
            await self._call_map.error(request_id, error.code, str(error))


def _check_access(spec: OperationSpec, identity: Identity | None) -> None:
    control = spec.access_control
    if control.allows(identity):
        return
    caller = "nobody in particular" if identity is None else f"{identity.id!r:.128}"
    needed = [f"all of {', '.join(sorted(control.required_scopes))}"] if control.required_scopes else []
    needed += [f"one of {', '.join(sorted(control.required_scopes_any))}"] if control.required_scopes_any else []
    raise CallError("ACCESS_DENIED", f"{spec.id} may not be called by {caller}: it needs {' and '.join(needed)}")
