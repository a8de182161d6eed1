"""A worker that runs any code at all, as if a bug in DuckDB let it: the kernel stops it."""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from forebay.query.feed import Column, Table
from forebay.query.limits import WORKER_MEMORY_BYTES
from forebay.query.process import QueryError, TableSource, Worker
from forebay.query.sidecar import pack_table

pytestmark = [
    pytest.mark.posix,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the filter is for Linux"),
]

PROGRAM = """
import ctypes, json, mmap, os, resource, socket, sys, threading, time
from forebay.query import limits, sandbox

sandbox.limit_resources()
sandbox.limit_memory()
waiting = threading.Event()
other_results = []
def attempt_in_other_thread():
    waiting.wait()
    other_results.append(attempt(socket.socket))
def attempt(action):
    try:
        action()
        return "allowed"
    except (OSError, MemoryError, RuntimeError, ValueError) as error:
        return type(error).__name__
other = threading.Thread(target=attempt_in_other_thread, daemon=True)
other.start()
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")
assert sandbox.lock_system_calls()
results = {"read before": attempt(lambda: os.close(os.open(sys.argv[1], os.O_RDONLY)))}
results["write before"] = attempt(lambda: os.open(sys.argv[1], os.O_WRONLY))
results["create before"] = attempt(lambda: os.open(sys.argv[1] + ".new", os.O_RDONLY | os.O_CREAT))
sandbox.lock_files()
results |= {
    "read": attempt(lambda: os.open(sys.argv[1], os.O_RDONLY)),
    "stat": attempt(lambda: os.stat(sys.argv[1])),
    "list": attempt(lambda: os.listdir("/")),
    "unlink": attempt(lambda: os.unlink(sys.argv[1])),
    "fork": attempt(os.fork),
    "exec": attempt(lambda: os.execv("/bin/true", ["true"])),
    "thread": attempt(threading.Thread(target=lambda: None).start),
    "socket": attempt(socket.socket),
    "kill": attempt(lambda: os.kill(os.getppid(), 0)),
    "limits": attempt(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))),
    "code": attempt(lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)),
    "ptrace": attempt(lambda: call(sandbox._ARCH_INDEX and 117 or 101, 0, 0, 0, 0)),
    "memory": attempt(lambda: bytearray(limits.WORKER_MEMORY_BYTES)),
    "time": attempt(time.time),
}
waiting.set()
other.join()
results["other thread"] = other_results[0]
print(json.dumps(results))
"""


def test_only_computing_is_allowed(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("secret")
    finished = subprocess.run([sys.executable, "-c", PROGRAM, file], capture_output=True, check=True, timeout=60)
    results = json.loads(finished.stdout)
    allowed = {name for name, result in results.items() if result == "allowed"}
    assert allowed == {"read before", "time"}
    assert results["memory"] == "MemoryError"
    assert {results[name] for name in ("fork", "exec", "socket", "other thread", "code")} == {"PermissionError"}
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


WRITER = """
import json, os, socket, sys, threading
from forebay.query import sandbox

def attempt(action):
    try:
        action()
        return "allowed"
    except (OSError, RuntimeError) as error:
        return type(error).__name__
memory = os.memfd_create("memory")
has_landlock = sandbox.lock_paths()
other_results = []
other = threading.Thread(target=lambda: other_results.append(attempt(lambda: os.open(sys.argv[1], os.O_RDONLY))))
other.start()
other.join()
assert sandbox.lock_system_calls(can_write=True)
print(json.dumps({
    "landlock": has_landlock,
    "memory": attempt(lambda: os.write(os.open(f"/proc/self/fd/{memory}", os.O_WRONLY | os.O_TRUNC), b"x")),
    "read": attempt(lambda: os.open(sys.argv[1], os.O_RDONLY)),
    "write": attempt(lambda: os.open(sys.argv[1], os.O_WRONLY)),
    "create": attempt(lambda: os.open(sys.argv[1] + ".new", os.O_WRONLY | os.O_CREAT)),
    "other thread": other_results[0],
    "unlink": attempt(lambda: os.unlink(sys.argv[1])),
    "list": attempt(lambda: os.listdir(".")),
    "truncate": attempt(lambda: os.truncate(sys.argv[1], 0)),
    "fork": attempt(os.fork),
    "exec": attempt(lambda: os.execv("/bin/true", ["true"])),
    "thread": attempt(threading.Thread(target=lambda: None).start),
    "socket": attempt(socket.socket),
}))
"""


def test_a_process_that_writes_memory_files_can_open_no_others(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("secret")
    finished = subprocess.run([sys.executable, "-c", WRITER, file], capture_output=True, check=True, timeout=60)
    results = json.loads(finished.stdout)
    if not results.pop("landlock"):
        pytest.skip("the kernel has no Landlock")
    assert {name for name, result in results.items() if result == "allowed"} == {"memory"}
    assert (file.read_text(), [path.name for path in tmp_path.iterdir()]) == ("secret", ["file"])


def has_landlock() -> bool:
    program = "from forebay.query import sandbox; print(sandbox.lock_paths())"
    return subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True).stdout == b"True\n"


def test_the_process_that_writes_parquet_opens_only_its_files(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    if not has_landlock():
        pytest.skip("the kernel has no Landlock")
    secret = tmp_path / "secret.json"
    secret.write_text('{"a": 1}')

    def pack(source: str) -> int:
        source_file, target_file = os.memfd_create("source"), os.memfd_create("target")
        os.write(source_file, secret.read_bytes())
        table = Table((Column("a", "BIGINT"),), 1, 0, None, None, ('"a"',), "read_json(?, columns={'a': 'BIGINT'})")
        reader = table.reader if not source else table.reader.replace("?", f"'{source}'")
        try:
            pack_table(dataclasses.replace(table, reader=reader), source_file, target_file)
            return os.fstat(target_file).st_size
        finally:
            os.close(source_file)
            os.close(target_file)

    assert pack("") > 0
    with pytest.raises(subprocess.CalledProcessError):
        pack(str(secret))


def test_a_worker_opens_only_memory_files(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    if not has_landlock():
        pytest.skip("the kernel has no Landlock")
    secret = tmp_path / "secret.json"
    secret.write_text('{"a": 1}')
    for is_secret in (False, True):
        worker, memory = Worker(), os.memfd_create("memory")
        os.write(memory, secret.read_bytes())

        def select(path: str, *, is_secret: bool = is_secret) -> str:
            return f"FROM read_json('{secret if is_secret else path}', columns={{'a': 'BIGINT'}})"

        with pytest.raises(QueryError, match="Permission denied") if is_secret else contextlib.nullcontext():
            worker.load([TableSource("items", (), memory, select)], 30.0)
            assert worker.query("SELECT sum(a) FROM items", 1000, 30.0).lines == [b"[1]"]
        worker.end()
        os.close(memory)


def test_the_limits_are_those_of_the_process() -> None:
    program = (
        "import json, resource; from forebay.query import sandbox; sandbox.limit_resources(); sandbox.limit_memory()\n"
        "print(json.dumps([resource.getrlimit(getattr(resource, f'RLIMIT_{name}')) for name in "
        "('CORE', 'FSIZE', 'NOFILE', 'CPU', 'AS')]))"
    )
    finished = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, timeout=60)
    core, file_size, files, cpu, memory = json.loads(finished.stdout)
    assert (core, file_size, files, cpu) == ([0, 0], [0, 0], [32, 32], [900, 900])
    assert memory[0] == memory[1] > WORKER_MEMORY_BYTES
