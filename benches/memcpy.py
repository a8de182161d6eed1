"""The baseline: how fast this machine copies bytes between buffers that already exist."""

import ctypes


class Memcpy:
    """Copies `data` into a buffer whose pages are already mapped, so that no page faults are timed."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._target = ctypes.create_string_buffer(len(data))
        ctypes.memset(self._target, 1, len(data))

    def __call__(self) -> None:
        ctypes.memmove(self._target, self._data, len(self._data))

    def is_equal(self) -> bool:
        return memoryview(self._target).cast("B") == memoryview(self._data)
