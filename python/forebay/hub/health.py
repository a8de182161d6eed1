"""The state of all upstreams as one principal sees it, for the dashboard."""

from typing import TYPE_CHECKING

from forebay.dashboard.overview import Upstream

if TYPE_CHECKING:
    from forebay.config.upstreams import UpstreamConfig
    from forebay.hub.hub import Hub

__all__ = ["list_upstreams"]


def list_upstreams(hub: "Hub", principal: str | None) -> list[Upstream]:
    """Return every upstream with the state of the principal's connections to it, and its calls in flight."""
    return [_describe(hub, config, principal) for config in hub.settings.upstreams.values()]


def _describe(hub: "Hub", config: "UpstreamConfig", principal: str | None) -> Upstream:
    if config not in hub.server_configs:
        return Upstream(
            config.name, config.upstream_type, "failed" if config.name in hub.operations.unloaded else "loaded"
        )
    tenants = [tenant for tenant in hub.tenants if tenant.session.principal == principal]
    connections = {tenant.connections[config.name] for tenant in tenants if config.name in tenant.connections}
    calls = sum(
        exchange.method == "tools/call" and exchange.tenant in tenants
        for connection in connections
        for exchange in connection.exchanges.list_unanswered()
    )
    if not connections:
        return Upstream(config.name, config.upstream_type, "not in use")
    if not any(connection.is_connected for connection in connections):
        has_failed = any(connection.first_attempt.is_set() for connection in connections)
        return Upstream(config.name, config.upstream_type, "failed" if has_failed else "connecting")
    tools = max(len(connection.tools) for connection in connections)
    return Upstream(config.name, config.upstream_type, "connected", tools, calls)
