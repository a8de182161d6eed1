"""Requests to Redis: connections, retries, and errors of the store in place of those of the library."""

import hashlib
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from forebay.errors import ForebayError, InvalidArgument, StoreFull, StoreUnavailable
from forebay.store.backends import ObjectTooLarge
from forebay.store.backends.redis_address import RedisAddress
from forebay.store.threads import run_in_forked_child

try:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry
    from redis.sentinel import MasterNotFoundError, Sentinel

    from forebay.store.backends.redis_cluster import ClusterNodes, Command, execute
except ImportError:
    raise InvalidArgument("a store on Redis needs one more package: pip install 'forebay[redis]'") from None

__all__ = ["MAX_STRING_BYTES", "RedisClient", "Script", "make_too_long_error"]

_T = TypeVar("_T")

MAX_STRING_BYTES = 512 << 20
"""Maximum size of a string in Redis."""

# Together these bound a request to 7 seconds. The last attempt may begin just before the time for retries is over, and
# has to connect again; in a cluster, after it has asked for the nodes.
_CONNECT_SECONDS = 1.0
_ANSWER_SECONDS = 2.0
_TOPOLOGY_SECONDS = 0.4
"""How long a sentinel, or a node that is asked for the others, may take. If it fails, another one is asked."""

_RETRY_SECONDS = 2.5
"""How long a request is retried: callers must not notice that a server restarts and all connections are lost."""

_FIRST_PAUSE_SECONDS = 0.02
_MAX_CONNECTIONS = 4096
"""Each thread with a request in flight has a connection. The library would allow 100."""

_TRANSIENT_ERRORS = (
    redis.exceptions.ReadOnlyError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.TryAgainError,
    redis.exceptions.MovedError,
)
_TRANSIENT_REPLIES = ("BUSY ", "MISCONF ", "NOREPLICAS ")
_FULL_REPLY = "OOM command not allowed"
_TOO_LONG_REPLY = "string exceeds maximum allowed size"

_clients: "weakref.WeakSet[RedisClient]" = weakref.WeakSet()


class Script:
    """A Lua script, which the server runs as a whole."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha: Final = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class _OneServer:
    """Connections to one server; with Sentinel, to the current master."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def execute(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one request, and return the replies, of which some may be errors."""
        if len(commands) == 1:
            return [self._client.execute_command(*commands[0])]
        return execute(self._client, commands)

    def execute_everywhere(self, command: Command) -> list[Any]:
        """Send a command to the server, and return the reply."""
        return self.execute([command])

    def close(self) -> None:
        self._client.close()


class RedisClient:
    """Requests to the servers of an address, from any thread.

    A request may be sent again after its answer was lost, so sending it twice must do the same as sending it once.
    """

    def __init__(self, address: RedisAddress) -> None:
        self.address = address
        self.is_cluster = address.topology == "cluster"
        self._servers = _connect(address)
        self._is_reachable = True
        _clients.add(self)

    def call(self, *command: Any) -> Any:
        """Send a command and return the reply."""
        return self.pipeline([command])[0]

    def pipeline(self, commands: Sequence[Command], *, is_urgent: bool = True) -> list[Any]:
        """Send commands in one request, or in a cluster in one to each node, and return the replies."""
        return self.send(lambda servers: _raise_errors(servers.execute(commands)), is_urgent=is_urgent)

    def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Any] = (), *, is_urgent: bool = True) -> Any:
        """Run a script and return its reply."""
        rest = len(keys), *keys, *arguments

        def send(servers: _Servers) -> Any:
            try:
                return _raise_errors(servers.execute([("EVALSHA", script.sha, *rest)]))[0]
            except redis.exceptions.NoScriptError:
                return _raise_errors(servers.execute([("EVAL", script.text, *rest)]))[0]

        return self.send(send, is_urgent=is_urgent)

    def call_everywhere(self, *command: Any) -> list[Any]:
        """Send a command to the server, or to each node of a cluster that has slots, and return the replies."""
        return self.send(lambda servers: _raise_errors(servers.execute_everywhere(command)))

    def send(self, request: "Callable[[_Servers], _T]", *, is_urgent: bool = True) -> _T:
        """Call `request` with the servers, again after errors that may pass, and return its result.

        Raises `StoreFull` or `StoreUnavailable`. A request that is not urgent is tried once, and only if the server has
        answered the last one.
        """
        if not is_urgent and not self._is_reachable:
            raise StoreUnavailable(f"Redis at {self.address} did not answer the last request")
        deadline = time.monotonic() + (_RETRY_SECONDS if is_urgent else 0)
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                result = request(self._servers)
                self._is_reachable = True
                return result
            except (redis.exceptions.RedisError, OSError) as error:
                is_transient = _is_transient(error)
                if not is_transient or time.monotonic() + pause > deadline:
                    self._is_reachable = not is_transient
                    raise self._translate(error) from None
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    def _translate(self, error: Exception) -> ForebayError:
        text = str(error)
        for credentials in (self.address.credentials, self.address.sentinel_credentials):
            if "password" in credentials:
                text = text.replace(credentials["password"], "***")
        if isinstance(error, redis.exceptions.OutOfMemoryError) or _FULL_REPLY in text:
            return StoreFull(
                f"Redis at {self.address} has no memory left for this; delete what is no longer needed, wait until it "
                "expires, or raise maxmemory on the server"
            )
        if _TOO_LONG_REPLY in text:
            return make_too_long_error()
        if isinstance(error, MasterNotFoundError):
            # The library's text describes all connections.
            text = f"no sentinel knows a master {self.address.master}"
        return StoreUnavailable(
            f"Redis at {self.address} does not work: {text or type(error).__name__}; {_choose_hint(error)}"
        )

    def forget(self) -> None:
        """Drop the connections of a forked child: its parent process uses them."""
        self._servers = _connect(self.address)

    def close(self) -> None:
        """Close the connections. A later request opens new ones."""
        self._servers.close()


