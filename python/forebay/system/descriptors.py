"""File descriptors of all operating systems."""

import os

__all__ = ["close_quietly"]


def close_quietly(fd: int) -> None:
    """Close a descriptor. The system frees it even if that fails, so there is nothing left to do then."""
    # Not `contextlib.suppress`, which takes longer than the call.
    try:  # noqa: SIM105
        os.close(fd)
    except OSError:
        pass
