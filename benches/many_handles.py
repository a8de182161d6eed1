"""Fill the folder of a store with many small payloads, faster than by puts."""

import shutil
from pathlib import Path

import forebay
from forebay.store.frames import FRAME_BYTES, build_footer, read_footer
from forebay.store.handles import new_handle


class _Source:
    """The bytes of a stored file."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, start: int, length: int) -> bytes:
        return self._data[start : start + length]


def fill(root: Path, count: int, principals: int = 10) -> None:
    """Add `count` copies of a payload under new handles. The store counts them when it is opened next."""
    with forebay.open_store(root.as_uri(), sweep_interval=0) as store:
        handle = store.put([{"id": 1, "name": "row"}], ttl=30 * 24 * 3600, principal="principal 0").output_handle
    (path,) = root.glob(f"*/{handle}.*")
    data = path.read_bytes()
    footer = read_footer(_Source(data))
    frames = data[: footer.frame_offsets[-1]]
    assert len(frames) <= FRAME_BYTES
    extension = path.name.partition(".")[2]
    for number in range(count):
        meta = footer.meta | {"handle": new_handle(), "principal": f"principal {number % principals}"}
        file = path.with_name(f"{meta['handle']}.{extension}")
        file.touch(mode=0o600)
        file.write_bytes(frames + build_footer(meta, footer.items, footer.lines, footer.frames))
    shutil.rmtree(root / ".usage")
