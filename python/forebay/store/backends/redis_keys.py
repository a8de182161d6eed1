"""The keys of a store on Redis.

    <prefix>:{<handle>}             an object
    <prefix>:{<handle>}:<id>        an upload
    <prefix>:{<prefix>}:index       a record of each object; see `redis_scripts`
    <prefix>:{<prefix>}:usage       the accounts
    <prefix>:{<prefix>}:added       bytes that were ever added
    <prefix>:{<prefix>}:uploads     unfinished uploads, by the time until which their writers are taken to be alive
    <prefix>:{<prefix>}:lock        who holds the lock of the store, and until when
    <prefix>:{<prefix>}:once:<id>   the result of a request, for some seconds
    <prefix>:once:{<handle>}:<id>   the same, on the node of an object
    <prefix>:{<prefix>}:journal     the log
    <prefix>:{<prefix>}:days        days with counts of calls
    <prefix>:{<prefix>}:calls:<day> these counts

What is in braces chooses the node of a cluster. Only objects, uploads and results expire, so Redis evicts nothing else
with a policy `volatile-*`.
"""

import functools

__all__ = ["RedisKeys"]


class RedisKeys:
    """The keys of a store."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._shared = f"{prefix}:{{{prefix}}}"

    def get_object(self, handle: str) -> str:
        """Return the key of an object."""
        return f"{self._prefix}:{{{handle}}}"

    def get_upload(self, handle: str, upload_id: str) -> str:
        """Return the key of an unfinished upload."""
        return f"{self._prefix}:{{{handle}}}:{upload_id}"

    def get_once(self, token: str) -> str:
        """Return the key of the result of a request."""
        return f"{self._shared}:once:{token}"

    def get_object_once(self, handle: str, token: str) -> str:
        """Return the key of the result of a request for an object alone."""
        return f"{self._prefix}:once:{{{handle}}}:{token}"

    def get_counts(self, day: str) -> str:
        """Return the key of the counts of a day."""
        return f"{self._shared}:calls:{day}"

    @functools.cached_property
    def index(self) -> str:
        return f"{self._shared}:index"

    @functools.cached_property
    def usage(self) -> str:
        return f"{self._shared}:usage"

    @functools.cached_property
    def added(self) -> str:
        return f"{self._shared}:added"

    @functools.cached_property
    def uploads(self) -> str:
        return f"{self._shared}:uploads"

    @functools.cached_property
    def lock(self) -> str:
        return f"{self._shared}:lock"

    @functools.cached_property
    def journal(self) -> str:
        return f"{self._shared}:journal"

    @functools.cached_property
    def days(self) -> str:
        return f"{self._shared}:days"
