"""Entry point of `forebay serve`: the hub over stdio or HTTP."""

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from forebay.hub.hub import Hub
from forebay.hub.stdio import StdioTransport
from forebay.proxy.process_group import exit_within
from forebay.proxy.workers import limit_heaps
from forebay.system.processes import handle_stop_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from forebay.config.options import Settings
    from forebay.http.dashboard import Dashboard

__all__ = ["run"]

_log = logging.getLogger("forebay")

_FLUSH_TIMEOUT_SECONDS = 2.0
"""How long the last messages may take to be written. After that, the process may take as long again to exit."""

_MAX_HEAPS = 2


def run(settings: "Settings") -> int:
    """Serve until the client disconnects or a signal arrives. Return the exit code."""
    limit_heaps(_MAX_HEAPS)
    if settings.http is None:
        return _run_loop(_run_stdio(settings))
    from forebay.http.server import run_http

    hub = Hub(settings)
    return run_http(
        hub,
        settings,
        dashboard=_make_dashboard(hub) if settings.dashboard else None,
        on_shutdown=hub.stop_listening,
        on_closed=lambda: exit_within(_FLUSH_TIMEOUT_SECONDS, 0),
    )


def _make_dashboard(hub: Hub) -> "Dashboard":
    from forebay.http.dashboard import Dashboard
    from forebay.hub.health import list_upstreams

    return Dashboard(hub.policy.store, list_upstreams=partial(list_upstreams, hub))


def _run_loop(main: "Coroutine[Any, Any, int]") -> int:
    run_main: Callable[[Coroutine[Any, Any, int]], int] = asyncio.run
    # It is faster, but not there on every platform.
    with contextlib.suppress(ImportError):
        from uvloop import run as run_main
    return run_main(main)


async def _run_stdio(settings: "Settings") -> int:
    stop_event = asyncio.Event()
    loop = asyncio.get_running_loop()

    def request_stop(reason: str) -> None:
        _log.info("forebay: %s", reason)
        stop_event.set()

    handle_stop_signals(loop, lambda number: request_stop(f"stopped by {number.name}"))
    hub = Hub(settings)
    transport = StdioTransport(hub, lambda: request_stop("the client is gone"))
    await hub.start()
    transport.start()
    await stop_event.wait()
    hub.stop_listening()
    # Many servers drop their calls when their input ends, so calls in flight delay that.
    hub.grace.start()
    await transport.wait_idle(hub.grace.seconds / 2)
    await hub.close()
    await transport.end_calls(_FLUSH_TIMEOUT_SECONDS)
    transport.finish(_FLUSH_TIMEOUT_SECONDS)
    # Start this timer before the event loop ends, because the loop waits for threads at its end.
    exit_within(_FLUSH_TIMEOUT_SECONDS, 0)
    return 0
