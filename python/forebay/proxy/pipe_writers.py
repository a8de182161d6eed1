"""Writers of messages to pipes: `StdioClient` waits while the pipe to the client is full, `Outbox` never waits."""

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import cast

from forebay.errors import UpstreamFailed
from forebay.system.pipes import PipeOutput, enlarge_pipe, write_some
from forebay.wire.framing import Message, Spool

__all__ = ["MAX_QUEUED_BYTES", "Outbox", "PipeClosed", "StdioClient", "claim_stdout", "measure_queued"]

MAX_QUEUED_BYTES = 24 << 20
"""Maximum bytes that wait for a server, not counting the message that is being written and the newest one."""

_QUEUED_MESSAGE_BYTES = 4096
"""Memory that a queued message may take besides its bytes: orjson allocates some kilobytes for each of its results."""

_MAX_HELD_BYTES = 64 << 10
"""Maximum bytes of messages that are held back, to write them together."""

_MAX_HELD_MESSAGES = 64
"""Maximum number of messages that are held back."""

_POLL_INTERVAL_MS = 1000
"""How often a blocked writer checks its pipe, in milliseconds."""


class _Cork:
    """Messages of one thread that are held back, to write them in one system call.

    A system call costs about as much as handling a message, because other threads get the interpreter during the call.
    The cork has no lock of its own: each caller holds one.
    """

    def __init__(self) -> None:
        self._thread_id: int | None = None
        self._messages: list[Message] = []
        self._bytes = 0

    def start(self) -> None:
        """Hold back the messages of the calling thread until `stop`."""
        self._thread_id = threading.get_ident()

    def stop(self) -> None:
        self._thread_id = None

    def try_hold(self, raw: Message) -> bool:
        """Hold back a message, and return `True`, if it comes from the corked thread and there is room for it."""
        if self._thread_id != threading.get_ident() or isinstance(raw, Spool):
            return False
        if self._bytes + len(raw) > _MAX_HELD_BYTES or len(self._messages) >= _MAX_HELD_MESSAGES:
            return False
        self._messages.append(raw)
        self._bytes += len(raw)
        return True

    def take(self) -> list[Message]:
        """Return the messages that are held back, and forget them."""
        messages, self._messages, self._bytes = self._messages, [], 0
        return messages

    def write(self, write: Callable[[bytes], object]) -> None:
        """Pass the messages that are held back to `write` at once, and forget them unless it raises an error."""
        if self._messages:
            write(b"\n".join(cast("list[bytes]", self._messages)))
            self.take()


class StdioClient:
    """Sender of messages to the client on a pipe. After the client has disconnected, messages are dropped."""

    def __init__(self, fd: int, on_disconnect: Callable[[], None]) -> None:
        self._fd = fd
        self._on_disconnect = on_disconnect
        self._lock = threading.Lock()
        self._cork = _Cork()
        self._is_disconnected = False
        enlarge_pipe(fd)

    def send(self, raw: Message) -> None:
        """Write a message and a newline; block while the pipe is full."""
        with self._lock:
            if self._is_disconnected or self._cork.try_hold(raw):
                return
            self._write_held(raw)
        if self._is_disconnected:
            self._on_disconnect()

    def _write_held(self, *lines: Message) -> None:
        """Write the messages that are held back, and then `lines`."""
        try:
            self._cork.write(partial(_write_line, self._fd))
            for raw in lines:
                _write_line(self._fd, raw)
        except OSError:
            self._is_disconnected = True

    @contextlib.contextmanager
    def corked(self) -> Iterator[None]:
        """Hold back the messages of the calling thread, until there are many, and write them at the end."""
        with self._lock:
            self._cork.start()
        try:
            yield
        finally:
            with self._lock:
                self._cork.stop()
            self.flush()

    def flush(self) -> None:
        """Write the messages that are held back."""
        with self._lock:
            if self._is_disconnected:
                return
            self._write_held()
        if self._is_disconnected:
            self._on_disconnect()


def claim_stdout() -> int:
    """Return a descriptor of standard output for the protocol; later prints go to standard error instead."""
    sys.stdout.flush()
    fd = os.dup(1)
    os.dup2(2, 1)
    return fd


def _write_line(fd: int, raw: Message) -> None:
    if isinstance(raw, Spool):
        for chunk in raw.chunks():
            _write_all(fd, chunk)
        _write_all(fd, b"\n")
        return
    # Write the message and its newline in one call, so that the reader does not wake up for half a message.
    count = write_some(fd, (raw, b"\n"))
    if count <= len(raw):
        _write_all(fd, memoryview(raw)[count:])
        _write_all(fd, b"\n")


def _write_all(fd: int, chunk: bytes | memoryview) -> None:
    view = memoryview(chunk)
    while view:
        view = view[write_some(fd, (view,)) :]


