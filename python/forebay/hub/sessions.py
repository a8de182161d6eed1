"""Sessions: tenants for clients that did the handshake, and can be asked by requests."""

import asyncio
import contextlib
import itertools
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from forebay.errors import UpstreamFailed
from forebay.hub.connection import ServerConnection
from forebay.hub.exchanges import Exchange
from forebay.hub.subscriptions import check_subscription_count, subscribe
from forebay.hub.tenant import Request, RoutedRequest, Tenant
from forebay.hub.translation import SERVER_INFO
from forebay.proxy.message_queue import Reply
from forebay.proxy.session import Session, make_cancellation
from forebay.wire.errors import RequestFailed
from forebay.wire.framing import Message
from forebay.wire.lazy_json import as_lazy, dump, open_container, to_text
from forebay.wire.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    get_params,
    make_result_message,
    read_bytes,
    replace_values,
)
from forebay.wire.protocol import (
    CANCELLED_METHOD,
    HANDSHAKE_VERSIONS,
    LEGACY_VERSION,
    LOG_LEVELS,
    LOG_METHOD,
    MISSING_CAPABILITY,
    REQUEST_TIMEOUT,
    UPDATED_METHOD,
    get_required_capability,
    supports_request,
)

if TYPE_CHECKING:
    from forebay.hub.hub import Hub

__all__ = ["ClientSession"]

_MAX_ROUNDS = 32
"""Maximum number of input-required results that a server may send before its final result."""

_RETRY_SECONDS = 0.25
"""Delay before a request is repeated when the server requires no input, only another attempt."""


