"""Mirrors: the payloads of one store in another, byte for byte, or reported."""

import contextlib
import gzip
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import forebay
import pytest
from faults import error_code, redeem
from forebay import OPERATOR, ForebayError, HandleCorrupt, Store, StoreFull
from forebay.store import frames
from forebay.store.backends import TOTAL_ACCOUNT, name_account
from forebay.store.entries import Entry
from forebay.store.handles import new_handle
from forebay.store.mirror import CannotMirror, MirrorReport
from peak import measured
from stores import Clock, file_of, noise, store_at
from waiting import wait_until

COMMAND = [sys.executable, "-m", "forebay", "mirror"]


@contextlib.contextmanager
def opened(address: str, **options: Any) -> Iterator[Store]:
    """Open a store without background sweeps."""
    with forebay.open_store(address, **{"sweep_interval": 0, **options}) as store:
        yield store


@pytest.fixture
def stores(addresses: tuple[str, str]) -> Iterator[tuple[Store, Store]]:
    with opened(addresses[0]) as source, opened(addresses[1]) as target:
        yield source, target


def stored_bytes(store: Store, handle: str) -> bytes:
    """Return an object as it is stored."""
    with store._backend.open(handle) as blob:
        return blob.read(0, blob.size)


def listed(store: Store) -> dict[str, dict[str, Any]]:
    """Return the metadata of every payload."""
    return {output.output_handle: output.to_dict() for output in store.list(principal=OPERATOR)}


def replace(store: Store, handle: str, data: bytes, entry: Entry | None = None) -> None:
    """Store these bytes in place of an object."""
    limits: dict[str, int | None] = {TOTAL_ACCOUNT: None}
    with contextlib.suppress(KeyError), store._backend.open(handle) as blob:
        store._backend.delete(handle, blob.size, limits)
    upload = store._backend.create(handle)
    upload.write([data])
    now = store.options.clock()
    upload.commit("bin", limits, entry or Entry(now, now + 3600, len(data), None))
    store._catalog.forget(handle)


def mirror(source: Store, target: Store) -> tuple[MirrorReport, dict[str, ForebayError]]:
    failures: dict[str, ForebayError] = {}
    report = source.mirror_to(target, on_failure=failures.__setitem__)
    assert report.failed == len(failures)
    return report, failures


def assert_same(source: Store, target: Store, *, was_killed: bool = False) -> None:
    """Check that both have the same payloads, and that the accounts of the target match them."""
    expected = listed(source)
    assert listed(target) == expected
    for handle in expected:
        assert stored_bytes(source, handle) == stored_bytes(target, handle)
    target.sweep()
    sums: dict[str, int] = {}
    for output in expected.values():
        for name in (TOTAL_ACCOUNT, *([] if output["principal"] is None else [name_account(output["principal"])])):
            sums[name] = sums.get(name, 0) + output["stored_bytes"]
    usage = {name: size for name, size in target._backend.usage().items() if size}
    # A bucket also counts what its writers may still spend, and remote backends for a while what killed ones could.
    if target._backend.expires_by_handle or (was_killed and target.folder is None):
        assert all(usage[name] >= size for name, size in sums.items())
    else:
        assert usage == sums


def fill(store: Store) -> None:
    """Store payloads of every kind."""
    rows = [{"id": number, "name": f"n{number % 7}", "note": "é" * (number % 50)} for number in range(3000)]
    log = "".join(f"line {number}\n" for number in range(40_000))
    store.put(rows, principal="ann", source_tool="list", ttl=5000)
    store.put(log, principal="bob", ttl=10 * 86400, handle_length=26)
    store.put("id,name\n1,x\n", mime_type="text/csv")
    store.put(gzip.compress(log.encode("utf-16")), principal="ann")
    store.put("Grüße und Küsse, und noch mehr Wörter".encode("windows-1252") * 9000)
    store.put(b"")
    for number, size in enumerate((1, 128 << 10, (128 << 10) + 1, 1 << 20, 5_000_000)):
        store.put(noise(size, number), principal=f"p{number}")


