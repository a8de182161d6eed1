"""The journal: events as lines of JSON, written by any number of processes."""

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from forebay import telemetry
from forebay.arguments import check_integer
from forebay.errors import ForebayError
from forebay.store.backends import LineLog
from forebay.store.handles import format_timestamp

__all__ = ["BYTES_PER_TOKEN", "Journal"]

_ARTIFACT_PATTERN = re.compile(r"ax://[^/]+(?=/)")
BYTES_PER_TOKEN = 4
"""Estimate of the size of a token."""


class Journal:
    """Events of a store. If one cannot be written, it is lost: the recorded operation does not fail because of it."""

    def __init__(self, log: LineLog, clock: Callable[[], float]) -> None:
        self._log = log
        self._clock = clock

    def record(self, event: str, /, *, principal: str | None = None, **details: object) -> None:
        """Append an event, and count it."""
        telemetry.count_event(event, details)
        # Not `contextlib.suppress`, which is slower: every put and page calls this.
        try:
            line = orjson.dumps(
                {"event": event, **details, "principal": principal, "ts": format_timestamp(self._clock())},
                option=orjson.OPT_APPEND_NEWLINE,
            )
            self._log.append(line)
        # Nor may the operation fail because of a clock without a valid time.
        except (OSError, ForebayError):
            pass

    def recent(
        self, count: int = 50, *, principal: str | tuple[str, ...] | None = None, is_operator: bool = True
    ) -> list[dict[str, Any]]:
        """Return the last `count` events, newest first.

        An operator gets the events of everyone. A principal gets only its own; `principal` may be several names of it.
        """
        check_integer("count", count, 0)
        events = self.events(principal=principal, is_operator=is_operator)
        return [event for _, event in zip(range(count), events, strict=False)]

    def events(
        self, *, principal: str | tuple[str, ...] | None = None, is_operator: bool = True
    ) -> Iterator[dict[str, Any]]:
        """Return all events, newest first. The arguments are those of `recent`."""
        principals = principal if isinstance(principal, tuple) else (principal,)
        return (event for event in self._read_backward() if is_operator or event.get("principal") in principals)

    def summary(self, *, principal: str | tuple[str, ...] | None = None, is_operator: bool = True) -> dict[str, Any]:
        """Return totals over all events: bytes stored, pages read, and bytes that the model did not have to read."""
        events: Counter[str] = Counter()
        tools: dict[str, dict[str, int]] = {}
        stored = shown = 0
        for event in self.events(principal=principal, is_operator=is_operator):
            kind = event.get("event")
            events[str(kind)] += 1
            size = event.get("size_bytes")
            if kind == "output_handle_created" and isinstance(size, int):
                stored += size
                shown += _to_int_or_zero(event.get("shown_bytes"))
                tool = tools.setdefault(_get_group(event.get("source_tool")), {"handles": 0, "bytes": 0})
                tool["handles"] += 1
                tool["bytes"] += size
            elif kind == "output_handle_fetched":
                shown += _to_int_or_zero(event.get("returned_bytes"))
        kept_out = max(0, stored - shown)
        return {
            "handles": events["output_handle_created"],
            "bytes_stored": stored,
            "bytes_kept_out": kept_out,
            "tokens_kept_out": kept_out // BYTES_PER_TOKEN,
            "pages_read": events["output_handle_fetched"],
            "events": dict(events),
            "by_tool": tools,
        }

    def _read_backward(self) -> Iterator[dict[str, Any]]:
        for line in self._log.read_backward():
            # A crash or a full disk may have left an incomplete line.
            with contextlib.suppress(orjson.JSONDecodeError):
                event = orjson.loads(line)
                if isinstance(event, dict):
                    yield event


def _get_group(source_tool: object) -> str:
    """Return the tool that stored a payload, or the domain of an artifact, since artifacts may have unique ids."""
    match = _ARTIFACT_PATTERN.match(str(source_tool))
    return match[0] if match else str(source_tool or "unknown")


def _to_int_or_zero(value: object) -> int:
    """Return a number from a journal line, or 0 if the line was damaged."""
    return value if isinstance(value, int) else 0