class ClientSession(Tenant):
    """One client of the handshake era. `outbox` takes messages that belong to none of its requests."""

    def __init__(self, hub: "Hub", session: Session, outbox: Reply) -> None:
        super().__init__(hub, session, {})
        self._outbox = outbox
        self._initialized = asyncio.Event()
        self._question_ids = itertools.count(1)
        self._questions: dict[object, asyncio.Future[dict[str, Any]]] = {}
        self.log_level: int | None = None
        self._listening: dict[ServerConnection, tuple[frozenset[str], contextlib.AsyncExitStack]] = {}
        """The URIs to which the client is subscribed at each server of 2026-07-28, and what ends the subscription."""
        self._listening_lock = asyncio.Lock()

    async def handle(self, message: dict[str, Any], raw: Message, reply: Reply) -> Message | None:
        """Handle a message of the client; return the response if it is a request."""
        if "method" not in message:
            self._on_answer(message)
            return None
        if "id" not in message:
            self.on_client_notification(message, raw)
            return None
        return await self.handle_request(message, raw, reply)

    async def _handle(self, message: dict[str, Any], raw: Message, reply: Reply) -> Message:
        if message["method"] == "initialize":
            return await self._initialize(message)
        if message["method"] == "ping":
            return make_result_message(message["id"], {})
        if self._start_task is None:
            # The servers are told once what the client can do.
            raise RequestFailed(INVALID_REQUEST, "send initialize before other requests")
        return await super()._handle(message, raw, reply)

    async def _initialize(self, message: dict[str, Any]) -> Message:
        params = get_params(message)
        capabilities, client_info = open_container(params.get("capabilities")), params.get("clientInfo")
        if self._start_task is None:
            self.capabilities = capabilities if isinstance(capabilities, dict) else {}
        self.client_info = client_info
        self.session.set_client(params)
        await self.start()
        requested = params.get("protocolVersion")
        version = requested if requested in HANDSHAKE_VERSIONS else LEGACY_VERSION
        return self._respond_first(message, version, {"protocolVersion": version, "serverInfo": SERVER_INFO})

    # Messages to the client.

    @property
    def identity(self) -> object:
        return self

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        if self._initialized.is_set():
            members = {"method": method} if params is None else {"method": method, "params": params}
            self._outbox.send(dump({"jsonrpc": "2.0", **members}), method)

    def on_notification(self, connection: ServerConnection, method: str, params: Mapping[str, Any]) -> None:
        if method == UPDATED_METHOD and len(connection.tenants) > 1:
            uri = to_text(params.get("uri"))
            if uri is None or not connection.subscriptions.is_subscriber(uri, self):
                return
        super().on_notification(connection, method, params)

    def on_log_message(self, severity: int, raw: bytes, source: Exchange | None) -> None:
        if self.log_level is not None and severity < self.log_level:
            return
        if source is not None and source.reply is not None:
            source.reply.send(raw, LOG_METHOD)
        elif self._initialized.is_set():
            self._outbox.send(raw, LOG_METHOD)

    def supports(self, method: str, params: Mapping[str, Any]) -> bool:
        # The client itself refuses what it does not know.
        del method, params
        return True

    async def ask(
        self, connection: ServerConnection, message: Mapping[str, Any], raw: Message, exchange: Exchange | None
    ) -> dict[str, Any]:
        channel = None if exchange is None else exchange.reply
        return await self._ask(connection, message["method"], raw, channel or self._outbox)

    async def _ask(self, connection: ServerConnection, method: str, raw: Message, channel: Reply) -> dict[str, Any]:
        question_id = next(self._question_ids)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        seconds = self.hub.settings.answer_timeout_seconds
        # The request names no call, so pause all calls of this client to this server, but not those to others.
        with connection.exchanges.paused(self):
            try:
                async with asyncio.timeout(seconds):
                    await self._initialized.wait()
                    self._questions[question_id] = answer
                    channel.send(read_bytes(replace_values(raw, {("id",): b"%d" % question_id})), method)
                    return await answer
            except TimeoutError:
                reason = f"the client did not answer within {seconds:g} s"
                channel.send(make_cancellation(question_id, reason), CANCELLED_METHOD)
                raise RequestFailed(REQUEST_TIMEOUT, reason) from None
            except asyncio.CancelledError:
                channel.send(make_cancellation(question_id, "nobody waits for the answer"), CANCELLED_METHOD)
                raise
            finally:
                self._questions.pop(question_id, None)

    # Messages from the client.

    def _on_answer(self, message: dict[str, Any]) -> None:
        request_id = message.get("id")
        answer = self._questions.get(request_id) if isinstance(request_id, int | str) else None
        if answer is None or answer.done():
            return
        if self._policy.capabilities.is_active:
            try:
                self._check_and_serialize(message)
            except RequestFailed as error:
                answer.set_exception(error)
                return
        answer.set_result({key: message[key] for key in ("result", "error") if key in message})

    def on_client_notification(self, message: dict[str, Any], raw: Message) -> None:
        if message["method"] == "notifications/initialized":
            self._initialized.set()
        else:
            super().on_client_notification(message, raw)

    async def forward(self, routed: RoutedRequest) -> Message:
        connection = routed.connection
        required: dict[str, Any] | None = None
        for _ in range(_MAX_ROUNDS + 1):
            # A server of 2026-07-28 answers with what it wants to know, and gets the request again with the answers.
            answers = None if required is None else await self._answer_inputs(routed, required)
            exchange = self._begin(routed)
            exchange.respondent = self
            outcome: Message | dict[str, Any] = await connection.complete(
                exchange, self._make_message(routed, exchange, answers)
            )
            if not isinstance(outcome, dict):
                return outcome
            required = outcome
        raise UpstreamFailed(
            f"{connection.name} has asked its client {_MAX_ROUNDS} times and still has no result; change the arguments"
        )

    async def _answer_inputs(self, routed: RoutedRequest, required: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the client what an input-required result wants to know, and return the params to repeat the call with."""
        # Parsed again, so that nothing in it is left unparsed because of its size.
        requests = open_container(as_lazy(dump(required.get("inputRequests")))) or {}
        if not isinstance(requests, Mapping) or not all(map(_is_input_request, requests.values())):
            name = routed.connection.name
            raise UpstreamFailed(
                f"{name} sent an input request without a method, or with params that cannot be read; report it to the "
                "authors of the server"
            )
        params: dict[str, Any] = {}
        if requests:
            params["inputResponses"] = await self._collect_answers(routed, requests)
        else:
            await asyncio.sleep(_RETRY_SECONDS)
        if "requestState" in required:
            params["requestState"] = required["requestState"]
        return params

    async def _collect_answers(self, routed: RoutedRequest, requests: Mapping[str, Any]) -> dict[str, Any]:
        for question in requests.values():
            if not supports_request(self.capabilities, question["method"], question.get("params") or {}):
                capability = get_required_capability(question["method"])
                raise RequestFailed(
                    MISSING_CAPABILITY,
                    f"{routed.connection.name} sent {question['method']:.64}, but this client did not declare the "
                    f"{capability} capability",
                    {"requiredCapabilities": {} if capability is None else {capability: {}}},
                )
        tasks = [asyncio.create_task(self._ask_input(routed, question)) for question in requests.values()]
        try:
            return dict(zip(requests, await asyncio.gather(*tasks), strict=True))
        finally:
            # If the client refuses one request, the others are not needed.
            for task in tasks:
                task.cancel()

    async def _ask_input(self, routed: RoutedRequest, question: Mapping[str, Any]) -> Any:
        raw = dump({"jsonrpc": "2.0", "id": 0, **question})
        answer = await self._ask(routed.connection, question["method"], raw, routed.request.reply)
        if "result" not in answer:
            raise RequestFailed.from_response(answer)
        return answer["result"]

    # Subscriptions and log levels, on connections that sessions may share.

    async def _change_subscription(self, request: Request) -> Message:
        connection = await self._find_resource_server(request)
        uri = str(to_text(request.params.get("uri")))
        is_subscribing = request.pending.method == "resources/subscribe"
        if connection.is_modern:
            await self._change_listening(connection, uri, is_subscribing=is_subscribing)
        elif is_subscribing:
            await connection.subscriptions.add(uri, self)
        else:
            await connection.subscriptions.remove(uri, self)
        return self._respond(request, {})

    async def _change_listening(self, connection: ServerConnection, uri: str, *, is_subscribing: bool) -> None:
        """Start or stop to listen to a resource of a server of 2026-07-28, which has no other subscriptions."""
        async with self._listening_lock:
            uris, previous_stack = self._listening.get(connection, (frozenset[str](), contextlib.AsyncExitStack()))
            wanted = uris | {uri} if is_subscribing else uris - {uri}
            if wanted == uris:
                return
            check_subscription_count(len(wanted))
            # The new request is open before the earlier one ends, so that no update is missed.
            stack = contextlib.AsyncExitStack()
            if wanted:
                on_notification = partial(super().on_notification, connection)
                await stack.enter_async_context(subscribe({connection: sorted(wanted)}, self, on_notification))
            self._listening[connection] = wanted, stack
            await previous_stack.aclose()

    async def _set_level_at(self, connection: ServerConnection, request: Request) -> Message:
        """Record the level of this session, and send the server the lowest level of its sessions."""
        level = request.params.get("level")
        if level in LOG_LEVELS:
            self.log_level = LOG_LEVELS.index(level)
            levels = [tenant.log_level for tenant in connection.tenants if isinstance(tenant, ClientSession)]
            connection.log_level = LOG_LEVELS[min(known for known in (*levels, self.log_level) if known is not None)]
            if connection.log_level != level:
                return self._respond(request, {})
        return await self.forward(RoutedRequest(request, connection))

    async def close(self) -> None:
        for _, listening in self._listening.values():
            await listening.aclose()
        self._listening.clear()
        for answer in self._questions.values():
            if not answer.done():
                answer.set_exception(RequestFailed(INTERNAL_ERROR, "the client has ended its session"))
        await super().close()


def _is_input_request(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("method"), str)
        and isinstance(value.get("params"), Mapping | None)
    )
