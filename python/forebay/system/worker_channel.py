"""The connection of a worker to the process that started it, of the operating system that this is."""

import sys

if sys.platform == "win32":
    from forebay.system.windows_worker_channel import WorkerChannel
else:
    from forebay.system.posix_worker_channel import WorkerChannel

__all__ = ["WorkerChannel"]
