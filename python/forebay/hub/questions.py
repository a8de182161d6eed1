"""Questions: the requests of a server of the handshake era to a client."""

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from forebay.wire.errors import RequestFailed
from forebay.wire.framing import Message
from forebay.wire.messages import INTERNAL_ERROR, METHOD_NOT_FOUND, get_params, make_id_key

if TYPE_CHECKING:
    from forebay.hub.connection import ServerConnection
    from forebay.hub.exchanges import Exchange
    from forebay.hub.paused_calls import PausableCall
    from forebay.hub.sessions import ClientSession

    Respondent: TypeAlias = ClientSession | PausableCall

__all__ = ["Questions"]

_log = logging.getLogger("forebay")

_MAX_QUESTIONS = 256
"""Maximum number of requests of one server that wait for the answer of a client."""


class Questions:
    """The open questions of one server, each answered by the client whose request it belongs to."""

    def __init__(self, connection: "ServerConnection") -> None:
        self._connection = connection
        self._tasks: dict[bytes, asyncio.Task[None]] = {}

    def add(self, message: dict[str, Any], raw: Message, stream_request_id: object) -> None:
        """Pass a request of the server on to a client."""
        key = make_id_key(message["id"])
        try:
            if message["method"] == "ping":
                self._respond(message, {"result": {}})
                return
            if len(self._tasks) >= _MAX_QUESTIONS or key in self._tasks:
                text = "too many of your requests, or one with the same id, are unanswered; send this one later"
                raise RequestFailed(INTERNAL_ERROR, text)
            # Now, because the response to the call may be next.
            respondent, sources = self._find_respondent(message, stream_request_id)
        except RequestFailed as error:
            self._respond(message, {"error": error.to_dict()})
            return
        task = self._tasks[key] = asyncio.create_task(self._answer(key, message, raw, respondent, sources))
        task.add_done_callback(lambda task: self._forget(key, task))
        self._cancel_with(sources, task)

    def _respond(self, message: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        self._connection.send({"jsonrpc": "2.0", "id": message["id"], **answer})

    def _forget(self, key: bytes, task: "asyncio.Task[None]") -> None:
        # A restarted server may have used the id again.
        if self._tasks.get(key) is task:
            del self._tasks[key]

    def cancel(self, request_id: object) -> None:
        """Cancel a question that the server does not ask any more."""
        task = self._tasks.pop(make_id_key(request_id), None)
        if task is not None:
            task.cancel()

    def cancel_all(self) -> None:
        """Cancel the questions of a server that has ended: nobody would receive the answers."""
        tasks, self._tasks = self._tasks, {}
        for task in tasks.values():
            task.cancel()

    async def _answer(
        self, key: bytes, message: dict[str, Any], raw: Message, respondent: "Respondent", sources: "list[Exchange]"
    ) -> None:
        try:
            answer = await respondent.ask(self._connection, message, raw, sources[-1] if sources else None)
        except RequestFailed as error:
            answer = {"error": error.to_dict()}
        except asyncio.CancelledError:
            if self._tasks.get(key) is not asyncio.current_task():
                # The server does not wait for the answer any more.
                raise
            answer = {"error": {"code": INTERNAL_ERROR, "message": "the call that this belongs to has been cancelled"}}
        except Exception as error:
            _log.exception("forebay: a request of %s could not be passed on", self._connection.name)
            text = f"the client cannot be asked: {error!s:.200}"
            answer = {"error": {"code": INTERNAL_ERROR, "message": text}}
        self._respond(message, answer)

    def _cancel_with(self, sources: "list[Exchange]", task: "asyncio.Task[None]") -> None:
        """Cancel a question once the last request that it may belong to is cancelled."""
        exchanges = self._connection.exchanges

        def cancel_if_abandoned() -> None:
            # A server may answer a call, and still wait for what it has asked.
            if not any(source in exchanges or source.is_answered for source in sources):
                task.cancel()

        for source in sources:
            exchanges.call_when_settled(source.id, cancel_if_abandoned)

    def _find_respondent(
        self, message: dict[str, Any], stream_request_id: object
    ) -> "tuple[Respondent, list[Exchange]]":
        """Return who answers a question, and the requests that it may belong to, the newest last.

        Raises `RequestFailed` if nobody can answer, or if it is not clear who.
        """
        connection, method, params = self._connection, message["method"], get_params(message)
        unknown = RequestFailed(METHOD_NOT_FOUND, "Method not found", method)
        if connection.has_many_principals:
            raise unknown
        candidates = [
            (exchange.respondent, exchange)
            for exchange in connection.exchanges.list_sources(stream_request_id)
            if exchange.respondent is not None
        ]
        if len({respondent.identity for respondent, _ in candidates}) > 1:
            raise RequestFailed(
                INTERNAL_ERROR,
                "several clients share this connection, so the recipient is ambiguous; "
                f'set share = "session" for upstream {connection.name}',
            )
        able = [(respondent, exchange) for respondent, exchange in candidates if respondent.supports(method, params)]
        if able:
            return able[-1][0], [exchange for _, exchange in able]
        tenants = [*connection.tenants]
        if not candidates and len(tenants) == 1 and not tenants[0].is_stateless:
            return cast("ClientSession", tenants[0]), []
        raise unknown