_Servers = _OneServer | ClusterNodes


def _raise_errors(replies: list[Any]) -> list[Any]:
    """Return replies, or raise the first error among them."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


def make_too_long_error() -> ObjectTooLarge:
    """Return the error for a payload that Redis cannot hold."""
    return ObjectTooLarge(
        f"Redis holds at most {MAX_STRING_BYTES >> 20} MiB of a payload, as it is stored; store less of it, or use a "
        "folder or a bucket as the store"
    )


def _choose_hint(error: Exception) -> str:
    """Return what to do about an error."""
    if isinstance(error, redis.exceptions.AuthenticationError | redis.exceptions.NoPermissionError):
        return "check the user and the password, in the URL or in REDIS_USERNAME and REDIS_PASSWORD"
    if isinstance(error, redis.exceptions.MovedError):
        return "this is a node of a cluster: use its address with redis+cluster:// or rediss+cluster://"
    if "cluster support disabled" in str(error):
        return "this is no node of a cluster: use its address with redis:// or rediss://"
    return "check that the server runs and can be reached, then call again"


def _is_transient(error: Exception) -> bool:
    """Return whether the same request may succeed soon."""
    if isinstance(error, redis.exceptions.AuthenticationError | redis.exceptions.AuthorizationError):
        return False
    if isinstance(error, _TRANSIENT_ERRORS):
        return True
    return not isinstance(error, redis.exceptions.ResponseError) or str(error).startswith(_TRANSIENT_REPLIES)


def _connect(address: RedisAddress) -> _Servers:
    """Return the servers of an address. The first request opens a connection."""
    options: dict[str, Any] = {
        "socket_keepalive": True,
        # Version 3 of the protocol has nothing that forebay needs, and takes more requests to connect.
        "protocol": 2,
        # `send` retries, and not the library.
        "retry": Retry(NoBackoff(), 0),
        **({"ssl": True} if address.is_encrypted else {}),
        **{name: value for name, value in address.options.items() if name.startswith("ssl_")},
    }
    hasty_timeouts = {"socket_connect_timeout": _TOPOLOGY_SECONDS, "socket_timeout": _TOPOLOGY_SECONDS}
    timeouts = {"socket_connect_timeout": _CONNECT_SECONDS, "socket_timeout": _ANSWER_SECONDS}
    data_options = {
        **options,
        **timeouts,
        **address.credentials,
        **address.options,
        "db": address.database,
        "max_connections": _MAX_CONNECTIONS,
    }
    if address.topology == "cluster":

        def connect(host: str, port: int, *, is_hasty: bool = False) -> Any:
            return redis.Redis(host, port, **{**data_options, **(hasty_timeouts if is_hasty else {})})

        return ClusterNodes(address.hosts, connect)
    if address.topology == "sentinel":
        sentinel_options = {**options, **hasty_timeouts, **address.sentinel_credentials}
        sentinel: Any = Sentinel(address.hosts, sentinel_kwargs=sentinel_options, **data_options)  # type: ignore[no-untyped-call]
        return _OneServer(sentinel.master_for(address.master))
    ((host, port),) = address.hosts
    return _OneServer(redis.Redis(host, port, **data_options))


def _forget_in_child() -> None:
    for client in list(_clients):
        client.forget()


run_in_forked_child(_forget_in_child)
