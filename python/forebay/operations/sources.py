"""The operations of configured HTTP APIs and Python modules, loaded in the background."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.config.upstreams import UpstreamConfig
from forebay.errors import InvalidArgument
from forebay.operations.registry import OperationRegistry
from forebay.operations.spec import Operation
from forebay.store.threads import run_in_thread, wait_all
from forebay.wire.framing import Spool

if TYPE_CHECKING:
    from forebay.operations.openapi import HTTPOperations

__all__ = ["OperationSources", "retry_until_connected"]

_log = logging.getLogger("forebay")

_MIN_DELAY_SECONDS, _MAX_DELAY_SECONDS = 1.0, 30.0
"""Shortest and longest delay between attempts to reach an upstream."""

_API_TIMEOUT_SECONDS = 60.0
"""Timeout of an API call if none is configured."""


async def retry_until_connected(
    name: str, attempt: Callable[[], Coroutine[Any, Any, None]], first_attempt_done: asyncio.Event
) -> None:
    """Repeat `attempt` until it succeeds, and log each failure. `first_attempt_done` is set after the first attempt."""
    delay = _MIN_DELAY_SECONDS
    while True:
        try:
            await attempt()
        except Exception as error:
            reason = str(error) or type(error).__name__
            _log.warning("forebay: the upstream %s cannot be used, and is tried again in %g s: %s", name, delay, reason)
            _log.debug("forebay: the upstream %s", name, exc_info=True)
        else:
            return
        finally:
            first_attempt_done.set()
        await asyncio.sleep(delay)
        delay = min(2 * delay, _MAX_DELAY_SECONDS)


class OperationSources:
    """Loads the operations of the APIs and modules among `configs`, and tries again those that cannot be loaded.

    `on_added` is called on the event loop with the operations of each source that was loaded; they are in `registry`
    already. With `make_spool`, an API's body larger than `spool_above_bytes` goes to a temporary file.
    """

    def __init__(
        self,
        configs: Iterable[UpstreamConfig],
        on_added: Callable[[list[Operation]], object],
        call_timeout: float | None = None,
        *,
        make_spool: Callable[[], Spool] | None = None,
        spool_above_bytes: int = 8 << 20,
    ) -> None:
        self.registry = OperationRegistry()
        """All operations that were loaded so far."""
        self._configs = [config for config in configs if config.upstream_type in ("openapi", "python")]
        self.unloaded = dict.fromkeys(config.name for config in self._configs)
        """The names of the sources that are not loaded yet, in their order."""
        self._on_added = on_added
        # This timeout also limits loading the OpenAPI document. If the call timeout is shorter, the caller applies it.
        self._timeout = max(_API_TIMEOUT_SECONDS, call_timeout or 0)
        self._make_spool = make_spool
        self._spool_above_bytes = spool_above_bytes
        self._apis: list[HTTPOperations] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, wait_seconds: float) -> None:
        """Start to load the OpenAPI documents and modules, and wait for them at most `wait_seconds`."""
        first_attempts = []
        for config in self._configs:
            load = self._load_document if config.openapi is not None else self._load_module
            first_attempts.append(asyncio.Event())
            self._tasks.append(
                asyncio.create_task(retry_until_connected(config.name, partial(load, config), first_attempts[-1]))
            )
        await wait_all(first_attempts, wait_seconds)

    async def _load_document(self, config: UpstreamConfig) -> None:
        # Only here, because it takes as long to import as the store, and most configurations have no API.
        from forebay.operations.openapi import from_openapi

        document = str(config.openapi)
        try:
            api = await from_openapi(
                document if "://" in document else Path(document),
                namespace=config.name,
                base_url=config.base_url,
                security=config.auth,
                headers=config.headers,
                timeout=self._timeout,
                cross_host_redirects=config.cross_host_redirects,
                make_spool=self._make_spool,
                spool_over=self._spool_above_bytes,
            )
        except InvalidArgument as error:
            raise InvalidArgument(f"openapi: {error}") from error
        self._apis.append(api)
        self._add(config, [*api])

    async def _load_module(self, config: UpstreamConfig) -> None:
        def load() -> list[Operation]:
            # Only here, because it imports the SDK, and most configurations have no module.
            from forebay.operations.functions import from_module

            return from_module(str(config.python), namespace=config.name, folder=config.folder)

        # In a thread, because a module that takes long to import must not delay other upstreams.
        self._add(config, await run_in_thread(load, daemon=True))

    def _add(self, config: UpstreamConfig, operations: list[Operation]) -> None:
        self.unloaded.pop(config.name, None)
        for operation in operations:
            self.registry.register(operation.spec, operation.handler)
        self._on_added(operations)

    async def close(self) -> None:
        """Stop loading, and close the HTTP clients of the APIs."""
        for task in self._tasks:
            task.cancel()
        for api in self._apis:
            await api.aclose()
