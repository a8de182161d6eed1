"""The stdio transport to a server that runs as a child process."""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Protocol, TypeVar, cast

from forebay.errors import UpstreamFailed
from forebay.proxy.pipe_writers import MAX_QUEUED_BYTES, Outbox, PipeClosed, measure_queued
from forebay.proxy.process_group import Grace, start_server
from forebay.system.pipes import EndSignal, enlarge_pipe
from forebay.system.processes import KILLED_CODE, ProcessGroup
from forebay.wire.framing import Line, Message

if TYPE_CHECKING:
    from forebay.proxy.upstream import Receiver

__all__ = ["BatchReader", "Process", "RestartBackoff", "StdioUpstream"]

_log = logging.getLogger("forebay")

_KILL_TIMEOUT_SECONDS = 1.0
"""How long to wait for a server after SIGKILL. A server that is blocked in the kernel ends later."""

_RESTART_WAIT_SECONDS = 1.0
"""If a restart is delayed by more than this, messages to the server fail instead of waiting in a queue."""

_MAX_QUEUED_MESSAGES = 1000
"""Maximum number of messages to queue while a server restarts."""

_LARGE_MESSAGE_BYTES = 10 << 20
"""Servers of the TypeScript SDK exit when they receive a message larger than this."""

_T = TypeVar("_T")

_RESTARTING_ERROR = UpstreamFailed("the server has ended and is being started again; retry later")


class Process:
    """Server that runs as a child process. It shares our standard error, unless it gets a file for it.

    With `group`, the server was started already.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stderr: IO[bytes] | None = None,
        group: ProcessGroup | None = None,
    ) -> None:
        self._end_lock = threading.Lock()
        environment = None if env is None else {**os.environ, **env}
        self._group = group or start_server(command, env=environment, cwd=cwd, stderr=stderr)
        server = self._group.server
        self._stdin, self._stdout = cast("BinaryIO", server.stdin), cast("BinaryIO", server.stdout)
        for pipe in (self._stdin, self._stdout):
            enlarge_pipe(pipe.fileno())
        self.outbox = Outbox(self._stdin.fileno())
        self._has_exited = threading.Event()
        self._has_ended = False
        self._end = EndSignal()
        threading.Thread(target=self._await_exit, daemon=True).start()

    def _await_exit(self) -> None:
        self._group.server.wait()
        self._has_exited.set()
        # This ends `read_lines`.
        self._end.set()

    def read_lines(self, make_reader: Callable[..., Iterable[_T]]) -> Iterator[_T]:
        """Yield lines, or batches of them, until the server exits, even if its children keep its output open."""
        try:
            yield from make_reader(self._stdout.fileno(), end=self._end)
        finally:
            self._stdout.close()
            self._end.close()

    def send(self, raw: Message) -> None:
        """Send a message without blocking. Raises `UpstreamFailed` if the server does not read."""
        self.outbox.send(raw)

    def wait_exit(self, seconds: float) -> int | None:
        """Return the exit code, or `None` on timeout."""
        self._has_exited.wait(seconds)
        return self._group.server.returncode

    def terminate(self, grace_seconds: float) -> int:
        """Close the server's input, end what still runs of it after `grace_seconds`, and return its exit code."""
        deadline = time.monotonic() + grace_seconds
        with self._end_lock:
            if not self._has_ended:
                if self.outbox.close(grace_seconds):
                    with contextlib.suppress(OSError):
                        self._stdin.close()
                self._has_exited.wait(deadline - time.monotonic())
                self._group.end()
                self._has_ended = True
        code = self.wait_exit(_KILL_TIMEOUT_SECONDS)
        return KILLED_CODE if code is None else code