def test_payloads_are_copied_byte_for_byte(stores: tuple[Store, Store]) -> None:
    source, target = stores
    fill(source)
    for output in source.list(principal="ann"):
        with source.open_view(output.output_handle, principal="ann"):
            meta = {"handle": output.output_handle, "principal": "ann", "size_bytes": 1}
            times = {"created_at": source.options.clock(), "expires_at": source.options.clock() + 60}
            with (Path(__file__)).open("rb") as content:
                assert source.sidecars.write({**meta, **times}, {}, content)
    steps: list[MirrorReport] = []
    report = source.mirror_to(target, progress=steps.append)
    sizes = [output["stored_bytes"] for output in listed(source).values()]
    assert report == MirrorReport(copied=11, bytes=sum(sizes)) == steps[-1]
    assert all(0 <= step.bytes <= sum(sizes) for step in steps)
    assert_same(source, target)
    for handle in listed(source):
        assert redeem(target, handle, OPERATOR) == redeem(source, handle, OPERATOR)
    assert source.mirror_to(target) == MirrorReport(skipped=11)
    # And back: nothing is missing there.
    assert target.mirror_to(source) == MirrorReport(skipped=11)
    late = source.put("one more").output_handle
    assert source.mirror_to(target).copied == 1
    assert redeem(target, late) == b"one more"
    assert_same(source, target)


@pytest.mark.slow
def test_a_large_payload_is_copied(addresses: tuple[str, str]) -> None:
    block = noise(1 << 20)
    with opened(addresses[0], compression="none") as source, opened(addresses[1]) as target:
        handle = source.put(bytes([number]) + block for number in range(40)).output_handle
        assert source.mirror_to(target).copied == 1
        with target.open(handle) as file:
            assert all(file.read(1 + len(block)) == bytes([number]) + block for number in range(40))
        assert_same(source, target)


def test_what_has_expired_is_not_copied(addresses: tuple[str, str], clock: Clock) -> None:
    with opened(addresses[0], clock=clock) as source, opened(addresses[1], clock=clock) as target:
        source.put("short", ttl=60)
        long = source.put("long", ttl=1000).output_handle
        clock.now += 60
        assert source.mirror_to(target) == MirrorReport(copied=1, expired=1, bytes=len(stored_bytes(source, long)))
        assert [*listed(target)] == [long]
        clock.now += 939
        assert redeem(target, long) == b"long"
        clock.now += 2
        assert error_code(lambda: redeem(target, long)) == "output_handle_not_found"


def test_what_is_deleted_meanwhile_is_not_counted(stores: tuple[Store, Store]) -> None:
    source, target = stores
    for number in range(40):
        source.put(noise(3000, number))

    def delete_others(_: MirrorReport) -> None:
        for handle in [*listed(source)][5:]:
            source.delete(handle)

    report = source.mirror_to(target, progress=delete_others)
    assert 1 <= report.copied < 40
    assert (report.failed, report.copied) == (0, len(listed(target)))
    assert {*listed(source)} - {*listed(target)} <= {*listed(source)}
    assert source.mirror_to(target).failed == 0
    assert {*listed(source)} <= {*listed(target)}


# Damage


def test_a_damaged_payload_is_reported_and_not_copied(stores: tuple[Store, Store]) -> None:
    source, target = stores
    kept = source.put(noise(400_000)).output_handle
    for number, place in enumerate((0, 200_000, -60, -1)):
        handle = source.put(noise(400_000, number)).output_handle
        data = bytearray(stored_bytes(source, handle))
        data[place] ^= 0x10
        replace(source, handle, bytes(data))
    cut = source.put(noise(400_000, 9)).output_handle
    replace(source, cut, stored_bytes(source, cut)[:-1000])
    other = source.put("a").output_handle
    replace(source, other, stored_bytes(source, kept))
    report, failures = mirror(source, target)
    assert report == MirrorReport(copied=1, failed=6, bytes=len(stored_bytes(source, kept)))
    assert {type(error) for error in failures.values()} == {HandleCorrupt}
    assert [handle for handle, _ in target._backend.list()] == [kept]
    target.sweep()
    assert target._backend.usage()[TOTAL_ACCOUNT] == len(stored_bytes(target, kept))


