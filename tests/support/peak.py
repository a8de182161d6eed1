"""Measure peak memory in a child process, which starts small."""

import subprocess
import sys
from pathlib import Path


def peak() -> int:
    """Return this process's peak memory in bytes; on Linux without the memory used before `exec`."""
    try:
        with Path("/proc/self/status").open() as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
    except FileNotFoundError:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def measured(script: str, *arguments: str) -> list[int]:
    """Run a script in a process that can import this file and return the numbers it prints."""
    script = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\nfrom peak import peak\n{script}"
    command = [sys.executable, "-c", script, *arguments]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return [int(number) for number in answer.stdout.split()]
