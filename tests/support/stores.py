"""Stores for tests, and ways to inspect their files without them."""

import base64
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forebay
import pytest
import pyzstd
from documents import values
from forebay import Page, Store
from forebay.store.backends.local import LocalBlob
from hypothesis import strategies as st
from texts import nasty_text, weigh


class Clock:
    """A wall clock that moves only when a test sets it."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def noise(size: int, seed: int = 0) -> bytes:
    """Return random bytes, which do not compress."""
    return random.Random(seed).randbytes(size)


def events(store: Store, name: str) -> list[dict[str, Any]]:
    """Return the journal's events of one name, newest first."""
    return [event for event in store.journal.recent(1000) if event["event"] == name]


def store_at(root: Path, **options: Any) -> Store:
    """Open a store without background sweeps."""
    return forebay.open_store(root.as_uri(), **{"sweep_interval": 0, **options})


def payload_files(root: Path) -> list[Path]:
    """Return all files that hold a payload or a part of one."""
    return sorted(
        path
        for path in root.rglob("*")
        if path.is_file() and path.name != ".lock" and path.parent.name not in ("journal", "calls", ".usage")
    )


def file_of(root: Path, handle: str) -> Path:
    (path,) = root.glob(f"*/{handle}.*.zst")
    return path


def decompress(path: Path) -> bytes:
    """Decompress a stored file with the zstd command."""
    if sys.platform == "win32":
        # A library that forebay does not use.
        return pyzstd.SeekableZstdFile(path).read()
    tool = shutil.which("zstd")
    if tool is None:
        pytest.fail("this test reads stored files with the zstd command: install it (Debian: apt install zstd)")
    return subprocess.run([tool, "-dcq", str(path)], check=True, capture_output=True).stdout


def whole(store: Store, handle: str) -> bytes:
    with store.open(handle, principal=forebay.OPERATOR) as file:
        return file.read()


def pages(store: Store, handle: str, **ask: Any) -> Iterator[Page]:
    """Follow `next_offset` from 0, and check the invariants of every page."""
    offset: int | None = 0
    levels, most = ask.get("escape_levels", 0), ask.get("max_bytes", 65536)
    while offset is not None:
        page = store.fetch(handle, offset=offset, **ask)
        sent = page.to_json()
        assert weigh(sent.decode(), levels) <= most
        decoded = json.loads(sent)
        assert (page.offset, decoded["offset"]) == (offset, offset)
        assert (page.next_offset is None) == page.eof == (page.offset + page.returned >= page.total)
        assert page.eof or page.next_offset == offset + page.returned > offset
        # A text page has at least one character, whatever the limit.
        assert page.returned <= page.limit or (page.format == "text" and len(content(page)) == 1)
        unit = "bytes" if page.format in ("text", "bytes") else page.format
        assert page.unit == ("matches" if ask.get("where") else unit)
        asked = {
            name: ask[name] for name in ("limit", "format", "path", "fields", "where") if ask.get(name) is not None
        }
        if page.eof:
            assert (page.next, page.limited_by) == (None, None)
        else:
            arguments = {name: value for name, value in asked.items() if value != "auto"}
            if page.next is None:
                # Only a very small page leaves it out.
                assert most < 1024 * (1 + levels)
            else:
                assert page.next == {"output_handle": handle, "offset": page.next_offset, **arguments}
        if page.limited_by is not None:
            assert page.returned < page.limit
        elif not page.eof:
            assert page.returned >= page.limit - (3 if page.format == "text" else 0)
        assert len(page.truncated) <= 1
        assert not page.truncated or page.returned == 1
        yield page
        offset = page.next_offset


def content(page: Page) -> Any:
    """Return the content as a reader of the JSON decodes it."""
    decoded = json.loads(page.to_json())["content"]
    if page.encoding == "base64":
        return base64.b64decode(decoded, validate=True)
    return decoded


limits = st.none() | st.integers(1, 30)


def make_request(limit: int | None, level: int, more: int) -> dict[str, Any]:
    """Return valid parameters of a page: the smallest budget grows with the escape level."""
    return {"limit": limit, "max_bytes": 512 * (1 + level) + more, "escape_levels": level}


asks = st.builds(make_request, limits, st.integers(0, 2), st.integers(0, 2000))

# Items of which some fill a page or more.
long_texts = st.builds(lambda text, times: text * times, nasty_text, st.integers(1, 60))
heavy_items = st.lists(values | long_texts | st.dictionaries(st.sampled_from("abc"), long_texts), max_size=12)


def read_by_offset(store: Store, handle: str, path: str | None, cut: dict[str, Any]) -> bytes:
    """Read a cut item or line by the byte offset on its page."""
    start, size = cut["byte_offset"], cut["size_bytes"]
    page = store.fetch(handle, path=path, format="bytes", offset=start, limit=size, max_bytes=size * 2 + 1024)
    data = content(page)
    assert isinstance(data, bytes)
    return data


class RecordedReads:
    """Records the ranges that are read from stored files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ranges: list[tuple[int, int]] = []
        read = LocalBlob.read

        def counted(blob: LocalBlob, start: int, length: int) -> bytes:
            found = read(blob, start, length)
            self.ranges.append((start, len(found)))
            return found

        monkeypatch.setattr(LocalBlob, "read", counted)

    def measure(self, call: Any) -> tuple[int, int]:
        """Return the number of ranges and of bytes that a call reads."""
        self.ranges.clear()
        call()
        return len(self.ranges), sum(length for _, length in self.ranges)
