"""Sessions over HTTP, of which nobody may take all."""

from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

__all__ = ["Sessions"]

_SHARE = 4


class Sessions(StreamableHTTPSessionManager):
    """The SDK's, in which a principal has a quarter at most: the others are not kept out by it."""

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        if requestor is not None and self.max_sessions is not None:
            own = sum(owner == requestor for owner in self._session_owners.values())
            if own >= max(1, self.max_sessions // _SHARE):
                return None
        return super()._admit_session(requestor)