def test_what_is_damaged_in_the_target_is_replaced(stores: tuple[Store, Store]) -> None:
    source, target = stores
    handles = [source.put(noise(200_000, number), principal="ann").output_handle for number in range(3)]
    source.mirror_to(target)
    data = stored_bytes(target, handles[0])
    # Inverted: some of these bytes are zero.
    replace(target, handles[0], data[:-70] + bytes(each ^ 0xFF for each in data[-70:-60]) + data[-60:])
    replace(target, handles[1], b"")
    assert source.mirror_to(target).copied == 2
    assert_same(source, target)


def test_another_payload_in_the_target_is_not_replaced(stores: tuple[Store, Store]) -> None:
    source, target = stores
    handle = source.put("ours").output_handle
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("forebay.store.put.new_handle", lambda *_: handle)
        target.put("theirs")
    report, failures = mirror(source, target)
    assert report == MirrorReport(failed=1)
    assert isinstance(failures[handle], CannotMirror)
    assert redeem(target, handle) == b"theirs"


@pytest.mark.parametrize("kind", ["text", "gzip", "raw"])
def test_no_damaged_byte_is_copied(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "FRAME_BYTES", 256)
    text = b"a line of text, and on\n" * 40
    payload = {"text": text, "gzip": gzip.compress(text), "raw": noise(600)}[kind]
    with store_at(tmp_path / "source") as source, store_at(tmp_path / "target") as target:
        handle = source.put(payload).output_handle
        path = file_of(tmp_path / "source", handle)
        whole = path.read_bytes()
        for place in range(len(whole)):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << random.Random(place).randrange(8)
            path.write_bytes(damaged)
            os.utime(path, ns=(place, place))
            report, failures = mirror(source, target)
            if report.copied:
                # Some bits of a header mean nothing.
                assert redeem(target, handle) == payload
                target.delete(handle)
            else:
                assert isinstance(failures[handle], HandleCorrupt)
        path.write_bytes(whole)
        assert source.mirror_to(target).copied == 1


# Limits of the target


def test_a_full_target_is_an_error_and_keeps_what_was_copied(addresses: tuple[str, str]) -> None:
    with opened(addresses[0]) as source:
        for number in range(10):
            source.put(noise(50_000, number), principal="ann")
        source.put(noise(300_000), principal="bob")
        with opened(addresses[1], quota_bytes=210_000) as target:
            failures: dict[str, ForebayError] = {}
            with pytest.raises(StoreFull, match="quota of 210,000"):
                source.mirror_to(target, on_failure=failures.__setitem__)
            assert {str(error)[:36] for error in failures.values()} <= {"this payload is larger than a quota "}
            copied = listed(target)
            assert 1 <= len(copied) <= 4
            assert all(listed(source)[handle] == output for handle, output in copied.items())
            target.sweep()
            used = sum(output["stored_bytes"] for output in copied.values())
            assert target._backend.usage()[TOTAL_ACCOUNT] == used <= 210_000
        with opened(addresses[1], principal_quota_bytes=280_000) as target:
            with pytest.raises(StoreFull, match="quota of 280,000"):
                source.mirror_to(target)
            assert len(listed(target)) <= 6
        with opened(addresses[1]) as target:
            report = source.mirror_to(target)
            assert report.copied + report.skipped == 11
            assert_same(source, target)


