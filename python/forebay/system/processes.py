"""Server processes, and signals that end this process, on the current operating system."""

import contextlib
import signal
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if sys.platform == "win32":
    from forebay.system.windows_processes import KILLED_CODE, STOP_SIGNALS, ProcessGroup, limit_heaps
else:
    from forebay.system.posix_processes import KILLED_CODE, STOP_SIGNALS, ProcessGroup, limit_heaps

if TYPE_CHECKING:
    import asyncio

__all__ = ["KILLED_CODE", "STOP_SIGNALS", "ProcessGroup", "handle_stop_signals", "limit_heaps"]


def handle_stop_signals(
    loop: "asyncio.AbstractEventLoop",
    callback: Callable[[signal.Signals], object],
    numbers: Iterable[signal.Signals] = STOP_SIGNALS,
) -> None:
    """Call a function in an event loop for each signal that asks this process to end."""
    for number in numbers:
        try:
            loop.add_signal_handler(number, callback, number)
        except NotImplementedError:
            # The event loop of Windows has no signal handlers, so use those of Python.
            def handle(number: int, _frame: object) -> None:
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(callback, signal.Signals(number))

            signal.signal(number, handle)
