"""Requests to Redis: connections, retries, and errors of the store in place of those of the library."""

import hashlib
import os
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from forebay.errors import ForebayError, InvalidArgument, StoreFull, StoreUnavailable
from forebay.store.backends.redis_address import RedisAddress
from forebay.store.threads import fork_safe_lock

try:
    import redis
    from redis.backoff import NoBackoff
    from redis.cluster import ClusterNode, RedisCluster
    from redis.retry import Retry
    from redis.sentinel import Sentinel
except ImportError:
    raise InvalidArgument("a store on Redis needs one more package: pip install 'forebay[redis]'") from None

__all__ = ["MAX_STRING_BYTES", "RedisClient", "Script", "make_too_long_error"]

_T = TypeVar("_T")

MAX_STRING_BYTES = 512 << 20
"""Maximum size of a string in Redis."""

# Together with `_RETRY_SECONDS` they bound a request to 7 seconds: the first attempt may fail just before the time for
# retries is over, and the last one has to connect again.
_CONNECT_SECONDS = 1.5
_ANSWER_SECONDS = 2.5
_CLUSTER_CONNECT_SECONDS = 0.5
"""Shorter, because the library asks one node of a cluster after the other."""

_CLUSTER_ANSWER_SECONDS = 1.5
_SENTINEL_SECONDS = 0.4
_RETRY_SECONDS = 2.5
"""How long a request is tried again. Losing all connections at once, as when a server restarts, must not show."""

_FIRST_PAUSE_SECONDS = 0.02
_MAX_CONNECTIONS = 4096
"""One connection for each thread that has a request; the library allows 100."""

_TRANSIENT_REPLIES = ("READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY ", "MISCONF", "NOREPLICAS")
_FULL_REPLY = "OOM command not allowed"
_TOO_LONG_REPLY = "string exceeds maximum allowed size"

_clients: "weakref.WeakSet[RedisClient]" = weakref.WeakSet()


class Script:
    """A Lua script, which the server runs as a whole."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha: Final = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class RedisClient:
    """Requests to the servers of an address, from any thread.

    A request may be sent again after its answer was lost, so sending it twice must do the same as sending it once.
    """

    def __init__(self, address: RedisAddress) -> None:
        self.address = address
        self.is_cluster = address.topology == "cluster"
        self._lock = fork_safe_lock()
        self._client: Any = None
        self._is_reachable = True
        _clients.add(self)

    def call(self, *command: Any) -> Any:
        """Send a command and return the reply."""
        return self.send(lambda client: client.execute_command(*command))

    def pipeline(self, commands: Sequence[Sequence[Any]], *, is_urgent: bool = True) -> list[Any]:
        """Send commands in one request and return the replies."""

        def send(client: Any) -> list[Any]:
            with client.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                # Errors that the library raises quote the command, and so the payload.
                replies: list[Any] = pipeline.execute(raise_on_error=False)
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
            return replies

        return self.send(send, is_urgent=is_urgent)

    def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Any] = (), *, is_urgent: bool = True) -> Any:
        """Run a script and return its reply."""

        def send(client: Any) -> Any:
            try:
                return client.execute_command("EVALSHA", script.sha, len(keys), *keys, *arguments)
            except redis.exceptions.NoScriptError:
                return client.execute_command("EVAL", script.text, len(keys), *keys, *arguments)

        return self.send(send, is_urgent=is_urgent)

    def send(self, request: Callable[[Any], _T], *, is_urgent: bool = True) -> _T:
        """Return the result of a function of the library's client. Raises `StoreFull` or `StoreUnavailable`.

        A request that is not urgent is tried once, and only if the last one was answered.
        """
        if not is_urgent and not self._is_reachable:
            raise StoreUnavailable(f"Redis at {self.address} did not answer the last request")
        deadline = time.monotonic() + (_RETRY_SECONDS if is_urgent else 0)
        pause = _FIRST_PAUSE_SECONDS
        while True:
            client = None
            try:
                client = self._get_client()
                result = request(client)
                self._is_reachable = True
                return result
            except (redis.exceptions.RedisError, redis.exceptions.RedisClusterException, OSError) as error:
                if isinstance(error, ForebayError):
                    raise
                is_transient = _is_transient(error)
                if not is_transient or time.monotonic() + pause > deadline:
                    self._is_reachable = not is_transient
                    raise self._translate(error) from None
                if self.is_cluster:
                    # The next attempt asks for the nodes again.
                    self._drop(client)
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    def _get_client(self) -> Any:
        client = self._client
        if client is None:
            with self._lock:
                if self._client is None:
                    self._client = _connect(self.address)
                client = self._client
        return client

    def _drop(self, client: Any) -> None:
        with self._lock:
            if self._client is client:
                self._client = None

    def _translate(self, error: Exception) -> ForebayError:
        text = str(error)
        for secret in (*self.address.credentials.values(), *self.address.sentinel_credentials.values()):
            text = text.replace(secret, "***")
        if _FULL_REPLY in text:
            return StoreFull(
                f"Redis at {self.address} has no memory left for this; delete what is no longer needed, wait until it "
                "expires, or raise maxmemory on the server"
            )
        if _TOO_LONG_REPLY in text:
            return make_too_long_error()
        if isinstance(error, redis.exceptions.AuthenticationError | redis.exceptions.NoPermissionError):
            hint = "check the user and the password, in the URL or in REDIS_USERNAME and REDIS_PASSWORD"
        else:
            hint = "check that the server runs and can be reached, then call again"
        return StoreUnavailable(f"Redis at {self.address} does not work: {text or type(error).__name__}; {hint}")

    def forget(self) -> None:
        """Drop the connections of a forked child: its parent process uses them."""
        self._client = None

    def close(self) -> None:
        """Close the connections. A later request opens new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()


