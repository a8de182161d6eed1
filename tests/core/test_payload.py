"""Payload types, the errors for other types, and buffers that are changed during a call."""

import contextlib
import mmap
import threading
from array import array
from collections.abc import Callable
from pathlib import Path

import forebay
import pytest
from typing_extensions import Buffer


def test_every_read_only_buffer_is_a_payload(tmp_path: Path) -> None:
    file = tmp_path / "payload"
    file.write_bytes(b"[1, 2]")
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        payloads: list[Buffer | str] = [
            "[1, 2]",
            b"[1, 2]",
            mapped,
            memoryview(b"[1, 2]"),
            memoryview(bytearray(b"[1, 2]")).toreadonly(),
        ]
        assert [forebay.get(payload, "/1") for payload in payloads] == [b"2"] * len(payloads)


@pytest.mark.parametrize("other", [None, 1, ["[]"], {"a": 1}, object()])
def test_the_error_for_an_object_without_a_buffer_says_what_a_payload_is(other: object) -> None:
    with pytest.raises(TypeError, match="a payload is bytes, a read-only buffer of bytes or a str"):
        forebay.get(other, "")  # type: ignore[arg-type]


def test_a_writable_buffer_is_refused() -> None:
    with pytest.raises(TypeError, match="read-only"):
        forebay.get(bytearray(b"[]"), "")


def test_a_closed_buffer_raises_its_own_error(tmp_path: Path) -> None:
    file = tmp_path / "payload"
    file.write_bytes(b"[]")
    with file.open("rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        mapped.close()
    released = memoryview(b"[]")
    released.release()
    with pytest.raises(ValueError, match="mmap closed"):
        forebay.get(mapped, "")
    with pytest.raises(ValueError, match="released memoryview"):
        forebay.get(released, "")


def test_the_error_for_a_buffer_of_numbers_says_how_to_cast_it() -> None:
    numbers = memoryview(array("i", [1, 2])).toreadonly()
    with pytest.raises(BufferError, match=r"cast\(\"B\"\)"):
        forebay.preview(numbers)
    assert forebay.preview(numbers.cast("B")) is None
    with pytest.raises(BufferError, match="contiguous"):
        forebay.preview(memoryview(b"abcd")[::2])


VERBS: dict[str, Callable[[memoryview], object]] = {
    "preview": forebay.preview,
    "read_text": lambda data: forebay.read_text(data, 1),
    "read_lines": lambda data: forebay.read_lines(data),
    "truncate": forebay.truncate,
    "truncate_lines": forebay.truncate_lines,
    "outline": forebay.outline,
    "get": lambda data: forebay.get(data, "/kkkk"),
    "project": lambda data: forebay.project(data, ["kkkk"]),
    "patch": lambda data: forebay.patch(data, [{"op": "remove", "path": "/kkkk"}]),
    "index_items": forebay.index_items,
    "search": lambda data: forebay.search(data, "é"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_changed_buffer_gives_a_wrong_result_or_an_error(verb: str) -> None:
    text = '{"' + "k" * 4 + '":["' + "é" * 20_000 + '"]}'
    owned = bytearray(text.encode())
    payload = memoryview(owned).toreadonly()
    is_done = threading.Event()

    def change() -> None:
        while not is_done.is_set():
            for place in (2, 10, 20_001):
                owned[place] ^= 0x3C

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for _ in range(300):
            with contextlib.suppress(forebay.ForebayError, UnicodeDecodeError):
                VERBS[verb](payload)
    finally:
        is_done.set()
        changing.join()
