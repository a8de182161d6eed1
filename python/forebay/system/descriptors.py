"""File descriptors of all operating systems."""

import contextlib
import os

__all__ = ["close_quietly"]


def close_quietly(fd: int) -> None:
    """Close a descriptor. The system frees it even if that fails, so there is nothing left to do then."""
    with contextlib.suppress(OSError):
        os.close(fd)
