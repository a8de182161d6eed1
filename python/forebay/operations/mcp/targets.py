"""Targets of `from_mcp`: how to connect to each, and the HTTP errors that the SDK hides."""

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

from forebay.adapters.sdk_internals import create_mcp_http_client, find_lowlevel_server
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
"""A server: its URL, its command, a server object, a transport, a function that returns a transport, or a client."""

_FIRST_ERROR_STATUS = 400

_MAX_REFUSALS = 256
"""Maximum number of HTTP errors to remember."""


class HTTPRefusal(NamedTuple):
    """An HTTP error status in response to a message."""

    status: int
    had_session: bool


Refusals: TypeAlias = dict[object, HTTPRefusal]
"""The newest HTTP errors by the ids of their messages."""


@dataclasses.dataclass(frozen=True)
class ServerTarget:
    """How to connect to a server, made from a `Target`."""

    label: str
    """The server's name in errors, without secrets."""
    make_transport: Callable[[Refusals], Any]
    """Function that returns the `server` argument of `mcp.Client` for one connection."""
    make_client: Callable[[Any], Client]
    is_command: bool = False
    has_custom_transport: bool = False
    """Whether a function of the user creates the transports, so that HTTP statuses are unknown."""

    def new_client(self, refusals: Refusals) -> Client:
        """Return a client for one connection; the SDK's clients cannot connect twice."""
        return self.make_client(self.make_transport(refusals))


def is_connected(client: Client) -> bool:
    """Return whether a client is already connected."""
    try:
        return client.session is not None
    except RuntimeError:
        return False


def resolve_target(target: Target, mode: str) -> ServerTarget:
    """Return how to connect to a target. Raises `InvalidArgument` for an unsupported type."""

    def make_client(server: Any) -> Client:
        return dataclasses.replace(target, server=server) if isinstance(target, Client) else Client(server, mode=mode)

    server: Any = target.server if isinstance(target, Client) else target
    # A FastMCP server wraps a server of the SDK.
    if not isinstance(server, MCPServer):
        server = find_lowlevel_server(server) or server
    match server:
        case str(url):
            _check_url(url)
            return ServerTarget(_strip_secrets(url), lambda refusals: _connect_http(url, refusals), make_client)
        case StdioServerParameters():
            return _make_command_target(server, make_client)
        case [str(command), *arguments] if all(isinstance(argument, str) for argument in arguments):
            return _make_command_target(StdioServerParameters(command=command, args=arguments), make_client)
        case Server() | MCPServer():
            return ServerTarget(f"the server {server.name:.64}", lambda _: server, make_client)
    if hasattr(server, "__aenter__"):
        return ServerTarget("the server", lambda _: server, make_client)
    if callable(server):
        return ServerTarget("the server", lambda _: server(), make_client, has_custom_transport=True)
    raise InvalidArgument(
        f"from_mcp() takes a URL, a command as a list, StdioServerParameters, a server, a transport or an mcp.Client, "
        f"not {short_repr(target)}"
    )


def _make_command_target(parameters: StdioServerParameters, make_client: Callable[[Any], Client]) -> ServerTarget:
    if "encoding_error_handler" not in parameters.model_fields_set:
        # By default, the SDK stops reading at an invalid byte but stays connected, so every call would wait forever.
        parameters = parameters.model_copy(update={"encoding_error_handler": "replace"})
    # Arguments may hold secrets: only the first is shown, masked if it is an option with a value.
    label = " ".join([parameters.command, *mask_args(parameters.args[:1])])[:128]
    return ServerTarget(label, lambda _: parameters, make_client, is_command=True)


def _check_url(url: str) -> None:
    if not url.lower().startswith(("http://", "https://")):
        raise InvalidArgument(
            f"{short_repr(url)} is no URL of HTTP; give a command as a list, such as {url.split()[:8] or ['my-server']}"
        )


def _strip_secrets(url: str) -> str:
    split_url = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit((split_url.scheme, split_url.netloc.rpartition("@")[2], split_url.path, "", ""))


@contextlib.asynccontextmanager
async def _connect_http(url: str, refusals: Refusals) -> AsyncIterator[Any]:
    async def on_response(response: httpx2.Response) -> None:
        request = response.request
        if response.status_code >= _FIRST_ERROR_STATUS and request.method == "POST":
            refusals[json.loads(request.content).get("id")] = HTTPRefusal(
                response.status_code, "mcp-session-id" in request.headers
            )
            # Nobody takes the errors of notifications, responses and cancelled requests.
            if len(refusals) > _MAX_REFUSALS:
                del refusals[next(iter(refusals))]

    async with create_mcp_http_client() as http:
        http.event_hooks = {"response": [on_response]}
        # By default, the SDK fails on events of more than 1 MiB. A result is a single event, however large.
        async with streamable_http_client(url, http_client=http, max_sse_event_size=None) as streams:
            yield streams
