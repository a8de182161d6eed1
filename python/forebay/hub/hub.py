"""The hub of `forebay serve`: many clients in front, and behind them MCP servers, HTTP APIs and Python modules."""

import asyncio
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from forebay.hub.handover import Handover
from forebay.hub.paused_calls import PausedCalls
from forebay.hub.servers import Servers
from forebay.hub.sessionless import SessionlessTenant
from forebay.hub.sessions import ClientSession
from forebay.hub.stateless import StatelessTenant, TenantPool
from forebay.hub.translation import SERVER_INFO
from forebay.operations.sources import OperationSources
from forebay.operations.spec import Operation
from forebay.operations.tool_names import ToolNames
from forebay.outputs.capabilities import CORE
from forebay.outputs.policy import OutputPolicy
from forebay.proxy.message_queue import Reply
from forebay.proxy.process_group import Grace
from forebay.proxy.session import Session
from forebay.store.handles import LONG_HANDLE_LENGTH, SHORT_HANDLE_LENGTH
from forebay.wire.errors import RequestFailed
from forebay.wire.framing import Message, create_spool
from forebay.wire.lazy_json import open_container
from forebay.wire.messages import get_meta
from forebay.wire.protocol import CLIENT_CAPABILITIES_KEY, LEGACY_VERSION, MODERN_VERSION, find_envelope_fault

if TYPE_CHECKING:
    from forebay.config.options import Settings
    from forebay.hub.tenant import Tenant

__all__ = ["Hub"]

_LOAD_WAIT_SECONDS = 10.0
"""How long the start waits for APIs and modules. Those that take longer are added once they are loaded."""


