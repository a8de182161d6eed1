"""Entry point of `forebay serve`: the hub's server over stdio or HTTP."""

import asyncio
import collections
import contextlib
import ctypes
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
from forebay.wire.messages import INVALID_REQUEST, make_error_message, make_id_key, parse

__all__ = ["HubServer", "exit_within", "run"]

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from forebay.config.options import Settings
    from forebay.operations.mcp.server import Origin


_log = logging.getLogger("forebay")

_Context = ServerRequestContext[Any, Any]

_FLUSH_TIMEOUT_SECONDS = 2.0
"""How long the last messages may take to be written. After that, the process may take as long again to exit."""


_MAX_UNANSWERED_REQUESTS = 128
"""Number of unanswered requests at which further ones of a client on stdio wait."""

_MAX_WAITING_BYTES = 16 << 20
"""Size of the waiting messages above which a client on stdio is not read further."""

_WAITING_OVERHEAD_BYTES = 512
"""Added to the size of each waiting message, for the objects around it."""

_M_ARENA_MAX = -8
"""Parameter of glibc's `mallopt`: the maximum number of heaps."""

_MAX_HEAPS = 2


def run(settings: "Settings") -> int:
    """Serve until the client disconnects or a signal arrives. Return the exit code."""
    _limit_heaps()
    if settings.http is not None:
        from forebay.http.server import run_http

        hub = HubServer(settings)
        return run_http(
            hub.server,
            settings,
            on_shutdown=hub.stop_listening,
            on_closed=lambda: exit_within(_FLUSH_TIMEOUT_SECONDS, 0),
        )
    return asyncio.run(_run_stdio(settings))


def _limit_heaps() -> None:
    """Let all threads share two heaps, unless the operator has set `MALLOC_ARENA_MAX`.

    By default, glibc creates up to eight heaps for each processor, and each keeps memory that its threads have freed.
    Since each session has threads of its own, memory would grow until all these heaps are as large as they get.
    """
    if "MALLOC_ARENA_MAX" not in os.environ:
        # Other C libraries have no `mallopt`.
        with contextlib.suppress(AttributeError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _MAX_HEAPS)


