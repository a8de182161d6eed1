"""Processes that run code of this package under limits, and the files that they get, of the system that this is."""

import sys

if sys.platform == "win32":
    from forebay.system.windows_workers import (
        PASSES_FILES,
        WorkerProcess,
        create_memory_file,
        get_file_path,
        open_target,
        run_worker,
    )
else:
    from forebay.system.posix_workers import (
        PASSES_FILES,
        WorkerProcess,
        create_memory_file,
        get_file_path,
        open_target,
        run_worker,
    )

__all__ = ["PASSES_FILES", "WorkerProcess", "create_memory_file", "get_file_path", "open_target", "run_worker"]
