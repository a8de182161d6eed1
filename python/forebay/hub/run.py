"""`forebay serve`: several upstreams of every kind behind one server."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from mcp.server import Server
from mcp.server.context import HandlerResult, ServerRequestContext
from mcp.shared.message import SessionMessage
from mcp_types import (
    CallToolRequestParams,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    PaginatedRequestParams,
    RequestId,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)

import forebay
from forebay.adapters.mcp import Forebay
from forebay.hub.client_peer import ClientPeer
from forebay.hub.forwarding import Forwarding
from forebay.hub.paused_calls import PausedCalls
from forebay.hub.streams import IncomingStream, OutgoingStream
from forebay.hub.tenants import CONNECT_WAIT_SECONDS, Tenant, TenantPool
from forebay.hub.upstreams import Upstreams
from forebay.outputs.capabilities import CORE
from forebay.proxy.stdio import StdioClient, claim_stdout
from forebay.wire.framing import LineReader, LostMessage, Message, create_spool
from forebay.wire.messages import INVALID_REQUEST, error_message, parse

__all__ = ["HubServer", "exit_within", "run"]

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from forebay.config.options import Settings


_log = logging.getLogger("forebay")

_Context = ServerRequestContext[Any, Any]

_FLUSH_SECONDS = 2.0


def run(settings: "Settings") -> int:
    """Until the client is gone, or someone ends it. Gives the exit code."""
    if settings.http is not None:
        from forebay.http.server import run_http

        serving = HubServer(settings)
        return run_http(
            serving.server,
            settings,
            on_shutdown=serving.stop_listening,
            on_closed=lambda: exit_within(_FLUSH_SECONDS, 0),
        )
    return asyncio.run(_run_stdio(settings))


class HubServer:
    """The server in front, and what is behind it while its lifespan lasts."""

    def __init__(self, settings: "Settings") -> None:
        self._settings = settings
        # What is wrong with a module shows before anyone is served.
        self._upstreams = Upstreams(settings.upstreams, settings.call_timeout_seconds)
        self.policy = Forebay(
            **settings.policy_options(),
            default_capability=self._default_capability,
            known_capabilities=settings.upstreams,
        )
        self.policy.capabilities.upstream_name = self._upstream_tool_name
        self.server: Server[Any] = Server(
            "forebay",
            version=forebay.__version__,
            lifespan=self._lifespan,
            on_subscriptions_listen=self._listen,
        )
        # On stdio there is one client, and all ends with it.
        idle = None if settings.http is None else settings.session_idle_seconds
        self._tenant_pool = TenantPool(lambda: self._make_tenant(ClientPeer()), settings.max_principals, idle)
        self._paused_calls = PausedCalls(self._tenant_pool, settings.answer_timeout_seconds)
        self._forwarding = Forwarding(
            self._make_tenant, self._tenant_pool, self.server.server_info_stamp, self._paused_calls
        )
        self.server.add_request_handler("tools/list", PaginatedRequestParams, self._list_tools)
        self.server.add_request_handler("tools/call", CallToolRequestParams, self._call_tool)
        self.policy.install(self.server)
        self.server.middleware.append(self._forwarding)
        self._tenants: weakref.WeakSet[Tenant] = weakref.WeakSet()
        self._operation_ids: dict[str, str] = {}
        """The ids of operations by the names that they ever had as tools: for all clients the same."""
        self._origins: dict[str, tuple[str, str]] = {}
        """Of which upstream they are, and what that calls them: what a filter goes by must outlast every connection."""

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Server[Any]) -> "AsyncIterator[dict[str, Any]]":
        try:
            await self._upstreams.start(CONNECT_WAIT_SECONDS)
            yield {}
        finally:
            await self.close_upstreams()
            await self._upstreams.close()
            self.policy.close()

    def stop_listening(self) -> None:
        """Tells all who listen that it is over: they would do so for ever."""
        for tenant in [*self._tenants]:
            tenant.client.listeners.close()

    async def close_upstreams(self) -> None:
        """Ends all connections to upstreams; each takes the time that it takes, since processes must not be left."""
        self._paused_calls.close()
        await asyncio.gather(self._tenant_pool.close(), *(tenant.close() for tenant in [*self._tenants]))

    def _make_tenant(self, client: ClientPeer) -> Tenant:
        tenant = Tenant(self._upstreams, client, self.policy, self._settings, self._operation_ids)
        self._tenants.add(tenant)
        return tenant

    async def _list_tools(self, ctx: _Context, params: PaginatedRequestParams) -> HandlerResult:
        async with self._forwarding.tenant_for(ctx) as tenant:
            self._origins |= {spec.id: (spec.namespace, spec.name) for spec in tenant.registry}
            return await tenant.tools.list(ctx, params)

    async def _call_tool(self, ctx: _Context, params: CallToolRequestParams) -> HandlerResult:
        async with self._forwarding.tenant_for(ctx) as tenant:
            return await tenant.tools.call(ctx, params)

    async def _listen(self, ctx: _Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        async with self._forwarding.tenant_for(ctx) as tenant:
            return await tenant.client.listeners(ctx, params)

    def _default_capability(self, tool: str) -> str:
        """What a tool is for if nobody says: what its upstream is for."""
        return self._origin(tool)[0]

    def _upstream_tool_name(self, tool: str) -> str:
        """What its upstream calls a tool: no filter goes by what is put before it because of another."""
        return self._origin(tool)[1]

    def _origin(self, tool: str) -> tuple[str, str]:
        return self._origins.get(self._operation_ids.get(tool, ""), (CORE, tool))


class UnansweredRequests:
    """The requests of a client that wait for their answers, also those that nobody has looked at yet."""

    def __init__(self) -> None:
        self._ids: set[RequestId] = set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def on_client_message(self, item: SessionMessage) -> None:
        """A message of the client."""
        match item.message:
            case JSONRPCRequest(id=request_id):
                self._ids.add(request_id)
            case JSONRPCNotification(method="notifications/cancelled", params={"requestId": request_id}):
                self._ids.discard(request_id)
        self._update()

    def on_server_message(self, item: SessionMessage) -> None:
        """A message to the client."""
        if isinstance(item.message, JSONRPCResponse | JSONRPCError) and item.message.id is not None:
            self._ids.discard(item.message.id)
        self._update()

    def _update(self) -> None:
        if self._ids:
            self._is_empty.clear()
        else:
            self._is_empty.set()

    async def wait(self, seconds: float) -> None:
        """Until there are none, or that takes too long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_empty.wait()