def make_too_long_error() -> StoreFull:
    """Return the error for a payload that Redis cannot hold."""
    return StoreFull(
        f"Redis holds at most {MAX_STRING_BYTES >> 20} MiB of a payload, as it is stored; store less of it, or use a "
        "folder or a bucket as the store"
    )


def _is_transient(error: Exception) -> bool:
    """Return whether the same request may succeed soon."""
    if isinstance(error, redis.exceptions.AuthenticationError | redis.exceptions.AuthorizationError):
        return False
    if isinstance(error, redis.exceptions.ResponseError) and not isinstance(error, redis.exceptions.ClusterError):
        return str(error).startswith(_TRANSIENT_REPLIES) or isinstance(
            error, redis.exceptions.ReadOnlyError | redis.exceptions.TryAgainError
        )
    return True


def _connect(address: RedisAddress) -> Any:
    """Return a client of the library."""
    is_cluster = address.topology == "cluster"
    options: dict[str, Any] = {
        "socket_connect_timeout": _CLUSTER_CONNECT_SECONDS if is_cluster else _CONNECT_SECONDS,
        "socket_timeout": _CLUSTER_ANSWER_SECONDS if is_cluster else _ANSWER_SECONDS,
        "socket_keepalive": True,
        # Version 3 of the protocol has nothing that is needed here, and takes more requests to connect.
        "protocol": 2,
        **address.credentials,
        **address.options,
        **({"ssl": True} if address.is_encrypted else {}),
    }
    # Not by the library: `send` retries.
    retry = Retry(NoBackoff(), 0)
    if is_cluster:
        nodes = [ClusterNode(host, port) for host, port in address.hosts]  # type: ignore[no-untyped-call]
        return RedisCluster(startup_nodes=nodes, retry=retry, max_connections=_MAX_CONNECTIONS, **options)
    options |= {"db": address.database, "retry": retry, "max_connections": _MAX_CONNECTIONS}
    if address.topology == "sentinel":
        sentinel_options = {
            **{name: value for name, value in options.items() if name.startswith(("ssl", "protocol", "retry"))},
            **address.sentinel_credentials,
            "socket_connect_timeout": _SENTINEL_SECONDS,
            "socket_timeout": _SENTINEL_SECONDS,
        }
        sentinel: Any = Sentinel(address.hosts, sentinel_kwargs=sentinel_options, **options)  # type: ignore[no-untyped-call]
        return sentinel.master_for(address.master)
    ((host, port),) = address.hosts
    return redis.Redis(host, port, **options)


def _forget_in_child() -> None:
    for client in list(_clients):
        client.forget()


os.register_at_fork(after_in_child=_forget_in_child)