class RestartBackoff:
    """Delays before restarts: 0 seconds, then `delay_seconds`, then twice as long each time.

    At most `max_restarts` happen within `window_seconds`.
    """

    def __init__(
        self,
        max_restarts: int = 5,
        window_seconds: float = 60.0,
        delay_seconds: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_restarts = max_restarts
        self._window_seconds = window_seconds
        self._delay_seconds = delay_seconds
        self._clock = clock
        self._starts: list[float] = []

    def next_delay(self) -> float | None:
        """Return the seconds to wait before the next start; `None` if there must be no restart."""
        if self._max_restarts == 0:
            return None
        now = self._clock()
        self._starts = [start for start in self._starts if now - start < self._window_seconds]
        count = len(self._starts)
        delay = min(self._window_seconds, self._delay_seconds * 2 ** (count - 1)) if count else 0.0
        if count >= self._max_restarts:
            delay = max(delay, self._starts[-self._max_restarts] + self._window_seconds - now)
        self._starts.append(now + delay)
        return delay


class BatchReader(Protocol):
    """Reader of the lines of a file descriptor."""

    def batches(self) -> Iterator[list[Line]]:
        """Yield the lines that each read has completed."""


class StdioUpstream:
    """Server that runs as a child process and is restarted when it ends. Its messages go to the relay."""

    def __init__(
        self,
        process: Process,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        make_reader: Callable[..., BatchReader],
        backoff: RestartBackoff | None = None,
        grace: Grace,
        name: str = "the server",
        exit_wait_seconds: float = _RESTART_WAIT_SECONDS,
        cork_client: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        """Take over a process. `name` is what the log calls the server.

        If the server has stopped reading, `send` waits `exit_wait_seconds` to tell how it ended. Messages that were
        read together are passed to the relay in the context of `cork_client`.
        """
        self._name = name
        self._exit_wait_seconds = exit_wait_seconds
        self._cork_client = cork_client
        self._process = process
        self._start_process = partial(Process, command, env=env, cwd=cwd)
        self._make_reader = make_reader
        self._backoff = backoff or RestartBackoff()
        self._grace = grace
        self._lock = threading.Lock()
        self._queued_messages: list[Message] | None = None
        """Messages that wait for a restarting server; `None` while the server runs."""
        self._down_error: UpstreamFailed | None = None
        """Error returned to callers while the server is down."""
        self._largest_message_bytes = 0
        """Size of the largest message to the running server."""
        self._has_answered = False
        """Whether the server, or one that it has replaced, has ever sent a message."""
        self._stop_event = threading.Event()

    def send(self, raw: Message) -> None:
        """Send a message to the server, or queue it while the server restarts. Raises `UpstreamFailed`."""
        with self._lock:
            self._largest_message_bytes = max(self._largest_message_bytes, len(raw))
            if self._down_error is not None:
                raise UpstreamFailed(str(self._down_error))
            if self._queued_messages is not None:
                is_full = sum(map(measure_queued, self._queued_messages)) > MAX_QUEUED_BYTES
                if is_full or len(self._queued_messages) >= _MAX_QUEUED_MESSAGES:
                    raise UpstreamFailed("the server is being started, and too much waits for it; retry later")
                self._queued_messages.append(raw)
                return
            process = self._process
        try:
            process.send(raw)
        except PipeClosed:
            # The server has probably exited, and `run` is about to notice.
            if (code := process.wait_exit(self._exit_wait_seconds)) is None:
                raise
            raise self._make_exit_error(code, self._largest_message_bytes) from None

    has_room = True
    """If the server reads too slowly, `send` fails."""

    def wait_ready(self) -> None:
        """Return at once: if the server reads too slowly, `send` fails."""

    def run(self, relay: "Receiver") -> int:
        """Read messages until `close` is called, or the server ends and is not restarted; return its exit code."""
        while True:
            for lines in self._process.read_lines(self._make_batch_reader):
                self._has_answered = True
                with contextlib.nullcontext() if len(lines) == 1 else self._cork_client():
                    for line in lines:
                        try:
                            relay.receive_from_server(line)
                        except Exception:
                            # It must not end the thread, because nobody else reads what the server writes.
                            _log.exception("forebay: a message of %s could not be handled", self._name)
            code = self._process.terminate(self._grace.remaining_seconds)
            with self._lock:
                self._queued_messages = []
                largest_message_bytes, self._largest_message_bytes = self._largest_message_bytes, 0
            exit_error = self._make_exit_error(code, largest_message_bytes)
            relay.on_upstream_end(exit_error)
            if self._stop_event.is_set() or not self._has_answered or not self._restart(relay, code):
                with self._lock:
                    text = f"the server {_describe_exit(code)}, and is not started again; see what it logged"
                    self._down_error = UpstreamFailed(text) if self._has_answered else exit_error
                # Called once more, for requests that have arrived since the first call.
                relay.on_upstream_end(self._down_error)
                return code

    def _make_batch_reader(self, *args: Any, **options: Any) -> Iterator[list[Line]]:
        return self._make_reader(*args, **options).batches()

    @contextlib.contextmanager
    def corked(self, on_failure: Callable[[Message, UpstreamFailed], None]) -> Iterator[None]:
        """Hold back the messages of the calling thread, until there are many, and write them at the end.

        Calls `on_failure` with each message that the server did not read.
        """
        with self._lock:
            outbox = self._process.outbox
        outbox.cork()
        try:
            yield
        finally:
            for raw in outbox.uncork():
                on_failure(raw, PipeClosed())

    def flush(self) -> None:
        """Write the messages that are held back."""
        with self._lock:
            outbox = self._process.outbox
        outbox.flush()

    def _make_exit_error(self, code: int, largest_message_bytes: int) -> UpstreamFailed:
        if not self._has_answered:
            return UpstreamFailed(
                f"the server {_describe_exit(code)} at its start; see what it logged, and check its command, args and "
                "cwd"
            )
        text = f"the server {_describe_exit(code)} before it answered; it may have done what it was asked to"
        if largest_message_bytes > _LARGE_MESSAGE_BYTES:
            text += (
                f"; it was sent a message of {largest_message_bytes} bytes, "
                "and many end at more than 10 MiB: send less at once"
            )
        return UpstreamFailed(text)

    def _restart(self, relay: "Receiver", code: int) -> bool:
        """Start the server again after a delay; return `False` if it must not be restarted."""
        while (delay := self._backoff.next_delay()) is not None:
            with self._lock:
                self._down_error = _RESTARTING_ERROR if delay > _RESTART_WAIT_SECONDS else None
            when = f"in {delay:g} s" if delay > 0 else "at once"
            _log.warning("forebay: %s %s, and is started again %s", self._name, _describe_exit(code), when)
            if self._stop_event.wait(delay):
                return False
            try:
                process = self._start_process()
            except UpstreamFailed as error:
                _log.warning("forebay: %s cannot be started again: %s", self._name, error)
                continue
            with self._lock:
                self._process, self._down_error = process, None
            if self._stop_event.is_set():
                # `close` may have ended only the previous process.
                process.terminate(self._grace.remaining_seconds)
            else:
                # Resume in another thread, because the current thread must read the responses.
                threading.Thread(target=self._resume_session, args=(relay, process), daemon=True).start()
            return True
        return False

    def _resume_session(self, relay: "Receiver", process: Process) -> None:
        """Repeat the handshake to a restarted server, then send the queued messages."""
        try:
            relay.replay_session(process.send)
        except Exception as error:
            _log.warning("forebay: %s was started again, but its session cannot be restored: %s", self._name, error)
            process.terminate(self._grace.remaining_seconds)
            return
        while True:
            with self._lock:
                if self._queued_messages is None or self._process is not process:
                    return
                if not self._queued_messages:
                    self._queued_messages = None
                    return
                raw = self._queued_messages.pop(0)
            try:
                process.send(raw)
            except UpstreamFailed:
                # `run` fails the request when it notices that the server has ended.
                return

    def close(self) -> None:
        """End the server, and with it `run`."""
        self._stop_event.set()
        with self._lock:
            process = self._process
        process.terminate(self._grace.remaining_seconds)


def _describe_exit(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
