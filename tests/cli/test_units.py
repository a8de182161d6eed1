"""Sizes, durations and principals as people read them."""

import json

import pytest
from forebay.cli.output.units import (
    format_duration,
    format_signed_size,
    format_size,
    parse_timestamp,
    shorten_principal,
)
from hypothesis import given
from hypothesis import strategies as st

SIZES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15}
SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400}


@given(st.integers(0, 10**17))
def test_a_size_is_right_to_its_last_digit(size: int) -> None:
    number, unit = format_size(size).split()
    assert len(number) <= 5
    assert abs(float(number) * SIZES[unit] - size) <= SIZES[unit] * 0.0501


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (999_960, "1.0 MB"), (None, ""), ("x", "")],
)
def test_sizes(size: object, text: str) -> None:
    assert format_size(size) == text


def test_what_was_read_back_has_a_minus() -> None:
    assert [format_signed_size(size) for size in (-1500, 0, 1500)] == ["-1.5 kB", "", "1.5 kB"]


@given(st.floats(0, 1e9))
def test_a_duration_is_rounded_in_its_unit(seconds: float) -> None:
    number, unit = format_duration(seconds).replace(",", "").split()
    assert abs(int(number) * SECONDS[unit] - seconds) <= SECONDS[unit] * 0.51
    assert unit == "d" or int(number) < {"s": 60, "min": 60, "h": 49}[unit]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (3599, "1 h"), (86399, "24 h"), (130_000, "36 h"), (864000, "10 d")],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("principal", "short"),
    [
        (None, None),
        ("ann", "ann"),
        ("[broken", "[broken"),
        ('["client", "ann"]', "client:ann"),
        ('["client", 1]', '["client", 1]'),
        (json.dumps(["subject", "https://issuer", "ann"]), "…ann"),
    ],
)
def test_only_a_subject_has_a_short_form(principal: str | None, short: str | None) -> None:
    assert str(shorten_principal(principal) or "").replace("~", "…") == (short or "")


@pytest.mark.parametrize("timestamp", [None, "", "yesterday", 5, "2026-13-01T00:00:00Z"])
def test_a_damaged_timestamp_is_no_time(timestamp: object) -> None:
    assert parse_timestamp(timestamp) is None
