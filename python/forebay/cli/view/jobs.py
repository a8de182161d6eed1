"""Work in a thread that the user can watch and cancel."""

from concurrent.futures import Future, wait
from typing import TypeVar

__all__ = ["Cancelled", "Job"]

_POLL_SECONDS = 0.05

_T = TypeVar("_T")


class Cancelled(Exception):
    """The user has cancelled a job."""


class Job:
    """The progress of some work. One thread works; another one reads the progress, and may cancel."""

    def __init__(self, label: str, total: int = 0) -> None:
        self.label = label
        self.total = total
        """How much there is to do, in any unit; 0 if that is unknown."""
        self.done = 0
        self._is_cancelled = False

    def advance(self, done: int) -> None:
        """Report how much is done. Raises `Cancelled` if the user has cancelled the job."""
        self.done = done
        if self._is_cancelled:
            raise Cancelled

    def start(self, label: str, total: int = 0) -> None:
        """Begin another step of the work."""
        self.label, self.total = label, total
        self.advance(0)

    def cancel(self) -> None:
        """Stop the work at its next report."""
        self._is_cancelled = True

    def follow(self, other: "Job", future: "Future[_T]") -> _T:
        """Wait for work that another job does, with its progress, and return the result."""
        while not future.done():
            self.label, self.total = other.label, other.total
            try:
                self.advance(other.done)
            except Cancelled:
                other.cancel()
                raise
            wait([future], _POLL_SECONDS)
        return future.result()