def test_room_of_what_has_expired_is_used(addresses: tuple[str, str], clock: Clock) -> None:
    with (
        opened(addresses[0], clock=clock) as source,
        opened(addresses[1], clock=clock, quota_bytes=100_000, on_full="evict") as target,
    ):
        target.put(noise(60_000), ttl=30)
        clock.now += 31
        # The first sweep after a jump of the clock removes nothing.
        target.sweep()
        for number in range(2):
            source.put(noise(40_000, number))
        assert source.mirror_to(target).copied == 2
        source.put(noise(40_000, 2))
        with pytest.raises(StoreFull):
            source.mirror_to(target)
        assert len(listed(target)) == 2


def test_a_bucket_takes_only_what_its_handle_allows_to_live(stores: tuple[Store, Store]) -> None:
    source, target = stores
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("forebay.store.put.new_handle", lambda length, _: new_handle(length, 3600))
        handle = source.put("long", ttl=7200).output_handle
    fine = source.put("fine", ttl=3600).output_handle
    report, failures = mirror(source, target)
    if target._backend.expires_by_handle:
        assert (report.copied, report.failed) == (1, 1)
        assert "lives 3,600 seconds at most" in str(failures[handle])
        assert [*listed(target)] == [fine]
    else:
        assert (report.copied, report.failed) == (2, 0)


# Interruptions


def mirror_and_kill(addresses: tuple[str, str], target: Store, goal: int) -> None:
    """Run the command, and kill it once the target has this many payloads."""
    child = subprocess.Popen([*COMMAND, *addresses], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: len(listed(target)) >= goal or child.poll() is not None, seconds=120)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()


@pytest.mark.slow
def test_a_killed_run_can_be_repeated(addresses: tuple[str, str]) -> None:
    with opened(addresses[0], compression="none") as source, opened(addresses[1]) as target:
        for number in range(40):
            source.put(noise(random.Random(number).choice([500, 70_000, 900_000]), number), principal=f"p{number % 3}")
        for number in range(3):
            source.put(bytes([number]) + noise(1 << 20, index) for index in range(20))
        handles = {*listed(source)}
        for goal in (1, 8, 20):
            mirror_and_kill(addresses, target, goal)
            for handle in listed(target):
                assert stored_bytes(target, handle) == stored_bytes(source, handle)
        finished = subprocess.run([*COMMAND, *addresses], capture_output=True, check=False)
        assert (finished.returncode, finished.stderr) == (0, b"")
        report = json.loads(finished.stdout)
        assert report["copied"] + report["skipped"] == len(handles)
        assert report["failed"] == 0
        assert_same(source, target, was_killed=True)


def test_two_mirrors_at_once_copy_everything(addresses: tuple[str, str]) -> None:
    with opened(addresses[0]) as source, opened(addresses[1]) as one, opened(addresses[1]) as other:
        for number in range(60):
            source.put(noise(5000, number))
        with ThreadPoolExecutor(2) as pool:
            runs = [pool.submit(source.mirror_to, target) for target in (one, other)]
            errors = [run.exception() for run in runs]
        # One of two that write the same payload may be refused.
        assert {type(error) for error in errors} <= {type(None), forebay.StoreUnavailable}
        assert source.mirror_to(one).failed == 0
        assert_same(source, one)


def test_an_error_of_the_progress_function_ends_the_run(tmp_path: Path) -> None:
    with store_at(tmp_path / "source") as source, store_at(tmp_path / "target") as target:
        for number in range(50):
            source.put(noise(5000, number))

        def fail(_: MirrorReport) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            source.mirror_to(target, progress=fail)
        assert len(listed(target)) <= 4
        assert source.mirror_to(target).failed == 0
        assert_same(source, target)


SCRIPT = """
import forebay
source, target = (forebay.open_store(address, sweep_interval=0) for address in sys.argv[1:])
before = peak()
assert source.mirror_to(target).copied == 4
print(peak() - before)
"""


@pytest.mark.slow
def test_a_mirror_takes_little_memory(addresses: tuple[str, str]) -> None:
    with opened(addresses[0], compression="none") as store:
        for number in range(4):
            store.put(noise(1 << 20, index + number) for index in range(120))
    (growth,) = measured(SCRIPT, *addresses)
    assert growth < 400 << 20
