"""The connections to MCP servers, each shared by the clients that may share it."""

import sys
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any

from forebay.hub.connection import ServerConnection
from forebay.proxy.http.upstream import HttpUpstream
from forebay.proxy.process_group import Grace
from forebay.proxy.stdio import BatchReader, Process, RestartBackoff, StdioUpstream
from forebay.proxy.workers import ResponseWorkers
from forebay.wire.framing import LineReader, create_spool
from forebay.wire.lazy_json import dump

if sys.platform != "win32":
    from forebay.proxy.loop_reader import LoopReader

if TYPE_CHECKING:
    from forebay.config.options import Settings
    from forebay.config.upstreams import UpstreamConfig
    from forebay.hub.tenant import Tenant
    from forebay.outputs.policy import OutputPolicy

__all__ = ["Servers"]


class Servers:
    """The open connections to all MCP servers, by who shares them.

    - `principal`: the sessions of one principal share a connection. Clients with different eras or capabilities do not
      share: capabilities are fixed in the handshake. Clients with roots never share, nor do clients without a token
      when other machines can connect.
    - `session`: each session has its own.
    - `all`: one connection; requests from its server are refused, because the recipient would be ambiguous.
    """

    def __init__(self, settings: "Settings", policy: "OutputPolicy", grace: Grace) -> None:
        self._settings = settings
        self._policy = policy
        self._grace = grace
        self.workers = ResponseWorkers()
        self._read_buffer = bytearray()
        if sys.platform != "win32":
            self._read_buffer = LoopReader.make_buffer()
        self._connections: dict[Hashable, ServerConnection] = {}
        self._keys: dict[ServerConnection, Hashable] = {}

    def acquire(self, config: "UpstreamConfig", tenant: "Tenant") -> ServerConnection:
        """Return the connection of a tenant to a server, and open it if it is the first one to use it."""
        share = config.share or self._settings.share
        key = self._make_key(share, config.name, tenant)
        connection = self._connections.get(key)
        if connection is None:
            connection = self._connections[key] = ServerConnection(
                config.name,
                partial(self._make_upstream, config),
                self.workers,
                # The client's era, if the server has it, so that nothing needs translation.
                prefers_handshake=not tenant.is_stateless and share != "all",
                client_capabilities={} if share == "all" else tenant.capabilities,
                call_timeout=self._settings.call_timeout_seconds,
                has_many_principals=share == "all",
            )
            self._keys[connection] = key
        connection.tenants[tenant] = None
        return connection

    def _make_key(self, share: str, name: str, tenant: "Tenant") -> Hashable:
        if share == "all":
            return name
        is_stranger = tenant.session.principal is None and self._settings.is_beyond_loopback
        if not tenant.is_stateless and (share == "session" or is_stranger or "roots" in tenant.capabilities):
            return name, tenant
        capabilities = dump(dict(sorted(tenant.capabilities.items())))
        return name, tenant.session.principal, tenant.is_stateless, capabilities

    async def release(self, connection: ServerConnection, tenant: "Tenant") -> None:
        """Give a connection back. It is closed if nobody else uses it."""
        connection.tenants.pop(tenant, None)
        connection.subscriptions.remove_all(tenant)
        if not connection.tenants and connection in self._keys:
            del self._connections[self._keys.pop(connection)]
            await connection.close()

    def _make_upstream(self, config: "UpstreamConfig", connection: ServerConnection) -> StdioUpstream | HttpUpstream:
        settings = self._settings
        make_spool = partial(create_spool, self._policy.store)
        limits: dict[str, Any] = {"spool_above_bytes": settings.spool_above_bytes, "make_spool": make_spool}
        if config.url is not None:
            headers = [f"{name}: {value}" for name, value in config.headers.items()]
            return HttpUpstream(
                config.url, headers=headers, find_schema=partial(connection.get_schema, "inputSchema"), **limits
            )
        command = [str(config.command), *config.args]
        return StdioUpstream(
            Process(command, env=config.env, cwd=config.cwd),
            command,
            env=config.env,
            cwd=config.cwd,
            make_reader=self._choose_reader(connection, limits),
            backoff=RestartBackoff(
                settings.restart_limit, settings.restart_window_seconds, settings.restart_delay_seconds
            ),
            grace=self._grace,
            name=f"the upstream {config.name}",
            # The event loop sends, and must not wait.
            exit_wait_seconds=0,
        )

    def _choose_reader(self, connection: ServerConnection, limits: dict[str, Any]) -> Callable[..., BatchReader]:
        if sys.platform == "win32":
            # Its event loop cannot wait for the pipes that a server inherits.
            return partial(LineReader, **limits)
        else:  # noqa: RET505 - mypy leaves out this branch on Windows
            return partial(
                LoopReader,
                loop=connection.loop,
                receive=connection.receiver.receive_from_server,
                buffer=self._read_buffer,
                **limits,
            )
