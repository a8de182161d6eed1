"""A server as a child process, and the pipe to it."""

import contextlib
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, BinaryIO, cast

from forebay.errors import UpstreamFailed
from forebay.wire.framing import Line, Message, Spool, enlarge_pipe

if TYPE_CHECKING:
    from forebay.proxy.relay import Relay

__all__ = ["Outbox", "PipeClosed", "Process", "RestartBackoff", "StdioClient", "StdioUpstream", "claim_stdout"]


class Process:
    """A running server. Its standard error is ours: what it says there is never in the way of the protocol."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | None = None) -> None:
        self._end_lock = threading.Lock()
        try:
            # In a group of its own, so that an interrupt at the terminal leaves it to us to end it.
            self._child = subprocess.Popen(  # noqa: S603 - whoever runs the gateway says what is to be run
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=None if env is None else {**os.environ, **env},
                cwd=cwd,
                process_group=0,
                bufsize=0,
            )
        except OSError as error:
            raise UpstreamFailed(f"{command[0]} cannot be started: {error.strerror}; check the command") from None
        self._stdin, self._stdout = cast("BinaryIO", self._child.stdin), cast("BinaryIO", self._child.stdout)
        for pipe in (self._stdin, self._stdout):
            enlarge_pipe(pipe.fileno())
        self._outbox = Outbox(self._stdin.fileno())
        self._ended_fd, is_running = os.pipe()
        threading.Thread(target=self._await_end, args=(is_running,), daemon=True).start()

    def _await_end(self, is_running: int) -> None:
        self._child.wait()
        os.close(is_running)

    def read_lines(self, lines: Callable[..., Iterable[Line]]) -> Iterator[Line]:
        """What it says, until it has ended: its children may keep its output open for longer than that."""
        try:
            yield from lines(self._stdout.fileno(), end_fd=self._ended_fd)
        finally:
            self._stdout.close()
            os.close(self._ended_fd)

    def send(self, line: Message) -> None:
        """A message, whole, as soon as the server reads it. Raises `UpstreamFailed` if it does not."""
        self._outbox.send(line)

    def wait_exit(self, seconds: float) -> int | None:
        """Its exit code, if it ends by then."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._child.wait(seconds)
        return None

    def terminate(self, grace: float) -> int:
        """Ends the server: by closing its input, then by asking, then by force. Gives its exit code."""
        with self._end_lock:
            if self._outbox.close(grace) and not self._stdin.closed:
                with contextlib.suppress(OSError):
                    self._stdin.close()
        for number, seconds in ((None, grace), (signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
            if number is not None:
                self._signal(number)
            if (code := self.wait_exit(seconds)) is not None:
                return code
        return self._child.wait()

    def _signal(self, number: int) -> None:
        # It may have children of its own, as `npx` does.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, number)


class StdioClient:
    """Where answers go. One that is gone is told nothing more."""

    def __init__(self, fd: int, on_gone: Callable[[], None]) -> None:
        self._fd = fd
        self._on_gone = on_gone
        self._lock = threading.Lock()
        self._is_gone = False
        enlarge_pipe(fd)

    def send(self, line: Message) -> None:
        """A message and the end of its line, whole."""
        with self._lock:
            if self._is_gone:
                return
            try:
                _write_line(self._fd, line)
            except OSError:
                self._is_gone = True
        if self._is_gone:
            self._on_gone()


def claim_stdout() -> int:
    """Standard output, for the protocol alone: whatever else is printed goes to standard error."""
    sys.stdout.flush()
    fd = os.dup(1)
    os.dup2(2, 1)
    return fd


def _write_line(fd: int, line: Message) -> None:
    """A message and the end of its line, whole, however little a pipe takes at once."""
    if isinstance(line, Spool):
        for piece in line.chunks():
            _write_all(fd, piece)
        _write_all(fd, b"\n")
        return
    # At once, so that nobody wakes up for half of a message.
    sent = _write_some(fd, line, b"\n")
    if sent <= len(line):
        _write_all(fd, memoryview(line)[sent:])
        _write_all(fd, b"\n")


def _write_all(fd: int, piece: bytes | memoryview) -> None:
    view = memoryview(piece)
    while view:
        view = view[_write_some(fd, view) :]


def _write_some(fd: int, *pieces: bytes | bytearray | memoryview) -> int:
    """How much of it the pipe takes: it waits, also where whoever shares it has made it one that does not."""
    while True:
        with contextlib.suppress(BlockingIOError):
            return os.writev(fd, pieces)
        poller = select.poll()
        poller.register(fd, select.POLLOUT)
        poller.poll()


class RestartBackoff:
    """At once, then after `delay` seconds, twice that, and so on; never more than `limit` times in a `window`."""

    def __init__(
        self, limit: int = 5, window: float = 60.0, delay: float = 0.5, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = limit
        self._window = window
        self._delay = delay
        self._clock = clock
        self._starts: list[float] = []

    def next_delay(self) -> float | None:
        """The seconds to wait before the next start; `None` if there is to be none."""
        if self._limit == 0:
            return None
        now = self._clock()
        self._starts = [start for start in self._starts if now - start < self._window]
        count = len(self._starts)
        wait = min(self._window, self._delay * 2 ** (count - 1)) if count else 0.0
        if count >= self._limit:
            wait = max(wait, self._starts[-self._limit] + self._window - now)
        self._starts.append(now + wait)
        return wait


_MAX_QUEUED_BYTES = 64 << 20
"""How many bytes may wait behind the line that is being written, before more is refused."""

_POLL_MS = 1000
"""Milliseconds after which it is looked whether anyone still wants to write."""


class PipeClosed(UpstreamFailed):
    """A server has closed its input, or has ended."""

    def __init__(self) -> None:
        super().__init__("the server does not read any more; ask again in a while")


class Outbox:
    """Lines to a pipe, each whole and in their order. What the pipe does not take at once is written by a thread."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._queue: deque[tuple[int, Iterator[bytes | memoryview]]] = deque()
        self._queued_bytes = 0
        self._changed = threading.Condition()
        self._is_closed = False
        self._is_broken = False
        self._is_writing = False
        self._has_current = False

    def send(self, line: Message) -> None:
        """Raises `UpstreamFailed` if nobody reads, or not nearly enough."""
        with self._changed:
            if self._is_closed or self._is_broken:
                raise PipeClosed
            # A line may be as large as it likes: a server that is at it does read.
            if self._queue and self._queued_bytes - self._queue[0][0] > _MAX_QUEUED_BYTES:
                raise UpstreamFailed("the server does not read what it is sent; ask again in a while")
            rest = self._try_write(line) if not self._queue and not isinstance(line, Spool) else _line_chunks(line)
            if rest is not None:
                self._queued_bytes += len(line)
                self._queue.append((len(line), rest))
                self._start_writer()

    def _try_write(self, line: bytes | bytearray) -> Iterator[bytes | memoryview] | None:
        """Writes as much as the pipe takes; what is left, if anything is."""
        try:
            # At once, so that nobody wakes up for half of a message.
            sent = os.writev(self._fd, (line, b"\n"))
        except BlockingIOError:
            sent = 0
        except OSError:
            self._is_broken = True
            raise PipeClosed from None
        if sent > len(line):
            return None
        return iter((memoryview(line)[sent:], b"\n"))

    def _start_writer(self) -> None:
        if not self._is_writing:
            self._is_writing = True
            threading.Thread(target=self._run, name="forebay-outbox", daemon=True).start()

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._fd, select.POLLOUT)
        try:
            while (line := self._next_line()) is not None:
                for piece in line:
                    view = memoryview(piece)
                    while view:
                        poller.poll(_POLL_MS)
                        with contextlib.suppress(BlockingIOError):
                            view = view[os.write(self._fd, view) :]
        except OSError:
            with self._changed:
                self._is_broken = True
                self._queue.clear()
                self._changed.notify_all()

    def _next_line(self) -> Iterator[bytes | memoryview] | None:
        with self._changed:
            # The one that was written is still the first: whatever comes meanwhile has to wait behind it.
            if self._queue and self._has_current:
                self._queued_bytes -= self._queue.popleft()[0]
            self._has_current = bool(self._queue)
            if not self._queue:
                self._is_writing = False
                self._changed.notify_all()
                return None
            return self._queue[0][1]

    def close(self, timeout: float) -> bool:
        """Takes nothing more, and waits until what it took is written; `False` if that takes longer."""
        with self._changed:
            self._is_closed = True
            return self._changed.wait_for(lambda: not self._queue, timeout)


def _line_chunks(line: Message) -> Iterator[bytes | memoryview]:
    return chain(line.chunks(), [b"\n"]) if isinstance(line, Spool) else iter((memoryview(line), b"\n"))


_log = logging.getLogger("forebay")

_RESTART_WAIT_SECONDS = 1.0
"""A server that is back by then is worth waiting for."""
_RESTARTING = UpstreamFailed("the server has ended and is being started again; ask again in a while")
_MAX_QUEUED = 1000

_LARGE_MESSAGE_BYTES = 10 << 20
"""Servers of the TypeScript SDK end when a message has more bytes than this."""


class StdioUpstream:
    """Sends to the server that runs; what it says goes to the relay."""

    def __init__(
        self,
        process: Process,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        make_reader: Callable[..., Iterable[Line]],
        backoff: RestartBackoff | None = None,
        grace: float = 5.0,
    ) -> None:
        self._process = process
        self._start = partial(Process, command, env=env, cwd=cwd)
        self._make_reader = make_reader
        self._backoff = backoff or RestartBackoff()
        self._grace = grace
        self._lock = threading.Lock()
        self._queued: list[Message] | None = None
        """Messages for a server that is on its way; `None` while one runs."""
        self._down_error: UpstreamFailed | None = None
        """What whoever asks now is told."""
        self._largest_bytes = 0
        """Bytes of the largest message for the server that runs."""
        self._closing = threading.Event()

    def send(self, line: Message) -> None:
        """To the server, or to the one that is about to take its place. Raises `UpstreamFailed`."""
        with self._lock:
            self._largest_bytes = max(self._largest_bytes, len(line))
            if self._down_error is not None:
                raise UpstreamFailed(str(self._down_error))
            if self._queued is not None:
                if len(self._queued) >= _MAX_QUEUED:
                    raise UpstreamFailed("the server is being started, and too much waits for it; ask again in a while")
                self._queued.append(line)
                return
            process = self._process
        try:
            process.send(line)
        except PipeClosed:
            # Most likely it has ended, and is about to be missed.
            if (code := process.wait_exit(_RESTART_WAIT_SECONDS)) is None:
                raise
            raise _exit_error(code, self._largest_bytes) from None

    def run(self, relay: "Relay") -> int:
        """Until it is closed, or the server ends without having said anything. Gives the exit code."""
        has_ever_spoken = False
        while True:
            for line in self._process.read_lines(self._make_reader):
                has_ever_spoken = True
                relay.receive_from_server(line)
            code = self._process.terminate(self._grace)
            with self._lock:
                self._queued = []
                largest, self._largest_bytes = self._largest_bytes, 0
            relay.on_upstream_end(_exit_error(code, largest))
            if self._closing.is_set() or not has_ever_spoken or not self._restart(relay):
                with self._lock:
                    self._down_error = UpstreamFailed(
                        f"the server {_describe_exit(code)}, and is not started again; see what it logged"
                    )
                # Whoever asked meanwhile.
                relay.on_upstream_end(self._down_error)
                return code

    def _restart(self, relay: "Relay") -> bool:
        """Starts the server again, after a while that grows; `False` if it is not to be."""
        while (delay := self._backoff.next_delay()) is not None:
            with self._lock:
                self._down_error = _RESTARTING if delay > _RESTART_WAIT_SECONDS else None
            _log.warning("forebay: the server has ended and is started again in %g s", delay)
            if self._closing.wait(delay):
                return False
            try:
                self._process = self._start()
            except UpstreamFailed as error:
                _log.warning("forebay: %s", error)
                continue
            with self._lock:
                self._down_error = None
            # Its answers come in by this very thread.
            threading.Thread(target=self._resume_session, args=(relay, self._process), daemon=True).start()
            return True
        return False

    def _resume_session(self, relay: "Relay", process: Process) -> None:
        try:
            relay.replay_session(process.send)
        except (UpstreamFailed, TimeoutError) as error:
            _log.warning("forebay: the server that was started again does not take up its work: %s", error)
            process.terminate(self._grace)
            return
        while True:
            with self._lock:
                if self._queued is None or self._process is not process:
                    return
                if not self._queued:
                    self._queued = None
                    return
                line = self._queued.pop(0)
            try:
                process.send(line)
            except UpstreamFailed:
                # Whoever waits for it is told when its end is seen.
                return

    def close(self) -> None:
        """No more is to be sent; the server ends, and with it `run`."""
        self._closing.set()
        self._process.terminate(self._grace)


def _describe_exit(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _exit_error(code: int, largest: int) -> UpstreamFailed:
    told = f"the server {_describe_exit(code)} before it answered; it may have done what it was asked to"
    if largest > _LARGE_MESSAGE_BYTES:
        told += f"; it was sent a message of {largest} bytes, and many end at more than 10 MiB: send less at once"
    return UpstreamFailed(told)
