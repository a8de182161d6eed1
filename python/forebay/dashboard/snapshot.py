"""Read what the first page shows: totals, stored outputs, response sizes and refusals, within bounds."""

import dataclasses
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from forebay.outputs.monitor import summarize_responses
from forebay.store import OPERATOR, Store, StoredOutput
from forebay.store.call_counts import summarize_calls
from forebay.store.handles import Principal

__all__ = ["REFUSALS", "Snapshot", "Visitor", "read_snapshot"]

_MAX_EVENTS = 50_000
"""Maximum number of journal events to read, the newest first."""

_MAX_SECONDS = 2.0
"""Maximum time for reading the list of outputs, and the same again for the journal."""

_MAX_SHOWN = 20
"""Maximum number of alerts, and of refusals, in a snapshot."""

REFUSALS = {
    "capability_denied": "capability denied",
    "file_ref_denied": "reference denied",
    "output_handle_refused": "handle refused",
    "store_failed": "not stored",
}
"""Events of refusals and failures, and the text that the page shows for each."""

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True)
class Visitor:
    """Who looks at the dashboard."""

    principal: Principal
    hides_handles: bool = False
    """Whether several people may share the principal. Then only a handle protects an output, and the page hides it."""

    @property
    def is_operator(self) -> bool:
        return self.principal is OPERATOR


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """What a visitor may know of a store at one time."""

    usage: dict[str, Any]
    """The counts of `summarize_calls`."""
    outputs: list[StoredOutput]
    has_all_outputs: bool
    """Whether all outputs could be listed in time."""
    reads: Counter[str]
    """How often each handle was read, according to the events that were read."""
    responses: dict[str, dict[str, int]]
    """The sizes of `summarize_responses`."""
    alerts: list[dict[str, Any]]
    """The newest responses over their budget."""
    refusals: list[dict[str, Any]]
    """The newest refusals and failures."""
    counts: Counter[str]
    """The number of events that were read, by name."""
    has_all_events: bool
    """Whether all of the journal was read. If not, the newest events were."""
    taken_at: float


def read_snapshot(store: Store, visitor: Visitor) -> Snapshot:
    """Read a snapshot of a store. It takes a few seconds at most, whatever the size of the store."""
    principal = visitor.principal
    owner = principal if isinstance(principal, str) else None
    usage = summarize_calls(store.call_counts.read(None if visitor.is_operator else [owner]))
    # What belongs to others is left out here, because a store full of it would take long to pass over.
    listed = _LimitedIterator(store.list(principal=OPERATOR), _MAX_SECONDS)
    outputs = [entry for entry in listed if visitor.is_operator or entry.principal == owner]
    journal = _LimitedIterator(store.journal.events(), _MAX_SECONDS)
    own = (event for event in journal if visitor.is_operator or event.get("principal") == owner)
    events = _EventCounter()
    responses = summarize_responses(events.count(own))
    return Snapshot(
        usage=usage,
        outputs=outputs,
        has_all_outputs=listed.is_complete,
        reads=events.reads,
        responses=responses,
        alerts=[*events.alerts],
        refusals=[*events.refusals],
        counts=events.counts,
        has_all_events=journal.is_complete and not events.is_cut,
        taken_at=store.options.clock(),
    )


class _LimitedIterator(Iterator[_T]):
    """An iterator that ends early if it takes too long."""

    def __init__(self, items: Iterable[_T], seconds: float) -> None:
        self._items = iter(items)
        self._deadline = time.monotonic() + seconds
        self.is_complete = False

    def __next__(self) -> _T:
        if time.monotonic() > self._deadline:
            raise StopIteration
        try:
            return next(self._items)
        except StopIteration:
            self.is_complete = True
            raise


class _EventCounter:
    """Counts the events of a journal while another function reads them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()
        self.alerts: deque[dict[str, Any]] = deque()
        self.refusals: deque[dict[str, Any]] = deque()
        self.is_cut = False

    def count(self, events: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the events, newest first, and count each of them."""
        for number, event in enumerate(events):
            if number == _MAX_EVENTS:
                self.is_cut = True
                return
            kind, handle = str(event.get("event")), event.get("handle")
            self.counts[kind] += 1
            if kind == "output_handle_fetched" and isinstance(handle, str):
                self.reads[handle] += 1
            elif kind == "response_oversize" and len(self.alerts) < _MAX_SHOWN:
                self.alerts.append(event)
            elif kind in REFUSALS and len(self.refusals) < _MAX_SHOWN:
                self.refusals.append(event)
            yield event