class Hub:
    """All that clients share: the output policy, the connections to servers, and the operations of APIs and modules."""

    def __init__(self, settings: "Settings") -> None:
        self.settings = settings
        self.is_over_http = settings.http is not None
        self.grace = Grace(settings.shutdown_grace_seconds)
        upstreams = settings.upstreams
        self.policy = OutputPolicy(
            **settings.policy_options(),
            default_capability=self._get_default_capability,
            known_capabilities=upstreams,
        )
        self.policy.capabilities.find_other_names = self._find_other_tool_names
        self.policy.reserve_server_info(SERVER_INFO)
        self.server_configs = [config for config in upstreams.values() if config.upstream_type in ("command", "url")]
        self.has_single_upstream = len(upstreams) == len(self.server_configs) == 1
        """Whether there is only one upstream and it is an MCP server."""
        prefixes = {config.name: config.prefix for config in upstreams.values() if config.prefix}
        self.names = ToolNames(prefixes, namespace_order=upstreams)
        self.servers = Servers(settings, self.policy, self.grace)
        self.operations = OperationSources(
            upstreams.values(),
            self._on_operations_added,
            settings.call_timeout_seconds,
            make_spool=partial(create_spool, self.policy.store),
            spool_above_bytes=settings.spool_above_bytes,
        )
        # On stdio the only client never expires.
        idle_seconds = settings.session_idle_seconds if self.is_over_http else None
        self.stateless_tenants = TenantPool(self._make_stateless, settings.max_principals, idle_seconds)
        self._sessionless_tenants = TenantPool(self._make_sessionless, settings.max_principals, idle_seconds)
        self.paused_calls = PausedCalls(settings.answer_timeout_seconds)
        self.handover: Handover | None = None
        if self.policy.store.folder is None:
            # Other replicas may get the answers of clients.
            self.handover = Handover(self.policy.store.mailbox, self.paused_calls, settings.answer_timeout_seconds)
        self.tenants: weakref.WeakSet[Tenant] = weakref.WeakSet()
        """All tenants that are open."""

    async def start(self) -> None:
        """Load the operations of APIs and modules; those that take long are added later."""
        await self.operations.start(_LOAD_WAIT_SECONDS)

    async def check(self) -> None:
        """Raise `StoreUnavailable` if the store does not answer."""
        await asyncio.to_thread(self.policy.store.check)

    def stop_listening(self) -> None:
        """End all subscriptions of clients, which would never end by themselves."""
        for tenant in self.stateless_tenants:
            tenant.stop_listening()

    async def close(self) -> None:
        """Close everything, the store last."""
        self.grace.start()
        self.paused_calls.close()
        if self.handover is not None:
            await self.handover.close()
        sessions = [tenant for tenant in self.tenants if not tenant.is_stateless]
        # Without a timeout, so that no server process is left behind.
        pools = (self.stateless_tenants, self._sessionless_tenants)
        await asyncio.gather(*(pool.close() for pool in pools), *(session.close() for session in sessions))
        await self.operations.close()
        self.policy.close()

    def _on_operations_added(self, operations: list[Operation]) -> None:
        del operations
        for tenant in [*self.tenants]:
            tenant.on_tools_changed()

    # Clients.

    def open_session(self, principal: str | None, outbox: Reply) -> ClientSession:
        """Open a session for a client of the handshake era. `outbox` is for messages outside of its requests."""
        session = self._make_session(principal)
        session.task_owners = (weakref.ref(session), principal)
        client = ClientSession(self, session, outbox)
        self.tenants.add(client)
        return client

    def _make_stateless(self, principal: str | None, capabilities: dict[str, Any]) -> StatelessTenant:
        return self._add_stateless(StatelessTenant(self, self._make_session(principal, MODERN_VERSION), capabilities))

    def _make_sessionless(self, principal: str | None, capabilities: dict[str, Any]) -> StatelessTenant:
        return self._add_stateless(SessionlessTenant(self, self._make_session(principal), capabilities))

    def _add_stateless(self, tenant: StatelessTenant) -> StatelessTenant:
        tenant.session.is_stateless, tenant.session.task_owners = True, (tenant.session.principal,)
        self.tenants.add(tenant)
        return tenant

    def _make_session(self, principal: str | None, version: str = LEGACY_VERSION) -> Session:
        # Handles are long over HTTP: anyone who can reach the server may try to guess them.
        length = LONG_HANDLE_LENGTH if self.is_over_http else SHORT_HANDLE_LENGTH
        return Session(
            principal=principal,
            version=version,
            handle_length=self.policy.handle_length or length,
            is_public=self.is_over_http and self.policy.handle_length != SHORT_HANDLE_LENGTH,
        )

    async def handle_stateless(
        self, principal: str | None, message: dict[str, Any], raw: Message, reply: Reply
    ) -> Message | None:
        """Handle a message of a client of 2026-07-28; return the response if it is a request."""
        if "id" not in message:
            await self._on_stateless_notification(principal, message, raw)
            return None
        if "method" not in message:
            return None
        try:
            meta = get_meta(message.get("params"))
            fault = find_envelope_fault(meta)
            if fault is not None:
                raise RequestFailed(*fault)
            capabilities = open_container(meta[CLIENT_CAPABILITIES_KEY])
            async with self.stateless_tenants.acquire(principal, capabilities) as tenant:
                return await tenant.handle_request(message, raw, reply)
        except RequestFailed as error:
            return error.to_message(message["id"])

    async def handle_sessionless(
        self, principal: str | None, message: dict[str, Any], raw: Message, reply: Reply
    ) -> Message | None:
        """Return the response to a request of a client up to 2025-11-25 that has no session."""
        try:
            async with self._sessionless_tenants.acquire(principal, {}) as tenant:
                return await tenant.handle_request(message, raw, reply)
        except RequestFailed as error:
            return error.to_message(message["id"])

    async def _on_stateless_notification(self, principal: str | None, message: dict[str, Any], raw: Message) -> None:
        # A notification does not say which capabilities its client has, so it is for all tenants of the principal.
        async with self.stateless_tenants.acquire_open(principal) as tenants:
            for tenant in tenants:
                tenant.on_client_notification(message, raw)

    # Names of tools.

    def _get_default_capability(self, tool: str) -> str:
        """Return the upstream's name as the capability of a tool that declares none."""
        return self.names.origins.get(tool, (CORE, tool))[0]

    def _find_other_tool_names(self, tool: str) -> tuple[str, str]:
        """Return a tool's name at its upstream, and the name that it gets here if another upstream uses that name.

        A pattern for the latter also holds while the other upstream is not connected.
        """
        upstream, name = self.names.origins.get(tool, (CORE, tool))
        return name, f"{upstream}_{name}"
