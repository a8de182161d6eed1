"""Connections that are taken for as long as someone waits, or listens: of these nobody may have all."""

import collections

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from forebay.servers.mcp import principal_of

__all__ = ["Share"]

_SHARE = 4
_TOO_MANY = -32000


class Share:
    """Answers 429 to a principal that has a quarter of all connections already: the others are not kept out by it."""

    def __init__(self, app: ASGIApp, max_connections: int) -> None:
        self._app = app
        self._most = max(1, max_connections // _SHARE)
        self._taken: collections.Counter[str | None] = collections.Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        user = scope.get("user")
        if not isinstance(user, AuthenticatedUser):
            await self._app(scope, receive, send)
            return
        principal = principal_of(user.access_token)
        if self._taken[principal] >= self._most:
            await self._refused()(scope, receive, send)
            return
        self._taken[principal] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._taken[principal] -= 1
            if not self._taken[principal]:
                del self._taken[principal]

    def _refused(self) -> JSONResponse:
        message = (
            f"{self._most} requests of yours are under way, and that is all that may be at once; wait until one is "
            "answered, or ask whoever runs this server to raise max_connections"
        )
        error = {"code": _TOO_MANY, "message": message}
        return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 429, headers={"Retry-After": "1"})
