"""Processes of our own code: what they get, what they send, and what ends them."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from forebay.system.workers import (
    PASSES_FILES,
    WorkerProcess,
    create_memory_file,
    get_file_path,
    open_target,
    run_worker,
)
from on_wine import IS_WINE
from waiting import wait_until

pytestmark = pytest.mark.slow

MANY = 1 << 30
OUTPUT = 1 if sys.platform == "win32" else 0
"""The descriptor to which a worker writes."""

ENDED = (EOFError, ConnectionError)

needs_job = pytest.mark.skipif(sys.platform != "win32", reason="elsewhere a process sets its limits by itself")
not_enforced = pytest.mark.xfail(IS_WINE, reason="Wine stores the limits of a job, and does not enforce them")


@contextlib.contextmanager
def start(program: str, *, max_memory_bytes: int = MANY, max_cpu_seconds: int = 60) -> Iterator[WorkerProcess]:
    worker = WorkerProcess(
        ["-I", "-S", "-c", f"import os\nOUTPUT = {OUTPUT}\n{program}"],
        max_memory_bytes=max_memory_bytes,
        max_cpu_seconds=max_cpu_seconds,
    )
    try:
        yield worker
    finally:
        worker.end()
        assert not worker.is_running


def soon(seconds: float = 60.0) -> float:
    return time.monotonic() + seconds


def test_messages_larger_than_a_pipe_go_both_ways() -> None:
    program = """
left = 3_000_000
while left:
    data = memoryview(os.read(0, 1 << 16))
    left -= len(data)
    while data:
        data = data[os.write(OUTPUT, data):]
"""
    data = os.urandom(1_000_000)
    with start(program) as worker:
        received = b""
        for number in range(0, 3_000_000, 50_000):
            part = data[number % len(data) :][:50_000]
            worker.send(part, [], 60.0)
            received += worker.receive(len(part), soon())
        assert received == data * 3
        with pytest.raises(ENDED):
            worker.receive(1, soon())
        wait_until(lambda: not worker.is_running)


def test_it_has_nothing_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_CANARY", "canary")
    with start("text = ' '.join(os.environ).encode(); os.write(OUTPUT, bytes([len(text)]) + text)") as worker:
        names = worker.receive(worker.receive(1, soon())[0], soon()).decode().split()
    assert "FOREBAY_CANARY" not in names
    # Python sets the second one by itself, and Wine many.
    assert IS_WINE or {name.upper() for name in names} <= {"SYSTEMROOT", "LC_CTYPE"}


@pytest.mark.parametrize("program", ["while True: pass", "import time; time.sleep(600)", "os.write(OUTPUT, b'12')"])
def test_it_is_not_waited_for_longer_than_told(program: str) -> None:
    with start(f"{program}\nimport time; time.sleep(600)") as worker:
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            worker.receive(3, soon(0.5))
        assert 0.5 <= time.monotonic() - started < 60


def test_a_process_that_reads_nothing_is_not_waited_for() -> None:
    with start("import time; time.sleep(600)") as worker, pytest.raises(TimeoutError):
        worker.send(bytes(10_000_000), [], 0.5)


def test_a_process_that_ends_is_an_error() -> None:
    with start("os.write(OUTPUT, b'12')") as worker:
        with pytest.raises(ENDED):
            worker.receive(3, soon())
        wait_until(lambda: not worker.is_running)


def test_it_can_be_ended_twice() -> None:
    with start("import time; time.sleep(600)") as worker:
        assert worker.is_running
        worker.end()


COPY = """
import os, sys
# Windows removes the first file when it is closed, and opens it only for those who agree to that.
with open(os.open(sys.argv[1], getattr(os, "O_TEMPORARY", 0)), "rb") as source, open(sys.argv[2], "wb") as target:
    target.write(source.read() + sys.stdin.buffer.read())
"""


def test_a_process_reads_one_file_and_writes_another() -> None:
    source, target = create_memory_file(), create_memory_file()
    before = set(Path(tempfile.gettempdir()).iterdir())
    try:
        os.write(source, b"source ")
        with open_target(target) as path:
            files = [source, target] if PASSES_FILES else []
            arguments = ["-I", "-S", "-c", COPY, get_file_path(source), path]
            run_worker(arguments, b"input", files, 60.0, max_memory_bytes=MANY, max_cpu_seconds=60)
        os.lseek(target, 0, os.SEEK_SET)
        assert os.read(target, 100) == b"source input"
        # Nothing but what others put there meanwhile.
        assert not [path for path in set(Path(tempfile.gettempdir()).iterdir()) - before if "forebay-" in path.name]
    finally:
        os.close(source)
        os.close(target)


def test_a_memory_file_leaves_nothing_behind() -> None:
    fd = create_memory_file()
    path = Path(get_file_path(fd))
    assert path.exists()
    os.close(fd)
    assert not path.exists()


def test_a_failure_is_told() -> None:
    options = {"max_memory_bytes": MANY, "max_cpu_seconds": 60}
    with pytest.raises(subprocess.CalledProcessError):
        run_worker(["-I", "-S", "-c", "import sys; sys.exit(3)"], b"", [], 60.0, **options)
    with pytest.raises(subprocess.TimeoutExpired):
        run_worker(["-I", "-S", "-c", "import time; time.sleep(600)"], b"", [], 1.0, **options)


def attempt(program: str, *, max_memory_bytes: int = MANY, max_cpu_seconds: int = 60) -> str:
    """Return what a program that a job limits says, or how it ended."""
    body = "".join(f"    {line}\n" for line in program.splitlines())
    whole = f"""
try:
{body}    result = "allowed"
except BaseException as error:
    result = type(error).__name__
os.write(OUTPUT, bytes([len(result)]) + result.encode())
"""
    with start(whole, max_memory_bytes=max_memory_bytes, max_cpu_seconds=max_cpu_seconds) as worker:
        try:
            return worker.receive(worker.receive(1, soon())[0], soon()).decode()
        except ENDED:
            return "ended"


@needs_job
def test_a_job_allows_what_is_within_its_limits() -> None:
    assert attempt("bytearray(100 << 20)") == "allowed"


@needs_job
@not_enforced
def test_a_job_limits_memory() -> None:
    assert attempt("bytearray(400 << 20)", max_memory_bytes=300 << 20) == "MemoryError"


@needs_job
@not_enforced
def test_a_job_allows_no_other_process() -> None:
    program = f"import subprocess; subprocess.run([{json.dumps(sys.executable)}, '-c', ''])"
    assert attempt(program) in ("OSError", "PermissionError")


@needs_job
@not_enforced
def test_a_job_limits_the_time_of_the_processor() -> None:
    program = "import time\nend = time.process_time() + 5\nwhile time.process_time() < end: pass"
    assert attempt(program, max_cpu_seconds=1) == "ended"
