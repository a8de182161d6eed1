"""Text that is hard to cut, and its size after JSON escaping."""

from __future__ import annotations

import json
import mmap
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typing_extensions import Buffer

NASTY = 'a\n\n"é\\漢\t\x01😀\r\n\x7f\\u00e9 👩‍👩‍👧 e\u0301\u0302\n\x00ß\\\\\n\\ud83d\\ude00 🇩🇪 fin'

PIECES = ["a", "log line ", "\n", "\r\n", '"', "\\", "\\\\\\", "\x01", "\x00", "\t", "\x7f", "é", "漢", "😀", "x" * 40]

nasty_text = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


def escape(text: str, levels: int) -> str:
    """Escape a text by `json.dumps`, `levels` times."""
    for _ in range(levels):
        text = json.dumps(text, ensure_ascii=False)[1:-1]
    return text


def weigh(text: str, levels: int) -> int:
    return len(escape(text, levels).encode())


def char_ends(text: str) -> list[int]:
    """Return the byte offsets between characters, including both ends of the text."""
    ends = [0]
    for char in text:
        ends.append(ends[-1] + len(char.encode()))
    return ends


@contextmanager
def every_payload(text: str, folder: Path) -> Iterator[list[Buffer | str]]:
    """Yield the same text as every type that a payload may have."""
    data = text.encode()
    path = folder / "payload"
    path.write_bytes(data)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        yield [data, text, memoryview(data), memoryview(bytearray(data)).toreadonly(), mapped]


def writable_payloads() -> list[Buffer]:
    return [bytearray(b"abc"), memoryview(bytearray(b"abc")), mmap.mmap(-1, 3)]
