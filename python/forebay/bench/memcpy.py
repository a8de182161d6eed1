"""The baseline: how fast this machine copies bytes between buffers that already exist."""

import ctypes

__all__ = ["Memcpy"]


class Memcpy:
    """Copies `data` into a buffer whose pages are already mapped, so that no page faults are timed."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._target = ctypes.create_string_buffer(len(data))
        ctypes.memset(self._target, 1, len(data))

    def __call__(self) -> None:
        """Copy the bytes."""
        ctypes.memmove(self._target, self._data, len(self._data))

    def is_equal(self) -> bool:
        """Return whether the copy has the bytes of the original."""
        return memoryview(self._target).cast("B") == memoryview(self._data)
