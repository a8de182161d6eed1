"""Sizes, counts and times as people read them."""

import pytest
from forebay.dashboard.texts import format_age, format_bytes, format_count, format_short, format_time, mask_handle


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.00 kB"),
        (9_996, "10.0 kB"),
        (99_960, "100 kB"),
        (999_600, "1.00 MB"),
        (524_288_000, "524 MB"),
        (-1500, "−1.50 kB"),
        (10**21, "1000000 PB"),
    ],
)
def test_sizes_have_three_digits(size: int, text: str) -> None:
    assert format_bytes(size) == text


def test_counts() -> None:
    assert [format_short(count) for count in (0, 950, 1234, -4_000_000)] == ["0", "950", "1.23 k", "−4.00 M"]
    assert [format_count(1, "item"), format_count(2000, "item"), format_count(0, "match", "matches")] == [
        "1 item",
        "2,000 items",
        "0 matches",
    ]


def test_times_are_relative() -> None:
    assert [format_age(seconds) for seconds in (-1, 59, 60, 7200, 200_000)] == ["0 s", "59 s", "1 min", "2 h", "2 d"]
    shown = format_time("1970-01-01T00:01:00Z", 180)
    assert shown == '<time datetime="1970-01-01T00:01:00Z" title="1970-01-01T00:01:00Z">2 min ago</time>'
    assert ">in 1 min<" in format_time("1970-01-01T00:01:00Z", 0)
    # A journal line may be damaged.
    assert format_time(None, 0) == format_time("<x>", 0) == "<span>unknown</span>"


def test_a_masked_handle_cannot_be_used() -> None:
    assert mask_handle("oh_7QWJ2M4XKZ5A") == "oh_7QW…"
