"""A read-only buffer can still be changed by its owner: results may then be wrong, but nothing crashes."""

import contextlib
import threading
from collections.abc import Callable

import forebay
import pytest

VERBS: dict[str, Callable[[memoryview], object]] = {
    "preview": forebay.preview,
    "read_text": lambda data: forebay.read_text(data, 1),
    "read_lines": lambda data: forebay.read_lines(data),
    "truncate": forebay.truncate,
    "truncate_lines": forebay.truncate_lines,
    "outline": forebay.outline,
    "get": lambda data: forebay.get(data, "/kkkk"),
    "project": lambda data: forebay.project(data, ["kkkk"]),
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
