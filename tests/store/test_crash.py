"""Killed processes: all payloads they acknowledged are there, and nothing of any other."""

import contextlib
import multiprocessing
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from faults import assert_tidy, digest, in_child, opened, redeem, spawnable, stored_files
from forebay import OPERATOR

pytestmark = pytest.mark.slow

# Windows has no fork: there each process takes a second to start, and opens files more slowly.
ROUNDS, SWEEPS, MAX_SECONDS = (15, 6, 0.5) if sys.platform == "win32" else (300, 60, 0.04)
DAY = 24 * 3600


def make_payload(rng: random.Random) -> bytes:
    """Return a payload of some bytes or some megabytes: JSON, text or noise."""
    size = rng.choice([0, 30, 3000, 300_000, 3_000_000])
    match rng.randrange(3):
        case 0:
            return b"[" + b",".join([b'{"id":1,"name":"row"}'] * (size // 22 + 1)) + b"]"
        case 1:
            return b"a line of a log, again and again\n" * (size // 33 + 1)
        case _:
            return rng.randbytes(size)


def iter_pieces(data: bytes) -> Iterator[bytes]:
    return (data[start : start + 70_000] for start in range(0, len(data), 70_000))


def write_until_killed(root: Path, seed: int, acknowledge: Callable[[bytes], object]) -> None:
    """Store one payload after the other, and report each once it is stored."""
    acknowledge(b"")
    rng = random.Random(seed)
    with opened(root, compression=rng.choice(["zstd", "none"]), sweep_interval=rng.choice([0, 0.002])) as store:
        while True:
            data = make_payload(rng)
            principal = rng.choice(["nobody", "ann", f"guest-{seed}"])
            described = store.put(rng.choice([data, iter_pieces(data)]), principal=principal)
            acknowledge(f"{described.output_handle} {digest(data)} {principal}\n".encode())


def sweep_until_killed(root: Path, acknowledge: Callable[[bytes], object]) -> None:
    """Sweep with a clock that is three days ahead."""
    acknowledge(b"")
    with opened(root, clock=lambda: time.time() + 3 * DAY) as store:
        while True:
            acknowledge(b"%d\n" % store.sweep().kept)


def run_and_kill(work: "partial[None]", seconds: float) -> list[list[str]]:
    """Return the lines that a process wrote before it was killed."""
    lines = _run_and_kill_spawned(work, seconds) if sys.platform == "win32" else _run_and_kill_forked(work, seconds)
    return [line.split() for line in lines.splitlines()]


def _run_and_kill_spawned(work: "partial[None]", seconds: float) -> str:
    context = multiprocessing.get_context("spawn")
    reading, writing = context.Pipe(duplex=False)
    process = context.Process(target=spawnable(work.func), args=(*work.args, writing.send_bytes))
    process.start()
    writing.close()
    lines = reading.recv_bytes()
    time.sleep(seconds)
    process.kill()
    process.join()
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            lines += reading.recv_bytes()
    assert process.exitcode == -signal.SIGTERM, "it ended by itself"
    return lines.decode()


def _run_and_kill_forked(work: "partial[None]", seconds: float) -> str:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work(partial(os.write, write))
        except BaseException:
            os.write(write, traceback.format_exc().encode())
        finally:
            os._exit(1)
    os.close(write)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    with os.fdopen(read, "rb") as output:
        lines = output.read().decode()
    assert os.WIFSIGNALED(status), f"it ended by itself:\n{lines}"
    return lines


def kill_writers(root: Path, rounds: int) -> list[list[str]]:
    """Return what writers acknowledged before each was killed. Forks, so call it in a process without threads."""
    rng = random.Random(rounds)
    delays = [rng.uniform(0, MAX_SECONDS) for _ in range(rounds)]
    lives = (run_and_kill(partial(write_until_killed, root, seed), delay) for seed, delay in enumerate(delays))
    return [line for life in lives for line in life]


def kill_sweepers(root: Path, rounds: int) -> None:
    rng = random.Random(rounds)
    for _ in range(rounds):
        run_and_kill(partial(sweep_until_killed, root), rng.uniform(0, MAX_SECONDS / 2))


def test_payloads_that_a_killed_writer_acknowledged_exist_and_no_others(tmp_path: Path) -> None:
    root = tmp_path / "store"
    acknowledged = in_child(kill_writers, root, ROUNDS)
    # On a busy machine most are killed before they have stored anything.
    assert len(acknowledged) > ROUNDS // 10, "they were killed before they did anything"
    with opened(root) as store:
        for handle, expected, principal in acknowledged:
            assert digest(redeem(store, handle, principal)) == expected
    assert_tidy(root)
    # A writer may be killed after it stored a payload and before it reported that: at most one each.
    assert len(acknowledged) <= len(stored_files(root)) <= len(acknowledged) + ROUNDS


def test_a_sweep_removes_the_files_of_killed_writers(tmp_path: Path) -> None:
    root = tmp_path / "store"
    in_child(kill_writers, root, min(ROUNDS, 40))
    left = len(list((root / ".partial").iterdir()))
    with opened(root) as store:
        assert store.sweep().orphans == left
    assert list((root / ".partial").iterdir()) == []


def test_a_killed_sweep_removes_only_expired_payloads_and_the_next_sweep_completes_it(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with opened(root) as store:
        kept = {store.put(b"kept %d" % i, ttl=9 * DAY).output_handle: b"kept %d" % i for i in range(50)}
        gone = {store.put(b"gone %d" % i, principal="ann").output_handle for i in range(1500)}
    in_child(kill_sweepers, root, SWEEPS)
    with opened(root) as store:
        assert {handle: redeem(store, handle) for handle in kept} == kept
    with opened(root, clock=lambda: time.time() + 3 * DAY) as store:
        store.sweep()
        assert {stored.output_handle for stored in store.list(principal=OPERATOR)} == set(kept)
    assert gone.isdisjoint(stored_files(root))
    assert_tidy(root)
