"""What servers are reached by, and what HTTP answered where the SDK keeps it to itself."""

import contextlib
import dataclasses
import json
import urllib.parse
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.server import MCPServer, Server
from mcp.shared._httpx_utils import create_mcp_http_client

from forebay.arguments import short_repr
from forebay.config.masking import mask_args
from forebay.errors import InvalidArgument

if TYPE_CHECKING:
    from mcp.client import Transport

__all__ = ["HTTPRefusal", "Refusals", "ServerTarget", "Target", "is_connected", "resolve_target"]

Target: TypeAlias = (
    "Client | Server[Any] | MCPServer[Any] | StdioServerParameters | Sequence[str] | str | Transport "
    "| Callable[[], Transport]"
)
"""A server: its URL, a command, the server itself, a transport or what makes one, or a client."""

_FIRST_ERROR_STATUS = 400


class HTTPRefusal(NamedTuple):
    """What HTTP answered to a message that the server did not take."""

    status: int
    had_session: bool


Refusals: TypeAlias = dict[object, HTTPRefusal]
"""Refusals by the ids of their messages."""


@dataclasses.dataclass(frozen=True)
class ServerTarget:
    """A server as its target says it."""

    label: str
    """What to call it in errors; nothing in it is secret."""
    make_transport: Callable[[Refusals], Any]
    """What an `mcp.Client` takes as its server, made anew for every connection."""
    make_client: Callable[[Any], Client]
    is_command: bool = False
    has_custom_transport: bool = False
    """Whether its transports are made by someone else, so that nothing is known of what HTTP answers."""

    def new_client(self, answers: Refusals) -> Client:
        """A client for one connection: the SDK's are for no more."""
        return self.make_client(self.make_transport(answers))


def is_connected(target: object) -> bool:
    """Whether it is a client that someone else has connected, and will leave."""
    if not isinstance(target, Client):
        return False
    try:
        return target.session is not None
    except RuntimeError:
        return False


def resolve_target(target: Target, mode: str) -> ServerTarget:
    """What makes the clients of a target. Raises `InvalidArgument` for what is none."""

    def make(server: Any) -> Client:
        return dataclasses.replace(target, server=server) if isinstance(target, Client) else Client(server, mode=mode)

    server: Any = target.server if isinstance(target, Client) else target
    # A FastMCP is around a server of the SDK.
    inner = getattr(server, "_mcp_server", None)
    server = inner if isinstance(inner, Server) else server
    match server:
        case str(url):
            _check_url(url)
            return ServerTarget(_strip_secrets(url), lambda answers: _connect_http(url, answers), make)
        case StdioServerParameters():
            return _command_target(server, make)
        case [str(command), *arguments] if all(isinstance(argument, str) for argument in arguments):
            return _command_target(StdioServerParameters(command=command, args=arguments), make)
        case Server() | MCPServer():
            return ServerTarget(f"the server {server.name:.64}", lambda _: server, make)
    if hasattr(server, "__aenter__"):
        return ServerTarget("the server", lambda _: server, make)
    if callable(server):
        return ServerTarget("the server", lambda _: server(), make, has_custom_transport=True)
    raise InvalidArgument(
        f"from_mcp() takes a URL, a command as a list, StdioServerParameters, a server, a transport or an mcp.Client, "
        f"not {short_repr(target)}"
    )


def _command_target(parameters: StdioServerParameters, make: Callable[[Any], Client]) -> ServerTarget:
    if "encoding_error_handler" not in parameters.model_fields_set:
        # In the SDK, one wrong byte would end the reading, and not the connection: every call would wait for ever.
        parameters = parameters.model_copy(update={"encoding_error_handler": "replace"})
    # Later words are where secrets are, and the first may be one of an option.
    label = " ".join([parameters.command, *mask_args(parameters.args[:1])])[:128]
    return ServerTarget(label, lambda _: parameters, make, is_command=True)


def _check_url(url: str) -> None:
    if not url.lower().startswith(("http://", "https://")):
        raise InvalidArgument(
            f"{short_repr(url)} is no URL of HTTP; give a command as a list, such as {url.split()[:8] or ['my-server']}"
        )


def _strip_secrets(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


@contextlib.asynccontextmanager
async def _connect_http(url: str, answers: Refusals) -> AsyncIterator[Any]:
    async def note(response: httpx2.Response) -> None:
        request = response.request
        if response.status_code >= _FIRST_ERROR_STATUS and request.method == "POST":
            answers[json.loads(request.content).get("id")] = HTTPRefusal(
                response.status_code, "mcp-session-id" in request.headers
            )

    async with create_mcp_http_client() as http:
        http.event_hooks = {"response": [note]}
        # The SDK gives up on events of more than 1 MiB, and a result is one event.
        async with streamable_http_client(url, http_client=http, max_sse_event_size=None) as streams:
            yield streams
