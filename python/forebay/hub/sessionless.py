"""Clients up to 2025-11-25 that are served without a session, so that any replica can answer them."""

from collections.abc import Mapping
from typing import Any, cast

from forebay.hub.stateless import StatelessTenant
from forebay.hub.tenant import Request, RoutedRequest, Tenant
from forebay.hub.translation import SERVER_INFO
from forebay.wire.errors import RequestFailed
from forebay.wire.framing import Message
from forebay.wire.lazy_json import LazyJSON
from forebay.wire.messages import INTERNAL_ERROR, METHOD_NOT_FOUND, get_params, make_result_message
from forebay.wire.protocol import HANDSHAKE_VERSIONS, LEGACY_VERSION

__all__ = ["SessionlessTenant"]

_SESSION_METHODS = ("logging/setLevel", "resources/subscribe", "resources/unsubscribe")


class SessionlessTenant(StatelessTenant):
    """All clients of one principal, without sessions. Servers can neither ask nor notify them."""

    async def _handle(self, message: dict[str, Any], raw: Message, reply: Any) -> Message:
        if message["method"] == "initialize":
            await self.start()
            requested = get_params(message).get("protocolVersion")
            version = requested if requested in HANDSHAKE_VERSIONS else LEGACY_VERSION
            return self._respond_first(message, version, {"protocolVersion": version, "serverInfo": SERVER_INFO})
        if message["method"] == "ping":
            return make_result_message(message["id"], {})
        # Not `super()`, which handles the methods of 2026-07-28.
        return await Tenant._handle(self, message, raw, reply)

    def _describe_servers(self) -> dict[str, Any]:
        fields = super()._describe_servers()
        capabilities = {
            name: _remove_notifications(value) for name, value in fields["capabilities"].items() if name != "logging"
        }
        return {**fields, "capabilities": capabilities}

    def _list_tools(self, _meta: Mapping[str, Any]) -> list[LazyJSON]:
        return self.routes.list_tools(is_legacy=True)

    async def _dispatch(self, method: str, request: Request) -> Message:
        if method in _SESSION_METHODS:
            text = f"{method} needs a session, and this gateway runs without (--stateless)"
            raise RequestFailed(METHOD_NOT_FOUND, text, method)
        return await Tenant._dispatch(self, method, request)

    async def forward(self, routed: RoutedRequest) -> Message:
        exchange = self._begin(routed)
        response = await routed.connection.complete(exchange, self._make_message(routed, exchange))
        if isinstance(response, dict):
            text = f"{routed.connection.name} asks its client first, which needs a session; this gateway runs without"
            raise RequestFailed(INTERNAL_ERROR, text)
        return cast("Message", response)


def _remove_notifications(capability: object) -> object:
    if not isinstance(capability, dict):
        return capability
    return {name: value for name, value in capability.items() if name not in ("listChanged", "subscribe")}
