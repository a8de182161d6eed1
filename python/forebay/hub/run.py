"""`forebay serve`: several upstreams of every kind behind one server."""

import asyncio
import contextlib
import logging
import signal
import sys
import threading
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
from forebay.hub.client_peer import Front
from forebay.hub.exit import end_within
from forebay.hub.forwarding import Passing
from forebay.hub.questions import Questions
from forebay.hub.streams import Incoming, Outgoing
from forebay.hub.tenant import PATIENCE, Scope
from forebay.hub.tenant_pool import Scopes
from forebay.hub.upstreams import Sources
from forebay.outputs.capabilities import CORE
from forebay.proxy.client import Client, private_stdout
from forebay.wire.lines import Kept, Lines, Unspooled
from forebay.wire.messages import INVALID_REQUEST, error_message, read
from forebay.wire.spool import spool_beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from forebay.config.options import Settings

__all__ = ["Serving", "run"]

_log = logging.getLogger("forebay")

_Context = ServerRequestContext[Any, Any]

_LAST_WORDS = 2.0


def run(settings: "Settings") -> int:
    """Until the client is gone, or someone ends it. Gives the exit code."""
    if settings.http is not None:
        from forebay.http.server import run_http

        serving = Serving(settings)
        return run_http(
            serving.server, settings, ending=serving.stop_listening, closed=lambda: end_within(_LAST_WORDS, 0)
        )
    return asyncio.run(_on_stdio(settings))


class Serving:
    """The server in front, and what is behind it while its lifespan lasts."""

    def __init__(self, settings: "Settings") -> None:
        self._settings = settings
        # What is wrong with a module shows before anyone is served.
        self._sources = Sources(settings.upstreams, settings.call_timeout_seconds)
        self.gate = Forebay(
            **settings.gate_options(),
            default_capability=self._capability,
            known_capabilities=settings.upstreams,
        )
        self.gate.capabilities.alias = self._own_name
        self.server: Server[Any] = Server(
            "forebay",
            version=forebay.__version__,
            lifespan=self._lifespan,
            on_subscriptions_listen=self._listen,
        )
        # On stdio there is one client, and all ends with it.
        idle = None if settings.http is None else settings.principal_idle_seconds
        self._principals = Scopes(lambda: self._scope(Front()), settings.max_principals, idle)
        self._questions = Questions(self._principals, settings.answer_timeout_seconds)
        self._passing = Passing(self._scope, self._principals, self.server.server_info_stamp, self._questions)
        self.server.add_request_handler("tools/list", PaginatedRequestParams, self._list)
        self.server.add_request_handler("tools/call", CallToolRequestParams, self._call)
        self.gate.install(self.server)
        self.server.middleware.append(self._passing)
        self._scopes: weakref.WeakSet[Scope] = weakref.WeakSet()
        self._names: dict[str, str] = {}
        """The ids of operations by the names that they ever had as tools: for all clients the same."""
        self._origins: dict[str, tuple[str, str]] = {}
        """Of which upstream they are, and what that calls them: what a filter goes by must outlast every connection."""

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Server[Any]) -> "AsyncIterator[dict[str, Any]]":
        try:
            await self._sources.start(PATIENCE)
            yield {}
        finally:
            await self.leave()
            await self._sources.close()
            self.gate.close()

    def stop_listening(self) -> None:
        """Tells all who listen that it is over: they would do so for ever."""
        for scope in [*self._scopes]:
            scope.front.listeners.close()

    async def leave(self) -> None:
        """Ends all connections to upstreams; each takes the time that it takes, since processes must not be left."""
        self._questions.close()
        await asyncio.gather(self._principals.close(), *(scope.close() for scope in [*self._scopes]))

    def _scope(self, front: Front) -> Scope:
        scope = Scope(self._sources, front, self.gate, self._settings, self._names)
        self._scopes.add(scope)
        return scope

    async def _list(self, ctx: _Context, params: PaginatedRequestParams) -> HandlerResult:
        async with self._passing.scope_of(ctx) as scope:
            self._origins |= {spec.id: (spec.namespace, spec.name) for spec in scope.registry}
            return await scope.tools.list(ctx, params)

    async def _call(self, ctx: _Context, params: CallToolRequestParams) -> HandlerResult:
        async with self._passing.scope_of(ctx) as scope:
            return await scope.tools.call(ctx, params)

    async def _listen(self, ctx: _Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        async with self._passing.scope_of(ctx) as scope:
            return await scope.front.listeners(ctx, params)

    def _capability(self, tool: str) -> str:
        """What a tool is for if nobody says: what its upstream is for."""
        return self._origin(tool)[0]

    def _own_name(self, tool: str) -> str:
        """What its upstream calls a tool: no filter goes by what is put before it because of another."""
        return self._origin(tool)[1]

    def _origin(self, tool: str) -> tuple[str, str]:
        return self._origins.get(self._names.get(tool, ""), (CORE, tool))


class Unanswered:
    """The requests of a client that wait for their answers, also those that nobody has looked at yet."""

    def __init__(self) -> None:
        self._ids: set[RequestId] = set()
        self._none = asyncio.Event()
        self._none.set()

    def asked(self, item: SessionMessage) -> None:
        """A message of the client."""
        match item.message:
            case JSONRPCRequest(id=request_id):
                self._ids.add(request_id)
            case JSONRPCNotification(method="notifications/cancelled", params={"requestId": request_id}):
                self._ids.discard(request_id)
        self._settle()

    def answered(self, item: SessionMessage) -> None:
        """A message to the client."""
        if isinstance(item.message, JSONRPCResponse | JSONRPCError) and item.message.id is not None:
            self._ids.discard(item.message.id)
        self._settle()

    def _settle(self) -> None:
        if self._ids:
            self._none.clear()
        else:
            self._none.set()

    async def wait(self, seconds: float) -> None:
        """Until there are none, or that takes too long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._none.wait()


def _refuse(line: Kept, outgoing: Outgoing) -> None:
    """Answers a request that the SDK cannot read: it says nothing, and whoever asked would wait for ever."""
    match read(line):
        case {"id": request_id, "method": _}:
            told = "this request cannot be read; look at its jsonrpc, its id, its params and the texts in them"
            outgoing.write(error_message(request_id, INVALID_REQUEST, told))


async def _on_stdio(settings: "Settings") -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def told_to_end(name: str) -> None:
        _log.info("forebay: %s", name)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, told_to_end, f"told to end by {number.name}")

    def gone() -> None:
        loop.call_soon_threadsafe(told_to_end, "the client is gone")

    serving = Serving(settings)
    unanswered = Unanswered()
    outgoing = Outgoing(Client(private_stdout(), gone).send, unanswered.answered)
    incoming = Incoming(unanswered.asked, lambda line: _refuse(line, outgoing))
    lines = Lines(
        sys.stdin.fileno(), most_bytes=settings.stream_above_bytes, make_spool=partial(spool_beside, serving.gate.store)
    )

    def listen() -> None:
        for line in lines:
            if isinstance(line, Unspooled):
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
    await serving.leave()
    incoming.end()
    await serve
    outgoing.finish(_LAST_WORDS)
    # Before the loop ends, which waits for threads.
    end_within(_LAST_WORDS, 0)
    return 0
