"""Threads for async code, and locks that survive a fork."""

import contextlib
import contextvars
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import asyncio

__all__ = [
    "call_in_threads",
    "fork_safe_lock",
    "run_in_forked_child",
    "run_in_pool",
    "run_in_thread",
    "start_in_thread",
    "wait_all",
]

_T = TypeVar("_T")

# asyncio is imported inside functions, because `forebay wrap` starts without it.


async def run_in_pool(function: Callable[[], _T]) -> _T:
    """Run a blocking function in the event loop's pool, which limits the number of threads, and return its result."""
    import asyncio

    return await asyncio.to_thread(_replace_stop_iteration, function)


async def run_in_thread(function: Callable[[], _T], *, daemon: bool = False) -> _T:
    """Run a blocking function in a thread of its own and return its result.

    If the caller is cancelled, the function continues. The interpreter waits for it at exit unless `daemon` is true.
    """
    import asyncio

    return await asyncio.wrap_future(start_in_thread(function, daemon=daemon))


def start_in_thread(function: Callable[[], _T], *, daemon: bool = False) -> "Future[_T]":
    """Start a function in a thread of its own, with the caller's context variables, and return its future.

    Not in a pool, because the function may wait for work that needs a thread of the same pool.
    """
    future: Future[_T] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(context.run(_replace_stop_iteration, function))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="forebay-call", daemon=daemon).start()
    return future


def call_in_threads(function: Callable[[_T], object], arguments: Iterable[_T], max_threads: int) -> None:
    """Call a function with each argument, in a few threads. After an error no further call begins."""
    waiting = deque(arguments)

    def work() -> None:
        while waiting:
            try:
                argument = waiting.popleft()
            except IndexError:
                return
            try:
                function(argument)
            except BaseException:
                waiting.clear()
                raise

    futures = [start_in_thread(work, daemon=True) for _ in range(min(max_threads, len(waiting)))]
    wait(futures)
    for future in futures:
        future.result()


async def wait_all(events: "Iterable[asyncio.Event]", seconds: float) -> None:
    """Wait until all events are set, for at most `seconds`."""
    import asyncio

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            for event in events:
                await event.wait()


def _replace_stop_iteration(function: Callable[[], _T]) -> _T:
    """Call a function, and raise `RuntimeError` in place of `StopIteration`."""
    try:
        return function()
    except StopIteration as error:
        # asyncio futures refuse a StopIteration, and the caller would wait forever.
        raise RuntimeError(f"StopIteration was raised: {error}") from error


def run_in_forked_child(function: Callable[[], object]) -> None:
    """Call a function in each process that is forked from this one. Windows has no forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


_locks: "weakref.WeakSet[threading.RLock]" = weakref.WeakSet()


def fork_safe_lock() -> "threading.RLock":
    """Return a reentrant lock that is free in a forked child.

    The thread that held it at the fork does not exist in the child, and would never release it there.
    """
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def _reset_locks() -> None:
    for lock in list(_locks):
        # The standard library's own modules reset their locks in the same way.
        lock._at_fork_reinit()  # type: ignore[attr-defined]


run_in_forked_child(_reset_locks)
