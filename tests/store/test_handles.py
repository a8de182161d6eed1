"""Handles: their format and their expiry."""

import collections
import math
from pathlib import Path

import pytest
from forebay import HandleNotFound, InvalidArgument
from forebay.store.handles import LIFETIMES, get_lifetime_class, get_sidecar_handle, is_handle, new_handle
from stores import Clock, events, payload_files, store_at, whole

_TTLS = [0, 7200, 7 * 3600, 86401, 7 * 86400, 7 * 86400 + 1, 364 * 86400, 10**9]
"""A time to live of each lifetime class."""


@pytest.mark.parametrize("length", [12, 26])
def test_a_handle_and_its_sidecar_tell_how_long_the_payload_lives_at_most(length: int) -> None:
    for number, ttl in enumerate(_TTLS):
        for _ in range(100):
            handle = new_handle(length, ttl)
            assert is_handle(handle)
            assert get_lifetime_class(handle) == get_lifetime_class(get_sidecar_handle(handle)) == number
        assert ttl <= (LIFETIMES[number] or math.inf)
    assert len({new_handle(length, 60)[3] for _ in range(100)}) == 4


@pytest.mark.parametrize("length", [12, 26])
def test_all_characters_of_handles_are_equally_likely(length: int) -> None:
    # The first character has the lifetime class.
    handles = [new_handle(length, ttl) for ttl in _TTLS for _ in range(3000 // len(_TTLS))]
    assert len(set(handles)) == len(handles)
    assert all(is_handle(handle) and len(handle) == 3 + length for handle in handles)
    counts = collections.Counter("".join(handle[3:] for handle in handles))
    assert set(counts) == set("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
    expected = 3000 * length / 32
    assert all(0.7 * expected < count < 1.3 * expected for count in counts.values())


@pytest.mark.parametrize(
    "text",
    [
        "", "oh_", "oh_AAAAAAAAAAA", "oh_AAAAAAAAAAAAA", "oh_aaaaaaaaaaaa", "oh_AAAAAAAAAAA1", "oh_AAAAAAAAAAA0",
        "OH_AAAAAAAAAAAA", "oh_AAAAAAAAAAAA\n", " oh_AAAAAAAAAAAA", "oh_AAAAAAAAAAA/", "oh_../../../etc", "../oh_AAAA",
        "oh_AAAAAAAAAAA\0", "oh_ÀAAAAAAAAAAA", "oh_ＡAAAAAAAAAAA", "oh_" + "A" * 25, "oh_" + "A" * 27,
        "oh_" + "A" * 10**6, "oh_AAAAAAAAAAA٢",
    ],
    ids=lambda text: repr(text[:20]),
)  # fmt: skip
def test_a_malformed_handle_is_not_found(text: str, tmp_path: Path) -> None:
    assert not is_handle(text)
    with store_at(tmp_path / "store") as store, pytest.raises(HandleNotFound) as raised:
        store.fetch(text)
    assert raised.value.to_dict()["error"]["code"] == "output_handle_not_found"
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("length", [12, 26])
def test_handles_have_the_length_in_the_options(length: int, tmp_path: Path) -> None:
    with store_at(tmp_path / "store", handle_length=length) as store:
        handle = store.put(b"x").output_handle
        assert len(handle) == 3 + length
    # Handles of the other length can be read too.
    with store_at(tmp_path / "store", handle_length=38 - length) as store:
        assert whole(store, handle) == b"x"


def test_a_payload_expires_to_the_second(tmp_path: Path, clock: Clock) -> None:
    with store_at(tmp_path / "store", ttl=50, clock=clock) as store:
        descriptor, longer = store.put(b"x"), store.put(b"y", ttl=55)
        assert descriptor.expires_at == "2027-01-15T08:00:50Z"
        clock.now += 49.9
        assert whole(store, descriptor.output_handle) == b"x"
        clock.now += 0.1
        for method in (store.fetch, store.stat, store.open, store.delete):
            with pytest.raises(HandleNotFound):
                method(descriptor.output_handle)
        assert [one.output_handle for one in store.list()] == [longer.output_handle]
        assert len(payload_files(tmp_path / "store")) == 2
        report = store.sweep()
        assert (report.expired, report.kept) == (1, 1)
        assert len(payload_files(tmp_path / "store")) == 1
        (event,) = events(store, "output_handle_expired")
        assert event["handle"] == descriptor.output_handle


def test_a_ttl_of_0_expires_at_once(tmp_path: Path) -> None:
    with store_at(tmp_path / "store") as store:
        handle = store.put(b"x", ttl=0).output_handle
        with pytest.raises(HandleNotFound):
            store.fetch(handle)


def test_the_default_ttl_is_a_day(tmp_path: Path, clock: Clock) -> None:
    with store_at(tmp_path / "store", clock=clock) as store:
        assert store.put(b"x").expires_at == "2027-01-16T08:00:00Z"


@pytest.mark.parametrize("ttl", [-1, float("nan"), float("inf"), 1e300])
def test_an_invalid_ttl_is_refused(ttl: float, tmp_path: Path) -> None:
    with store_at(tmp_path / "store") as store, pytest.raises(InvalidArgument, match="ttl"):
        store.put(b"x", ttl=ttl)
    with pytest.raises(InvalidArgument, match="ttl"):
        store_at(tmp_path / "store", ttl=ttl)
    assert payload_files(tmp_path / "store") == []
