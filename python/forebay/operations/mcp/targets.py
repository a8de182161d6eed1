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

from forebay.arguments import shown
from forebay.config.masked import masked_args
from forebay.errors import InvalidArgument

if TYPE_CHECKING:
    from mcp.client import Transport

__all__ = ["Answers", "Refusal", "Target", "Upstream", "is_connected", "upstream_of"]

Target: TypeAlias = (
    "Client | Server[Any] | MCPServer[Any] | StdioServerParameters | Sequence[str] | str | Transport "
    "| Callable[[], Transport]"
)
"""A server: its URL, a command, the server itself, a transport or what makes one, or a client."""

_FIRST_ERROR = 400


class Refusal(NamedTuple):
    """What HTTP answered to a message that the server did not take."""

    status: int
    had_session: bool


Answers: TypeAlias = dict[object, Refusal]
"""Refusals by the ids of their messages."""


@dataclasses.dataclass(frozen=True)
class Upstream:
    """A server as its target says it."""

    label: str
    """What to call it in errors; nothing in it is secret."""
    reach: Callable[[Answers], Any]
    """What an `mcp.Client` takes as its server, made anew for every connection."""
    make: Callable[[Any], Client]
    is_command: bool = False
    is_foreign: bool = False
    """Whether its transports are made by someone else, so that nothing is known of what HTTP answers."""

    def client(self, answers: Answers) -> Client:
        """A client for one connection: the SDK's are for no more."""
        return self.make(self.reach(answers))


def is_connected(target: object) -> bool:
    """Whether it is a client that someone else has connected, and will leave."""
    if not isinstance(target, Client):
        return False
    try:
        return target.session is not None
    except RuntimeError:
        return False


def upstream_of(target: Target, mode: str) -> Upstream:
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
            return Upstream(_without_secrets(url), lambda answers: _over_http(url, answers), make)
        case StdioServerParameters():
            return _of_command(server, make)
        case [str(command), *arguments] if all(isinstance(argument, str) for argument in arguments):
            return _of_command(StdioServerParameters(command=command, args=arguments), make)
        case Server() | MCPServer():
            return Upstream(f"the server {server.name:.64}", lambda _: server, make)
    if hasattr(server, "__aenter__"):
        return Upstream("the server", lambda _: server, make)
    if callable(server):
        return Upstream("the server", lambda _: server(), make, is_foreign=True)
    raise InvalidArgument(
        f"from_mcp() takes a URL, a command as a list, StdioServerParameters, a server, a transport or an mcp.Client, "
        f"not {shown(target)}"
    )


def _of_command(parameters: StdioServerParameters, make: Callable[[Any], Client]) -> Upstream:
    if "encoding_error_handler" not in parameters.model_fields_set:
        # In the SDK, one wrong byte would end the reading, and not the connection: every call would wait for ever.
        parameters = parameters.model_copy(update={"encoding_error_handler": "replace"})
    # Later words are where secrets are, and the first may be one of an option.
    label = " ".join([parameters.command, *masked_args(parameters.args[:1])])[:128]
    return Upstream(label, lambda _: parameters, make, is_command=True)


def _check_url(url: str) -> None:
    if not url.lower().startswith(("http://", "https://")):
        raise InvalidArgument(
            f"{shown(url)} is no URL of HTTP; give a command as a list, such as {url.split()[:8] or ['my-server']}"
        )


def _without_secrets(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


@contextlib.asynccontextmanager
async def _over_http(url: str, answers: Answers) -> AsyncIterator[Any]:
    async def note(response: httpx2.Response) -> None:
        request = response.request
        if response.status_code >= _FIRST_ERROR and request.method == "POST":
            answers[json.loads(request.content).get("id")] = Refusal(
                response.status_code, "mcp-session-id" in request.headers
            )

    async with create_mcp_http_client() as http:
        http.event_hooks = {"response": [note]}
        # The SDK gives up on events of more than 1 MiB, and a result is one event.
        async with streamable_http_client(url, http_client=http, max_sse_event_size=None) as streams:
            yield streams
