"""Requests that wait for their answers."""

import dataclasses
import threading
import time
from collections import OrderedDict

from headgate.gateway.messages import key_of
from headgate.servers.modes import Mode

__all__ = ["Pending", "PendingRequests"]

_MOST_CANCELLED = 1024

_LISTEN = "subscriptions/listen"


@dataclasses.dataclass(frozen=True, slots=True)
class Pending:
    """What is known of a request when its answer comes."""

    method: str
    id: object
    version: str
    cursor: object = None
    """Which page of a list it asks for."""
    tool: str = ""
    mode: Mode = dataclasses.field(default_factory=Mode)
    token: object = None
    """By which progress of it is reported."""

    @property
    def is_lasting(self) -> bool:
        """Whether it is answered only when the client wants no more of it: nobody waits for that."""
        return self.method == _LISTEN


class PendingRequests:
    """By id, until they are answered, cancelled, or too late."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._waiting: dict[bytes, Pending] = {}
        self._deadlines: dict[bytes, float] = {}
        self._cancelled: OrderedDict[bytes, None] = OrderedDict()
        self._changed = threading.Condition()

    def add(self, pending: Pending) -> None:
        key = key_of(pending.id)
        with self._changed:
            self._waiting[key] = pending
            self._cancelled.pop(key, None)
            if self._timeout and not pending.is_lasting:
                self._deadlines[key] = time.monotonic() + self._timeout

    def get(self, request_id: object) -> Pending | None:
        """The request that an answer is for; it waits until that has gone out."""
        with self._changed:
            return self._waiting.get(key_of(request_id))

    def take(self, request_id: object) -> Pending | None:
        """The request that an answer is for; it waits no more."""
        return self._take(key_of(request_id))

    def _take(self, key: bytes) -> Pending | None:
        with self._changed:
            self._deadlines.pop(key, None)
            found = self._waiting.pop(key, None)
            self._changed.notify_all()
            return found

    def settle(self, request_id: object) -> None:
        """Returns when a request waits no more."""
        key = key_of(request_id)
        with self._changed:
            self._changed.wait_for(lambda: key not in self._waiting)

    def cancel(self, request_id: object) -> None:
        """Nobody waits for its answer any more."""
        key = key_of(request_id)
        if self._take(key) is not None:
            with self._changed:
                self._cancelled[key] = None
                if len(self._cancelled) > _MOST_CANCELLED:
                    self._cancelled.popitem(last=False)

    def was_cancelled(self, request_id: object) -> bool:
        with self._changed:
            return key_of(request_id) in self._cancelled

    def progressed(self, token: object) -> None:
        """Whoever still reports progress is not late."""
        if not self._timeout:
            return
        with self._changed:
            for key, pending in self._waiting.items():
                if pending.token == token:
                    self._deadlines[key] = time.monotonic() + self._timeout

    def late(self) -> list[Pending]:
        """Those that waited too long; they wait no more."""
        now = time.monotonic()
        with self._changed:
            keys = [key for key, deadline in self._deadlines.items() if deadline <= now]
        late = []
        for key in keys:
            pending = self._take(key)
            if pending is not None:
                late.append(pending)
                with self._changed:
                    self._cancelled[key] = None
        return late

    def take_all(self) -> list[Pending]:
        with self._changed:
            found = list(self._waiting.values())
            self._waiting.clear()
            self._deadlines.clear()
            self._changed.notify_all()
        return found

    def wait(self, seconds: float) -> bool:
        """Until nothing waits any more that will be answered; `False` if that takes longer."""
        with self._changed:
            return self._changed.wait_for(self._is_done, seconds)

    def _is_done(self) -> bool:
        return all(pending.is_lasting for pending in self._waiting.values())
