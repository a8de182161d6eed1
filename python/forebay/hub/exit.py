"""The end of the process, which no thread keeps from ending."""

import contextlib
import os
import sys
import threading
import time

__all__ = ["end_within"]


def end_within(seconds: float, code: int) -> None:
    """The process is to end by itself in this time; else it is ended. All that matters is to be closed before.

    Threads cannot be stopped, and Python waits for those that others have begun.
    """

    def end() -> None:
        time.sleep(seconds)
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)

    threading.Thread(target=end, name="forebay-end", daemon=True).start()
