"""`forebay wrap`: run forebay between one client and one server."""

import contextlib
import gc
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from forebay.proxy.process_group import Grace, start_server
from forebay.system.processes import STOP_SIGNALS

if TYPE_CHECKING:
    from forebay.config.options import Settings
    from forebay.outputs.policy import OutputPolicy
    from forebay.proxy.http.upstream import HttpUpstream
    from forebay.proxy.pipe_writers import StdioClient
    from forebay.proxy.relay import Relay
    from forebay.proxy.stdio import StdioUpstream

__all__ = ["run", "run_url"]

_log = logging.getLogger("forebay")

_FIRST_REQUEST_SECONDS = 2.0
"""How long to wait for the client's first request if the server fails at once, to answer it with the reason."""

_FLUSH_TIMEOUT_SECONDS = 1.0
"""How long the last responses may take to be stored and written, if the grace period is not longer."""

_CHECK_INTERVAL_SECONDS = 0.25
"""Interval between checks for expired requests."""


def run(settings: "Settings", command: Sequence[str]) -> int:
    """Wrap a server command until the client disconnects or a signal arrives; return the exit code."""
    # Handle signals first, so that a signal during start-up leaves no child process behind.
    stop_signal = _StopSignal()
    # Start the server before the slow imports, so that both run in parallel.
    group = start_server(command)
    # Imports allocate many objects and free few: without the collector they take a sixth less time.
    gc.disable()
    from forebay.proxy.stdio import Process, RestartBackoff, StdioUpstream
    from forebay.proxy.workers import limit_heaps
    from forebay.wire.framing import LineReader

    # Before the first thread starts.
    limit_heaps(1)
    process = Process(command, group=group)
    backoff = RestartBackoff(settings.restart_limit, settings.restart_window_seconds, settings.restart_delay_seconds)
    return _run_relay(
        settings,
        stop_signal,
        lambda client, _, limits, grace: StdioUpstream(
            process,
            command,
            make_reader=partial(LineReader, **limits),
            backoff=backoff,
            grace=grace,
            cork_client=client.corked,
        ),
    )


def run_url(settings: "Settings", url: str, headers: Sequence[str] = ()) -> int:
    """Wrap a server at a URL, like `run`; each of `headers` is a line such as `Authorization: Bearer …`."""
    from forebay.proxy.http.upstream import HttpUpstream
    from forebay.proxy.workers import limit_heaps

    limit_heaps(1)
    return _run_relay(
        settings,
        _StopSignal(),
        lambda _, policy, limits, __: HttpUpstream(url, headers=headers, find_schema=policy.get_input_schema, **limits),
    )


def _run_relay(
    settings: "Settings",
    stop_signal: "_StopSignal",
    make_upstream: "Callable[[StdioClient, OutputPolicy, dict[str, Any], Grace], StdioUpstream | HttpUpstream]",
) -> int:
    gc.disable()
    from forebay.outputs.policy import OutputPolicy
    from forebay.proxy.pipe_writers import StdioClient, claim_stdout
    from forebay.proxy.relay import Relay
    from forebay.proxy.stdio import StdioUpstream
    from forebay.wire.framing import LineReader, create_spool

    # What is imported stays, so the collector need not look at it again and again.
    gc.freeze()
    gc.enable()
    client = StdioClient(claim_stdout(), lambda: stop_signal.set("the client is gone"))
    with contextlib.closing(OutputPolicy(**settings.policy_options())) as policy:
        make_spool = partial(create_spool, policy.store)
        limits: dict[str, Any] = {"spool_above_bytes": settings.spool_above_bytes, "make_spool": make_spool}
        grace = Grace(settings.shutdown_grace_seconds)
        upstream = make_upstream(client, policy, limits, grace)
        timeout_seconds = settings.call_timeout_seconds

        def flush() -> None:
            client.flush()
            if isinstance(upstream, StdioUpstream):
                upstream.flush()

        relay = Relay(
            policy, client, upstream, call_timeout=timeout_seconds, wait_ready=upstream.wait_ready, flush=flush
        )
        exit_codes: list[int] = []

        def read_server() -> None:
            try:
                exit_codes.append(upstream.run(relay))
            finally:
                stop_signal.set("the server has ended")

        def read_client() -> None:
            cork: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
            if isinstance(upstream, StdioUpstream):
                cork = partial(upstream.corked, relay.on_unsent)
            try:
                for lines in LineReader(sys.stdin.fileno(), **limits).batches():
                    with cork() if len(lines) > 1 else contextlib.nullcontext():
                        for line in lines:
                            relay.receive_from_client(line)
            finally:
                stop_signal.set("the client has nothing more to say")

        server_thread = _start_thread(read_server)
        _start_thread(read_client)
        if timeout_seconds:
            _start_thread(lambda: _expire_periodically(relay, timeout_seconds, stop_signal))
        stop_signal.wait()
        _log.info("forebay: %s", stop_signal.reason)
        if exit_codes:
            # The client may be about to send its first request, and should get the reason why the server has ended.
            relay.has_reported_failure.wait(_FIRST_REQUEST_SECONDS)
        # Read before `upstream.close`, because the exit code that closing causes is not an error.
        code = exit_codes[0] if exit_codes and not stop_signal.was_signalled else 0
        grace.start()
        # Many servers drop their calls when their input ends, so calls in flight delay that.
        relay.wait_idle(grace.seconds / 2)
        upstream.close()
        deadline = time.monotonic() + max(grace.seconds, _FLUSH_TIMEOUT_SECONDS)
        # Wait for the last messages of the server, which may still be in the pipe.
        server_thread.join(deadline - time.monotonic())
        relay.wait_idle(deadline - time.monotonic())
        client.flush()
    # A negative code is a signal. Like a shell, return 128 plus the number of the signal.
    return 128 - code if code < 0 else code


def _start_thread(target: Callable[[], None]) -> threading.Thread:
    # A daemon thread does not delay the exit. This thread may wait for input that never comes.
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


class _StopSignal:
    """Event that ends the gateway, with a reason. Signals such as SIGTERM set it, too."""

    def __init__(self) -> None:
        self.reason = ""
        self.was_signalled = False
        self._event = threading.Event()
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: object) -> None:
        self.was_signalled = True
        self.set(f"stopped by {signal.Signals(number).name}")

    def set(self, reason: str) -> None:
        self.reason = self.reason or reason
        self._event.set()

    def wait(self, seconds: float | None = None) -> bool:
        return self._event.wait(seconds)


def _expire_periodically(relay: "Relay", timeout: float, stop_signal: _StopSignal) -> None:
    while not stop_signal.wait(_CHECK_INTERVAL_SECONDS):
        relay.expire_requests(timeout)
