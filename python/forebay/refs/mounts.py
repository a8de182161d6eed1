"""Which files are no files but the kernel talking: what they say is of processes and devices."""

import contextlib
import os
from pathlib import Path

__all__ = ["is_pseudo"]

_PSEUDO = frozenset(
    b"autofs binder binfmt_misc bpf cgroup cgroup2 configfs cpuset debugfs devfs devpts devtmpfs efivarfs fdescfs "
    b"functionfs fusectl mqueue nfsd nsfs proc procfs pstore resctrl rpc_pipefs securityfs selinuxfs smackfs sysfs "
    b"tracefs".split()
)
_MOUNTS = Path("/proc/self/mountinfo")


def is_pseudo(device: int) -> bool:
    """Whether what is mounted from a device is made up by the kernel, wherever it is mounted."""
    number = b"%d:%d" % (os.major(device), os.minor(device))
    # Where the list is not, there is no /proc either.
    with contextlib.suppress(OSError):
        return any(_is_pseudo(line, number) for line in _MOUNTS.read_bytes().splitlines())
    return False


def _is_pseudo(mount: bytes, number: bytes) -> bool:
    """By a line such as `22 27 0:21 / /proc rw,nosuid - proc proc rw`."""
    about, _, kind = mount.partition(b" - ")
    return about.split()[2:3] == [number] and kind.split()[:1] != [] and kind.split()[0] in _PSEUDO
