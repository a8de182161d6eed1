"""Sizes, counts and times as people read them."""

import pytest
from forebay.dashboard.texts import format_bytes, format_count, format_duration, format_short, format_time, mask_handle


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (104_096, "104.1 kB"),
        (999_949, "999.9 kB"),
        (999_960, "1.0 MB"),
        (524_288_000, "524.3 MB"),
        (-1500, "−1.5 kB"),
        (10**21, "1,000,000.0 PB"),
    ],
)
def test_sizes_have_one_decimal(size: int, text: str) -> None:
    assert format_bytes(size) == text


def test_counts() -> None:
    assert [format_short(count) for count in (0, 950, 1234, -4_000_000)] == ["0", "950", "1.23 k", "−4.00 M"]
    assert [format_count(1, "item"), format_count(2000, "item"), format_count(0, "match", "matches")] == [
        "1 item",
        "2,000 items",
        "0 matches",
    ]


def test_times_are_relative() -> None:
    durations = {-1: "0 s", 59: "59 s", 60: "1 min", 7200: "2 h", 86_399: "24 h", 200_000: "2 d"}
    assert {seconds: format_duration(seconds) for seconds in durations} == durations
    shown = format_time("1970-01-01T00:01:00Z", 180)
    assert shown == '<time datetime="1970-01-01T00:01:00Z" title="1970-01-01T00:01:00Z">2 min ago</time>'
    assert ">in 1 min<" in format_time("1970-01-01T00:01:00Z", 0)
    # A journal line may be damaged.
    assert format_time(None, 0) == format_time("<x>", 0) == "<span>unknown</span>"


def test_a_masked_handle_cannot_be_used() -> None:
    assert mask_handle("oh_7QWJ2M4XKZ5A") == "oh_7QW…"
