"""A worker that runs any code at all, as if a bug in DuckDB let it: the kernel stops it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from forebay.query.sandbox import MAX_MEMORY_BYTES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the filter is for Linux"),
]

PROGRAM = """
import ctypes, json, mmap, os, resource, socket, sys, threading, time
from forebay.query import sandbox

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
    "ptrace": attempt(lambda: call(sandbox._COLUMN and 117 or 101, 0, 0, 0, 0)),
    "memory": attempt(lambda: bytearray(sandbox.MAX_MEMORY_BYTES)),
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


def test_the_limits_are_those_of_the_process() -> None:
    program = (
        "import json, resource; from forebay.query import sandbox; sandbox.limit_resources(); sandbox.limit_memory()\n"
        "print(json.dumps([resource.getrlimit(getattr(resource, f'RLIMIT_{name}')) for name in "
        "('CORE', 'FSIZE', 'NOFILE', 'CPU', 'AS')]))"
    )
    finished = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, timeout=60)
    core, file_size, files, cpu, memory = json.loads(finished.stdout)
    assert (core, file_size, files, cpu) == ([0, 0], [0, 0], [32, 32], [900, 900])
    assert memory[0] == memory[1] > MAX_MEMORY_BYTES
