"""Fill the folder of a store with many small payloads, faster than by puts."""

import multiprocessing
import os
import shutil
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import forebay
from forebay.store.frames import build_footer, read_footer
from forebay.store.handles import new_handle

_DAY_SECONDS = 24 * 3600
_PRINCIPALS = 10


class _Source:
    """The bytes of a stored file."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, start: int, length: int) -> bytes:
        return self._data[start : start + length]

    def read_ahead(self) -> None:
        """Do nothing: all of it is in memory."""


def fill(root: Path, count: int, *, ttl: float = 30 * _DAY_SECONDS) -> None:
    """Add `count` files of the store's format, each with a handle of its own, to today's folder.

    The store counts them when it is opened next. A million takes a minute or two.
    """
    with forebay.open_store(root.as_uri(), sweep_interval=0) as store:
        handle = store.put([{"id": 1, "name": "row"}], ttl=ttl, principal="principal 0").output_handle
        (path,) = root.glob(f"*/{handle}.*")
        workers = os.cpu_count() or 1
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            jobs = [pool.submit(_copy, path, range(worker, count, workers)) for worker in range(workers)]
            for job in jobs:
                job.result()
        store.delete(handle, principal="principal 0")
    shutil.rmtree(root / ".usage")


def _copy(path: Path, numbers: Iterable[int]) -> None:
    """Copy a stored file under new handles, which the metadata of a file contains."""
    data = path.read_bytes()
    footer = read_footer(_Source(data))
    frames = data[: footer.frame_offsets[-1]]
    extension = path.name.partition(".")[2]
    for number in numbers:
        meta = footer.meta | {"handle": new_handle(), "principal": f"principal {number % _PRINCIPALS}"}
        content = frames + build_footer(meta, footer.items, footer.lines, footer.frames)
        fd = os.open(f"{path.parent}/{meta['handle']}.{extension}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, content)
        os.close(fd)
