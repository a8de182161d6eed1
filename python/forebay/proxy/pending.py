"""Requests that wait for their answers."""

import dataclasses
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator

from forebay.outputs.modes import Mode
from forebay.wire.messages import key_of

__all__ = ["Pending", "PendingRequests", "Preparation"]

_MOST_CANCELLED = 1024

_LISTEN = "subscriptions/listen"


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
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


@dataclasses.dataclass(eq=False, slots=True)
class Preparation:
    """Of a request that has come, and is yet to be understood."""

    key: bytes
    is_cancelled: bool = False


@dataclasses.dataclass(slots=True)
class _Waiting:
    pending: Pending
    deadline: float | None


class PendingRequests:
    """By id, until they are answered, cancelled, or too late. Of several with one id the oldest is answered first."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._preparing: list[Preparation] = []
        self._waiting: dict[bytes, list[_Waiting]] = {}
        self._answering: set[Pending] = set()
        self._cancelled: OrderedDict[bytes, None] = OrderedDict()
        self._changed = threading.Condition()

    def prepare(self, request_id: object) -> Preparation:
        """A request is worked on before it is sent: it can be cancelled, and whoever waits for all waits for it."""
        preparation = Preparation(key_of(request_id))
        with self._changed:
            self._preparing.append(preparation)
        return preparation

    def prepared(self, preparation: Preparation) -> None:
        with self._changed:
            if preparation in self._preparing:
                self._preparing.remove(preparation)
            self._changed.notify_all()

    def add(self, pending: Pending, preparation: Preparation | None = None) -> bool:
        """Whether anyone still wants it: it is to be sent then."""
        key = key_of(pending.id)
        with self._changed:
            if preparation is not None and preparation.is_cancelled:
                return False
            self._waiting.setdefault(key, []).append(_Waiting(pending, self._deadline(pending)))
            self._cancelled.pop(key, None)
            return True

    def _deadline(self, pending: Pending) -> float | None:
        return time.monotonic() + self._timeout if self._timeout and not pending.is_lasting else None

    def awaits(self, request_id: object) -> bool:
        """Whether anyone waits for its answer."""
        with self._changed:
            return key_of(request_id) in self._waiting

    def take(self, request_id: object) -> Pending | None:
        """The request that an answer is for; it waits no more."""
        with self._changed:
            return self._take(key_of(request_id))

    def _take(self, key: bytes) -> Pending | None:
        waiting = self._waiting.get(key)
        if waiting is None:
            return None
        found = waiting.pop(0).pending
        if not waiting:
            del self._waiting[key]
        self._changed.notify_all()
        return found

    def answer(self, request_id: object) -> Pending | None:
        """The same; that its answer has gone out is told by `answered`."""
        with self._changed:
            found = self._take(key_of(request_id))
            if found is not None:
                self._answering.add(found)
            return found

    def answered(self, pending: Pending) -> None:
        with self._changed:
            self._answering.discard(pending)
            self._changed.notify_all()

    def settle(self, request_id: object) -> None:
        """Returns when a request waits no more, and its answer has gone out."""
        key = key_of(request_id)

        def is_settled() -> bool:
            return key not in self._waiting and not any(key_of(one.id) == key for one in self._answering)

        with self._changed:
            self._changed.wait_for(is_settled)

    def cancel(self, request_id: object) -> None:
        """Nobody waits for its answer any more."""
        key = key_of(request_id)
        with self._changed:
            if self._take(key) is not None:
                self._forget(key)
            elif (found := next((one for one in self._preparing if one.key == key), None)) is not None:
                found.is_cancelled = True
                self._preparing.remove(found)

    def _forget(self, key: bytes) -> None:
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
        key = key_of(token)
        with self._changed:
            for waiting in self._all():
                if key_of(waiting.pending.token) == key:
                    waiting.deadline = self._deadline(waiting.pending)

    def _all(self) -> Iterator[_Waiting]:
        return (waiting for several in self._waiting.values() for waiting in several)

    def late(self) -> list[Pending]:
        """Those that waited too long; they wait no more."""
        now = time.monotonic()
        with self._changed:
            late = [one.pending for one in self._all() if one.deadline is not None and one.deadline <= now]
            for pending in late:
                key = key_of(pending.id)
                self._take(key)
                self._forget(key)
        return late

    def take_all(self) -> list[Pending]:
        with self._changed:
            found = [waiting.pending for waiting in self._all()]
            self._waiting.clear()
            self._changed.notify_all()
        return found

    def wait(self, seconds: float) -> bool:
        """Until nothing waits any more that will be answered; `False` if that takes longer."""
        with self._changed:
            return self._changed.wait_for(self._is_done, seconds)

    def _is_done(self) -> bool:
        return (
            not self._preparing and not self._answering and all(waiting.pending.is_lasting for waiting in self._all())
        )
