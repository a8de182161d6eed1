"""How long a server with the Retry-After header wants its callers to wait, and how long they do."""

from types import SimpleNamespace
from typing import Any

import pytest
from forebay.proxy.http import streams
from forebay.wire.framing import LineBuffer
from forebay.wire.http_bodies import EventParser

DATE, DATE_SECONDS = "Wed, 21 Oct 2015 07:28:00 GMT", 1445412480


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, 0),
        ("", 0),
        ("7", 7),
        ("0", 0),
        ("-7", 0),
        ("7, 7", 0),
        ("٧", 0),
        ("soon", 0),
        ("9" * 5000, 999_999_999),
        (DATE, 100),
        ("Wed, 21 Oct 2015 07:26:00 GMT", 0),
        ("Wed, 21 Oct 99999 07:26:00 GMT", 0),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "time", SimpleNamespace(time=lambda: DATE_SECONDS - 100.0))
    response: Any = SimpleNamespace(headers={} if value is None else {"retry-after": value})
    assert streams._get_retry_after(response) == seconds


def test_the_longer_delay_counts_up_to_a_limit() -> None:
    make_spool: Any = None
    events = EventParser(LineBuffer(1000, make_spool))
    events.retry_seconds = 2.0
    cases = (1, 7), (3, 7), (1, 9999)
    delays = [streams._get_retry_delay(events, tries, retry_after) for tries, retry_after in cases]
    assert delays == [7, 8, streams._MAX_RETRY_AFTER_SECONDS]
