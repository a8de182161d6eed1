"""The URL of a store on a Redis server, a cluster, or a server that Sentinel watches."""

import dataclasses
import os
import re
from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote

from forebay.errors import InvalidArgument
from forebay.store.address import RemoteAddress

__all__ = ["RedisAddress", "parse_redis_address"]

_DEFAULT_PORTS = {"server": 6379, "cluster": 6379, "sentinel": 26379}
_PREFIX_PATTERN = re.compile(r"[A-Za-z0-9._:/-]{1,100}")
_HOST_PATTERN = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^:\[\]/@]+))(?::(\d{1,5}))?")


def _parse_flag(text: str) -> bool:
    if text.lower() not in ("true", "yes", "1", "false", "no", "0"):
        raise ValueError(text)
    return text.lower() in ("true", "yes", "1")


_OPTIONS: dict[str, Callable[[str], Any]] = {
    "ssl_ca_certs": str,
    "ssl_ca_path": str,
    "ssl_certfile": str,
    "ssl_keyfile": str,
    "ssl_cert_reqs": str,
    "ssl_check_hostname": _parse_flag,
    "socket_timeout": float,
    "socket_connect_timeout": float,
    "client_name": str,
}
"""Options of redis-py in the query of a URL, with their types."""


@dataclasses.dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where the servers are, and how to log in there. Its text has no credentials."""

    url: str
    """The URL without credentials and query."""
    topology: Literal["server", "cluster", "sentinel"]
    hosts: tuple[tuple[str, int], ...]
    """Servers, nodes of the cluster, or sentinels."""
    master: str
    """The name by which sentinels know the server."""
    database: int
    prefix: str
    """The beginning of all keys."""
    is_encrypted: bool
    options: dict[str, Any]
    """Arguments of a connection of redis-py."""
    credentials: dict[str, str] = dataclasses.field(repr=False)
    sentinel_credentials: dict[str, str] = dataclasses.field(repr=False)

    def __str__(self) -> str:
        return self.url


def parse_redis_address(address: RemoteAddress) -> RedisAddress:
    """Return the parts of a URL. Credentials that it lacks come from `REDIS_USERNAME` and `REDIS_PASSWORD`.

    Raises `InvalidArgument`.
    """
    parts = address.parts
    scheme, _, topology = parts.scheme.replace("valkey", "redis").partition("+")
    if topology not in ("", "cluster", "sentinel"):
        raise _make_error(address, f"there is no {parts.scheme}")
    kind: Literal["server", "cluster", "sentinel"] = topology or "server"  # type: ignore[assignment]
    userinfo, _, netloc = parts.netloc.rpartition("@")
    hosts = tuple(_parse_host(address, host, _DEFAULT_PORTS[kind]) for host in netloc.split(","))
    if kind == "server" and len(hosts) > 1:
        raise _make_error(address, "several hosts are a redis+cluster:// or a redis+sentinel://")
    master, database = _parse_path(address, kind, unquote(parts.path).strip("/"))
    options: dict[str, Any] = {}
    prefix, sentinel_credentials = "forebay", {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name == "prefix":
            prefix = value
        elif name in ("sentinel_username", "sentinel_password") and kind == "sentinel":
            sentinel_credentials[name.removeprefix("sentinel_")] = value
        elif name in _OPTIONS and (scheme == "rediss" or not name.startswith("ssl_")):
            try:
                options[name] = _OPTIONS[name](value)
            except ValueError:
                raise _make_error(address, f"{name} has a value that it cannot have") from None
        else:
            names = ", ".join(["prefix", *_OPTIONS])
            raise _make_error(address, f"{name!r:.40} is no option of it; there are {names} (ssl_* with rediss://)")
    if not _PREFIX_PATTERN.fullmatch(prefix):
        raise _make_error(address, "a prefix is up to 100 letters, digits and characters of ._:/-")
    return RedisAddress(
        url=str(address),
        topology=kind,
        hosts=hosts,
        master=master,
        database=database,
        prefix=prefix,
        is_encrypted=scheme == "rediss",
        options=options,
        credentials=_parse_credentials(userinfo),
        sentinel_credentials=sentinel_credentials,
    )


def _parse_host(address: RemoteAddress, text: str, default_port: int) -> tuple[str, int]:
    match = _HOST_PATTERN.fullmatch(text)
    port = int(match[3] or default_port) if match else 0
    if match is None or not 0 < port < 65536:
        raise _make_error(address, "a host is NAME, NAME:PORT or [IPv6]:PORT")
    return match[1] or unquote(match[2]), port


def _parse_path(address: RemoteAddress, kind: str, path: str) -> tuple[str, int]:
    """Return the name of the master, which only a sentinel's URL has, and the number of the database."""
    master = ""
    if kind == "sentinel":
        master, _, path = path.partition("/")
        if not master:
            raise _make_error(address, "the path is the name of the master, as in redis+sentinel://host:26379/mymaster")
    if not re.fullmatch(r"\d{0,5}", path, re.ASCII):
        raise _make_error(address, "the path is the number of a database; the prefix of the keys is ?prefix=NAME")
    if kind == "cluster" and int(path or 0):
        raise _make_error(address, "a cluster has only database 0; leave the path out, and use ?prefix=NAME")
    return master, int(path or 0)


def _parse_credentials(userinfo: str) -> dict[str, str]:
    username, _, password = map(unquote, userinfo.partition(":"))
    if not password:
        password = os.environ.get("REDIS_PASSWORD") or os.environ.get("REDISCLI_AUTH") or ""
    username = username or os.environ.get("REDIS_USERNAME") or ""
    found = {"username": username, "password": password}
    # A username without a password is not sent: a server without passwords would refuse it.
    return {name: value for name, value in found.items() if value} if password else {}


def _make_error(address: RemoteAddress, reason: str) -> InvalidArgument:
    return InvalidArgument(
        f"{address} is not the address of a store: {reason} (in a password, write / ? # @ % as %2F %3F %23 %40 %25). "
        "An address is redis://HOST:PORT/DATABASE?prefix=NAME, rediss://… for TLS, redis+cluster://HOST:PORT,HOST:PORT "
        "or redis+sentinel://HOST:PORT,HOST:PORT/MASTER/DATABASE"
    )
