"""`forebay wrap`: one client, one server, and forebay between them."""

import contextlib
import logging
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from forebay.proxy.stdio import Process

if TYPE_CHECKING:
    from forebay.config.options import Settings
    from forebay.outputs.policy import OutputPolicy
    from forebay.proxy.http.upstream import HttpUpstream
    from forebay.proxy.relay import Relay
    from forebay.proxy.stdio import StdioUpstream

__all__ = ["run", "run_url"]

_log = logging.getLogger("forebay")

_FAILURE_REPORT_SECONDS = 2.0

_CHECK_SECONDS = 0.25
"""How often it is looked whether a server is late."""


def run(settings: "Settings", command: Sequence[str]) -> int:
    """A server that is a command, until the client is gone, or someone ends it. Gives the exit code."""
    # First of all, so that nothing is left behind by whoever ends us while we begin.
    stop = _StopSignal()
    # Before the rest of us is imported, so that it starts meanwhile.
    process = Process(command)
    from forebay.proxy.stdio import RestartBackoff, StdioUpstream
    from forebay.wire.framing import LineReader

    pace = RestartBackoff(settings.restart_limit, settings.restart_window_seconds, settings.restart_delay_seconds)
    grace = settings.shutdown_grace_seconds
    return _run_relay(
        settings,
        stop,
        lambda _, limits: StdioUpstream(
            process, command, make_reader=partial(LineReader, **limits), backoff=pace, grace=grace
        ),
    )


def run_url(settings: "Settings", url: str, headers: Sequence[str] = ()) -> int:
    """A server at a URL, with headers such as `Name: value` that let us in; as `run` does."""
    from forebay.proxy.http.upstream import HttpUpstream

    # At other levels it logs each URL, and with it what is secret in one.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    return _run_relay(
        settings,
        _StopSignal(),
        lambda gate, limits: HttpUpstream(url, headers=headers, find_schema=gate.input_schema, **limits),
    )


def _run_relay(
    settings: "Settings",
    stop: "_StopSignal",
    make_upstream: "Callable[[OutputPolicy, dict[str, Any]], StdioUpstream | HttpUpstream]",
) -> int:
    from forebay.outputs.policy import OutputPolicy
    from forebay.proxy.relay import Relay
    from forebay.proxy.stdio import StdioClient, claim_stdout
    from forebay.wire.framing import LineReader, create_spool

    client = StdioClient(claim_stdout(), lambda: stop("the client is gone"))
    with contextlib.closing(OutputPolicy(**settings.policy_options())) as gate:
        make_spool = partial(create_spool, gate.store)
        limits: dict[str, Any] = {"spool_above_bytes": settings.spool_above_bytes, "make_spool": make_spool}
        upstream = make_upstream(gate, limits)
        relay = Relay(gate, client, upstream, call_timeout=settings.call_timeout_seconds)
        codes: list[int] = []

        def serve() -> None:
            try:
                codes.append(upstream.run(relay))
            finally:
                stop("the server has ended")

        def listen() -> None:
            try:
                for line in LineReader(sys.stdin.fileno(), **limits):
                    relay.receive_from_client(line)
            finally:
                stop("the client has nothing more to say")

        serving = _start_thread(serve)
        _start_thread(listen)
        if patience := settings.call_timeout_seconds:
            _start_thread(lambda: _expire_periodically(relay, patience, stop))
        stop.wait()
        _log.info("forebay: %s", stop.reason)
        if codes:
            # A client that has just been started is about to ask, and should know why it is not answered.
            relay.has_reported_failure.wait(_FAILURE_REPORT_SECONDS)
        # Not how it ends because of us.
        code = codes[0] if codes and not stop.was_signalled else 0
        grace = settings.shutdown_grace_seconds
        relay.wait_idle(grace)
        upstream.close()
        # What it said last is on its way yet.
        serving.join(grace)
        relay.wait_idle(grace)
    # As a shell has it, of one that was ended by a signal.
    return 128 - code if code < 0 else code


def _start_thread(job: Callable[[], None]) -> threading.Thread:
    # They wait for input that may never come, and end with the process.
    thread = threading.Thread(target=job, daemon=True)
    thread.start()
    return thread


class _StopSignal:
    """Why it is time to end, once it is."""

    def __init__(self) -> None:
        self.reason = ""
        self.was_signalled = False
        self._event = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: object) -> None:
        self.was_signalled = True
        self(f"told to end by {signal.Signals(number).name}")

    def __call__(self, reason: str) -> None:
        self.reason = self.reason or reason
        self._event.set()

    def wait(self, seconds: float | None = None) -> bool:
        return self._event.wait(seconds)


def _expire_periodically(relay: "Relay", seconds: float, stop: _StopSignal) -> None:
    while not stop.wait(_CHECK_SECONDS):
        relay.expire_requests(seconds)
