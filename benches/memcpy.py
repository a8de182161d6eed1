"""The yardstick: how fast this machine copies bytes it already has to memory it already has."""

import ctypes


class Memcpy:
    """Copies `data` into a buffer whose pages exist, so that no page fault is timed."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._target = ctypes.create_string_buffer(len(data))
        ctypes.memset(self._target, 1, len(data))

    def __call__(self) -> None:
        ctypes.memmove(self._target, self._data, len(self._data))

    def copied(self) -> bool:
        return memoryview(self._target).cast("B") == memoryview(self._data)
