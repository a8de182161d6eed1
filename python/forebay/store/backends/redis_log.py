"""A log of lines in a Redis stream."""

import atexit
import contextlib
import secrets
import threading
import weakref
from collections import deque
from collections.abc import Iterator

from forebay.errors import ForebayError
from forebay.store.backends.redis_client import RedisClient
from forebay.store.backends.redis_keys import RedisKeys
from forebay.store.backends.redis_scripts import APPEND_LINES
from forebay.store.threads import fork_safe_lock, run_in_forked_child

__all__ = ["RedisLog"]

_MAX_LINES = 100_000
_FLUSH_SECONDS = 0.5
"""How long lines stay in memory. A process that is killed loses the lines of this time."""

_MAX_WAITING_LINES = 10_000
"""Maximum number of lines that wait for a server which is away; older ones are lost."""

_BATCH_LINES = 500

_open_logs: "weakref.WeakSet[RedisLog]" = weakref.WeakSet()


class RedisLog:
    """A log of about the last `_MAX_LINES` lines. `append` only changes memory; a thread writes to the server soon."""

    def __init__(self, client: RedisClient, keys: RedisKeys) -> None:
        self._client = client
        self._keys = keys
        self._lock = fork_safe_lock()
        self._write_lock = fork_safe_lock()
        self._lines: deque[bytes] = deque(maxlen=_MAX_WAITING_LINES)
        self._has_timer = False
        _open_logs.add(self)

    def append(self, line: bytes) -> None:
        """Append a line, which ends with a line break."""
        with self._lock:
            self._lines.append(line.rstrip(b"\n"))
            if not self._has_timer:
                self._start_timer()

    def _start_timer(self) -> None:
        timer = threading.Timer(_FLUSH_SECONDS, self._flush_quietly)
        timer.daemon = True
        # No thread can start while the interpreter exits; the lines are written at the end.
        with contextlib.suppress(RuntimeError):
            timer.start()
            self._has_timer = True

    def forget(self) -> None:
        """Drop the lines of a forked child, because its parent process writes them."""
        self._lines.clear()
        self._has_timer = False

    def flush(self, *, is_urgent: bool = True) -> None:
        """Write the lines to the server. Those that cannot be written wait for the next time."""
        with self._write_lock:
            self._has_timer = False
            while True:
                with self._lock:
                    batch = [self._lines.popleft() for _ in range(min(_BATCH_LINES, len(self._lines)))]
                if not batch:
                    return
                try:
                    keys = [self._keys.get_once(secrets.token_hex(8)), self._keys.journal]
                    self._client.run(APPEND_LINES, keys, [_MAX_LINES, *batch], is_urgent=is_urgent)
                except BaseException:
                    with self._lock:
                        room = _MAX_WAITING_LINES - len(self._lines)
                        self._lines.extendleft(reversed(batch[max(0, len(batch) - room) :]))
                    raise

    def _flush_quietly(self) -> None:
        with contextlib.suppress(ForebayError):
            self.flush()

    def read_backward(self) -> Iterator[bytes]:
        """Return the lines, newest first."""
        self._flush_quietly()
        end = b"+"
        while True:
            found = self._client.call("XREVRANGE", self._keys.journal, end, "-", "COUNT", _BATCH_LINES)
            if not found:
                return
            for _, fields in found:
                yield fields[b"line"]
            end = b"(" + found[-1][0]

    def close(self) -> None:
        """Write the lines to the server, if it answers."""
        with contextlib.suppress(ForebayError):
            self.flush(is_urgent=False)
        _open_logs.discard(self)


@atexit.register
def _flush_all() -> None:
    for log in list(_open_logs):
        log.close()


def _forget_in_child() -> None:
    for log in list(_open_logs):
        log.forget()


run_in_forked_child(_forget_in_child)