def _reject_unreadable(line: Message, outgoing: OutgoingStream) -> None:
    """Answers a request that the SDK cannot read: it says nothing, and whoever asked would wait for ever."""
    match parse(line):
        case {"id": request_id, "method": _}:
            told = "this request cannot be read; look at its jsonrpc, its id, its params and the texts in them"
            outgoing.write(error_message(request_id, INVALID_REQUEST, told))


async def _run_stdio(settings: "Settings") -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def told_to_end(name: str) -> None:
        _log.info("forebay: %s", name)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, told_to_end, f"told to end by {number.name}")

    def gone() -> None:
        loop.call_soon_threadsafe(told_to_end, "the client is gone")

    serving = HubServer(settings)
    unanswered = UnansweredRequests()
    outgoing = OutgoingStream(StdioClient(claim_stdout(), gone).send, unanswered.on_server_message)
    incoming = IncomingStream(unanswered.on_client_message, lambda line: _reject_unreadable(line, outgoing))
    lines = LineReader(
        sys.stdin.fileno(),
        spool_above_bytes=settings.spool_above_bytes,
        make_spool=partial(create_spool, serving.policy.store),
    )

    def listen() -> None:
        for line in lines:
            if isinstance(line, LostMessage):
                _log.error("forebay: a message of %d bytes from the client is lost: %s", line.size, line.error)
            else:
                incoming.send(line)
        gone()

    server = serving.server
    serve = asyncio.create_task(server.run(incoming.stream, outgoing, server.create_initialization_options()))
    threading.Thread(target=listen, name="forebay-read", daemon=True).start()
    await stop.wait()
    serving.stop_listening()
    await unanswered.wait(settings.shutdown_grace_seconds)
    # Before the SDK does, which allows it five seconds.
    await serving.close_upstreams()
    incoming.end()
    await serve
    outgoing.finish(_FLUSH_SECONDS)
    # Before the loop ends, which waits for threads.
    exit_within(_FLUSH_SECONDS, 0)
    return 0


def exit_within(seconds: float, code: int) -> None:
    """The process is to end by itself in this time; else it is ended. All that matters is to be closed before.

    Threads cannot be stopped, and Python waits for those that others have begun.
    """

    def end() -> None:
        time.sleep(seconds)
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)

    threading.Thread(target=end, name="forebay-end", daemon=True).start()
