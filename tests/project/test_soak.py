"""`tools/soak.py` notices what it is there to notice."""

import itertools
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from soak import MAX_GROWTH, Ledger, Load, Usage
from waiting import wait_until


@pytest.mark.parametrize("growing", [None, *MAX_GROWTH])
def test_growth_after_the_first_quarter_is_noticed(growing: str | None) -> None:
    usage = Usage("serve", subprocess.Popen([sys.executable, "-c", ""]))
    usage.process.wait()
    for number in range(400):
        sample = {key: 10 * limit + number % 7 for key, limit in MAX_GROWTH.items()}
        # A start from little is no growth.
        sample["memory"] -= max(0, 100 - number) << 20
        if growing is not None:
            sample[growing] += MAX_GROWTH[growing] * number // 100
        usage.samples.append(sample)
    grown = [line.split()[1] for line, is_growth in usage.summarize() if is_growth]
    assert grown == ([] if growing is None else [growing])


def test_growth_cannot_be_seen_in_a_short_time() -> None:
    usage = Usage("serve", subprocess.Popen([sys.executable, "-c", ""]))
    usage.process.wait()
    usage.samples = [dict.fromkeys(MAX_GROWTH, 1)] * 3
    assert [is_growth for _, is_growth in usage.summarize()] == [True]


def fail() -> Iterator[None]:
    yield
    raise OSError("gone")


@pytest.mark.parametrize(
    ("steps", "words"),
    [(fail(), "after 1 steps: OSError: gone"), (iter([None]), "after 1 steps: RuntimeError: it has")],
)
def test_a_load_that_ends_early_is_a_problem(steps: Iterator[None], words: str) -> None:
    ledger, stop = Ledger(), threading.Event()
    load = Load("any", steps, ledger, stop)
    assert stop.wait(10)
    load.join()
    assert len(ledger.problems) == 1
    assert words in ledger.problems[0]


def test_a_load_that_hangs_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, stop, forever = Ledger(), threading.Event(), threading.Event()
    load = Load("any", (None for _ in itertools.count() if forever.wait()), ledger, stop)
    load.check()
    assert not ledger.problems
    monkeypatch.setattr("soak.STALL_SECONDS", 0.0)
    load.check()
    assert "no step within" in ledger.problems[0]
    assert stop.is_set()
    load.join()
    assert "it does not end" in ledger.problems[-1]
    forever.set()


def test_a_load_that_is_stopped_is_no_problem() -> None:
    ledger, stop = Ledger(), threading.Event()
    load = Load("any", itertools.repeat(None), ledger, stop)
    wait_until(lambda: load.count)
    stop.set()
    load.join()
    assert not ledger.problems
