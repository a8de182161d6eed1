"""Functions in threads that keep nobody waiting who does not want to wait any more."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["in_daemon"]

T = TypeVar("T")


async def in_daemon(function: Callable[[], T]) -> T:
    """What a function gives. Whoever is cancelled leaves it alone, and the process ends without it.

    The worker threads of `anyio` and of `asyncio` are waited for when Python ends.
    """
    future: Future[T] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(context.run(function))
        except StopIteration as error:
            # No future of asyncio takes it: whoever waits would wait for ever.
            future.set_exception(RuntimeError(f"StopIteration was raised: {error}"))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="forebay-function", daemon=True).start()
    return await asyncio.wrap_future(future)