class PipeClosed(UpstreamFailed):
    """The server has closed its standard input or exited."""

    def __init__(self) -> None:
        super().__init__("the server has stopped reading; retry later")


class Outbox:
    """Queue of messages to a pipe. If the pipe is full, a thread writes the messages, so that `send` never blocks."""

    def __init__(self, fd: int) -> None:
        self._pipe = PipeOutput(fd)
        self._queue: deque[tuple[int, Iterator[bytes | memoryview]]] = deque()
        """Size and remaining chunks of each message; the first one is being written."""
        self._queued_bytes = 0
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._cork = _Cork()
        self._is_closed = False
        self._is_broken = False
        self._is_writing = False
        self._has_current = False
        """Whether the thread is writing the first message of the queue."""

    def send(self, raw: Message) -> None:
        """Write or queue a message. Raises `UpstreamFailed` if the server does not read, or too slowly."""
        with self._lock:
            if self._is_closed or self._is_broken:
                raise PipeClosed
            # The message that is being written does not count: the server may be about to read all of it.
            if self._queue and self._queued_bytes - self._queue[0][0] > MAX_QUEUED_BYTES:
                raise UpstreamFailed("the server does not read what it is sent; retry later")
            if not self._cork.try_hold(raw):
                self._cork.write(self._write)
                self._write(raw)

    def _write(self, raw: Message) -> None:
        """Write a message, or queue what does not fit into the pipe. Raises `PipeClosed`."""
        remaining = self._try_write(raw) if not self._queue and not isinstance(raw, Spool) else _iter_line_chunks(raw)
        if remaining is not None:
            size = measure_queued(raw)
            self._queued_bytes += size
            self._queue.append((size, remaining))
            self._start_writer()

    def cork(self) -> None:
        """Hold back the messages of the calling thread, until there are many, or until `uncork`."""
        with self._lock:
            # `send` must fail now if the server has stopped reading, not only when the messages are written.
            # The thread that writes a queue notices it by itself; on Windows, `is_broken` would wait for that thread.
            if not (self._is_broken or self._is_closed or self._queue):
                self._is_broken = self._pipe.is_broken()
            self._cork.start()

    def uncork(self) -> list[Message]:
        """Write the messages that are held back; return those that a server that stopped reading did not get."""
        with self._lock:
            self._cork.stop()
            with contextlib.suppress(PipeClosed):
                self._cork.write(self._write)
            return self._cork.take()

    def flush(self) -> None:
        """Write the messages that are held back. `uncork` returns them if the server has stopped reading."""
        with self._lock, contextlib.suppress(PipeClosed):
            self._cork.write(self._write)

    def _try_write(self, raw: bytes | bytearray) -> Iterator[bytes | memoryview] | None:
        """Write as much as fits into the pipe; return the remaining chunks, or `None` if all was written."""
        try:
            # Write the message and its newline in one call, so that the reader does not wake up for half a message.
            count = self._pipe.try_write((raw, b"\n"))
        except OSError:
            self._is_broken = True
            raise PipeClosed from None
        if count > len(raw):
            return None
        return iter((memoryview(raw)[count:], b"\n"))

    def _start_writer(self) -> None:
        if not self._is_writing:
            self._is_writing = True
            threading.Thread(target=self._run, name="forebay-outbox", daemon=True).start()

    def _run(self) -> None:
        try:
            while (chunks := self._next_line()) is not None:
                for chunk in chunks:
                    view = memoryview(chunk)
                    while view:
                        view = view[self._pipe.write(view, _POLL_INTERVAL_MS) :]
        except OSError:
            with self._changed:
                self._is_broken = True
                self._queue.clear()
                self._changed.notify_all()

    def _next_line(self) -> Iterator[bytes | memoryview] | None:
        with self._changed:
            # A message stays first in the queue while it is written, so that others wait behind it.
            if self._queue and self._has_current:
                self._queued_bytes -= self._queue.popleft()[0]
            self._has_current = bool(self._queue)
            if not self._queue:
                self._is_writing = False
                self._changed.notify_all()
                return None
            return self._queue[0][1]

    def close(self, timeout: float) -> bool:
        """Refuse further messages and wait until the queued ones are written; return `False` on timeout."""
        self.flush()
        with self._changed:
            self._is_closed = True
            return self._changed.wait_for(lambda: not self._queue, timeout)


def measure_queued(raw: Message) -> int:
    """Return the bytes that a queued message counts for: its size, or half of it if it is on disk, and the overhead."""
    return (len(raw) // 2 if isinstance(raw, Spool) else len(raw)) + _QUEUED_MESSAGE_BYTES


def _iter_line_chunks(raw: Message) -> Iterator[bytes | memoryview]:
    return chain(raw.chunks(), [b"\n"]) if isinstance(raw, Spool) else iter((memoryview(raw), b"\n"))