class HubServer:
    """The SDK server that clients talk to, and the upstreams behind it."""

    def __init__(self, settings: "Settings") -> None:
        self._settings = settings
        self._upstreams = Upstreams(settings.upstreams, settings.call_timeout_seconds, settings.shutdown_grace_seconds)
        self.grace = self._upstreams.grace
        middleware = Forebay(
            **settings.policy_options(),
            default_capability=self._get_default_capability,
            known_capabilities=settings.upstreams,
        )
        self.policy = middleware.policy
        self.policy.capabilities.find_other_names = self._find_other_tool_names
        self.server: Server[Any] = Server(
            "forebay",
            version=forebay.__version__,
            lifespan=self._lifespan,
            on_subscriptions_listen=self._listen,
        )
        # On stdio the only client never expires.
        idle_seconds = None if settings.http is None else settings.session_idle_seconds
        self._tenant_pool = TenantPool(
            lambda capabilities: self._make_tenant(ClientPeer(capabilities=capabilities)),
            settings.max_principals,
            idle_seconds,
        )
        self._paused_calls = PausedCalls(self._tenant_pool, settings.answer_timeout_seconds)
        self._forwarding = Forwarding(
            self._make_tenant, self._tenant_pool, self.server.server_info_stamp, self._paused_calls
        )
        self.server.add_request_handler("tools/list", PaginatedRequestParams, self._list_tools)
        self.server.add_request_handler("tools/call", CallToolRequestParams, self._call_tool)
        middleware.install(self.server)
        self.server.middleware.append(self._forwarding)
        self._tenants: weakref.WeakSet[Tenant] = weakref.WeakSet()
        self._origins: dict[str, Origin] = {}
        """Upstream and original name of each tool; shared by all clients."""

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
        """End all notification streams, which would never end by themselves."""
        for tenant in [*self._tenants]:
            tenant.client.listeners.close()

    async def close_upstreams(self) -> None:
        """Close all upstream connections, without a timeout, so that no server process is left behind."""
        self._paused_calls.close()
        await asyncio.gather(self._tenant_pool.close(), *(tenant.close() for tenant in [*self._tenants]))

    def _make_tenant(self, client: ClientPeer) -> Tenant:
        tenant = Tenant(self._upstreams, client, self.policy, self._settings, self._origins)
        self._tenants.add(tenant)
        return tenant

    async def _list_tools(self, ctx: _Context, params: PaginatedRequestParams) -> HandlerResult:
        async with self._forwarding.acquire_tenant(ctx) as tenant:
            return await tenant.tools.list(ctx, params)

    async def _call_tool(self, ctx: _Context, params: CallToolRequestParams) -> HandlerResult:
        async with self._forwarding.acquire_tenant(ctx) as tenant:
            return await tenant.tools.call(ctx, params)

    async def _listen(self, ctx: _Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        async with self._forwarding.acquire_tenant(ctx) as tenant:
            return await tenant.client.listeners(ctx, params)

    def _get_default_capability(self, tool: str) -> str:
        """Return the upstream's name as the capability of a tool that declares none."""
        return self._origins.get(tool, (CORE, tool))[0]

    def _find_other_tool_names(self, tool: str) -> tuple[str, str]:
        """Return a tool's name at its upstream, and the name that it gets here if another upstream uses that name.

        A pattern for the latter also holds while the other upstream is not connected.
        """
        upstream, name = self._origins.get(tool, (CORE, tool))
        return name, f"{upstream}_{name}"


class UnansweredRequests:
    """The client's requests that have no response yet, including those that the SDK has not read yet."""

    def __init__(self) -> None:
        self._ids: collections.Counter[RequestId] = collections.Counter()
        self._subscription_ids: set[RequestId] = set()
        """Those of the requests that are answered only at the end."""
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._has_room = threading.Event()
        self._has_room.set()
        self._has_logged = False

    def on_client_message(self, item: SessionMessage) -> None:
        """Record a message from the client."""
        match item.message:
            case JSONRPCRequest(id=request_id, method=method):
                self._ids[request_id] += 1
                if method == "subscriptions/listen":
                    self._subscription_ids.add(request_id)
            case JSONRPCNotification(
                method="notifications/cancelled", params={"requestId": str() | int() as request_id}
            ):
                self._discard(request_id)
        self._update()

    def on_server_message(self, item: SessionMessage) -> None:
        """Record a message to the client."""
        if isinstance(item.message, JSONRPCResponse | JSONRPCError) and item.message.id is not None:
            self._discard(item.message.id)
        self._update()

    def _discard(self, request_id: RequestId) -> None:
        self._ids -= {request_id: 1}
        self._subscription_ids.discard(request_id)

    def _update(self) -> None:
        if self._ids:
            self._is_empty.clear()
        else:
            self._is_empty.set()
        if self._ids.total() - len(self._subscription_ids) < _MAX_UNANSWERED_REQUESTS:
            self._has_room.set()
            return
        self._has_room.clear()
        if not self._has_logged:
            self._has_logged = True
            _log.info(
                "forebay: %d requests of the client are unanswered; more are handled when some of them are answered",
                _MAX_UNANSWERED_REQUESTS,
            )

    @property
    def has_room(self) -> bool:
        """Whether there are few enough requests to handle another one."""
        return self._has_room.is_set()

    def wait_for_room(self) -> None:
        """Wait, in a thread, until there are few enough requests to handle another one."""
        self._has_room.wait()

    async def wait(self, seconds: float) -> None:
        """Wait until every request is answered, for at most `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_empty.wait()


class WaitingMessages:
    """Queue of client messages that wait until earlier requests are answered.

    Responses and cancellations do not wait, because requests may be unanswered for lack of them.
    """

    def __init__(
        self, send: "Callable[[Message], None]", unanswered: UnansweredRequests, outgoing: OutgoingStream
    ) -> None:
        self._send = send
        self._unanswered = unanswered
        self._outgoing = outgoing
        self._messages: collections.deque[tuple[Message, bytes | None]] = collections.deque()
        """Messages with the keys of their ids, if they are requests. The first one is about to be sent."""
        self._size = 0
        self._has_changed = threading.Condition()
        threading.Thread(target=self._run, name="forebay-feed", daemon=True).start()

    def put(self, line: Message) -> None:
        """Send a message now or later. Blocks while the queue is full."""
        if (self._unanswered.has_room and not self._messages) or not self._must_wait(line):
            self._send(line)

    def _must_wait(self, line: Message) -> bool:
        key: bytes | None = None
        match parse(line):
            case {"method": "notifications/cancelled", "params": {"requestId": request_id}}:
                return self._cancel(make_id_key(request_id), line)
            case {"id": request_id, "method": _}:
                key = make_id_key(request_id)
            case {"id": _}:
                return False
        with self._has_changed:
            self._has_changed.wait_for(lambda: self._size <= _MAX_WAITING_BYTES)
            self._insert(len(self._messages), line, key)
        return True

    def _insert(self, index: int, line: Message, key: bytes | None) -> None:
        self._messages.insert(index, (line, key))
        self._size += len(line) + _WAITING_OVERHEAD_BYTES
        self._has_changed.notify_all()

    def _remove(self, index: int) -> None:
        self._size -= len(self._messages[index][0]) + _WAITING_OVERHEAD_BYTES
        del self._messages[index]
        self._has_changed.notify_all()

    def _cancel(self, key: bytes, line: Message) -> bool:
        """Cancel a request that waits; return whether there is one."""
        with self._has_changed:
            index = next((i for i, (_, waiting) in enumerate(self._messages) if waiting == key), None)
            if index == 0:
                self._insert(1, line, None)
            elif index is not None:
                self._remove(index)
            return index is not None

    def _run(self) -> None:
        while True:
            with self._has_changed:
                self._has_changed.wait_for(lambda: self._messages)
                line, key = self._messages[0]
            if key is not None:
                self._unanswered.wait_for_room()
                # The response would need memory while the client does not read.
                self._outgoing.wait_for_room()
            self._send(line)
            with self._has_changed:
                self._remove(0)

    def drain(self, stall_seconds: float) -> None:
        """Wait, in a thread, until all messages are sent, or none is sent for `stall_seconds`."""
        with self._has_changed:
            is_moving = True
            while is_moving and (count := len(self._messages)):
                is_moving = self._has_changed.wait_for(partial(self._is_shorter, count), stall_seconds)

    def _is_shorter(self, count: int) -> bool:
        return len(self._messages) < count


def _reject_unreadable(line: Message, outgoing: OutgoingStream) -> None:
    """Answer a request that the SDK cannot parse, because the SDK would ignore the request."""
    match parse(line):
        case {"id": request_id, "method": _}:
            message = "this request cannot be read; look at its jsonrpc, its id, its params and the texts in them"
            outgoing.write(make_error_message(request_id, INVALID_REQUEST, message))


async def _run_stdio(settings: "Settings") -> int:
    stop_event = asyncio.Event()
    loop = asyncio.get_running_loop()

    def request_stop(reason: str) -> None:
        _log.info("forebay: %s", reason)
        stop_event.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, request_stop, f"told to end by {number.name}")

    def on_client_gone() -> None:
        loop.call_soon_threadsafe(request_stop, "the client is gone")

    hub = HubServer(settings)
    unanswered = UnansweredRequests()
    client = StdioClient(claim_stdout(), on_client_gone)
    outgoing = OutgoingStream(client.send, unanswered.on_server_message, reader="the client")
    incoming = IncomingStream(unanswered.on_client_message, lambda line: _reject_unreadable(line, outgoing))
    waiting = WaitingMessages(incoming.send, unanswered, outgoing)
    lines = LineReader(
        sys.stdin.fileno(),
        spool_above_bytes=settings.spool_above_bytes,
        make_spool=partial(create_spool, hub.policy.store),
    )

    def read_lines() -> None:
        for line in lines:
            # What the client sends waits in its pipe, because it would need memory here.
            outgoing.wait_for_room()
            if isinstance(line, LostMessage):
                _log.error("forebay: a message of %d bytes from the client is lost: %s", line.size, line.error)
            else:
                waiting.put(line)
        waiting.drain(hub.grace.seconds / 2)
        on_client_gone()

    server = hub.server
    serve = asyncio.create_task(server.run(incoming.stream, outgoing, server.create_initialization_options()))
    threading.Thread(target=read_lines, name="forebay-read", daemon=True).start()
    await stop_event.wait()
    hub.stop_listening()
    # Many servers drop their calls when their input ends, so calls in flight delay that.
    hub.grace.start()
    await unanswered.wait(hub.grace.seconds / 2)
    # Close the upstreams before the SDK's server ends, because it would allow only five seconds for that.
    await hub.close_upstreams()
    incoming.end()
    await serve
    outgoing.finish(_FLUSH_TIMEOUT_SECONDS)
    # Start this timer before the event loop ends, because the loop waits for threads at its end.
    exit_within(_FLUSH_TIMEOUT_SECONDS, 0)
    return 0


def exit_within(seconds: float, code: int) -> None:
    """Force the process to exit after `seconds`, because Python would wait for worker threads without limit.

    Call this when everything important is closed.
    """

    def force_exit() -> None:
        time.sleep(seconds)
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)

    threading.Thread(target=force_exit, name="forebay-end", daemon=True).start()
