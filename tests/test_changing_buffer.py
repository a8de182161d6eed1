"""A read-only buffer can still be changed by its owner: then answers are wrong, but nothing worse happens."""

import contextlib
import threading
from collections.abc import Callable

import headgate
import pytest

VERBS: dict[str, Callable[[memoryview], object]] = {
    "preview": headgate.preview,
    "read_text": lambda data: headgate.read_text(data, 1),
    "read_lines": lambda data: headgate.read_lines(data),
    "truncate": headgate.truncate,
    "truncate_lines": headgate.truncate_lines,
    "outline": headgate.outline,
    "get": lambda data: headgate.get(data, "/kkkk"),
    "project": lambda data: headgate.project(data, ["kkkk"]),
    "index_items": headgate.index_items,
    "search": lambda data: headgate.search(data, "é"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_nothing_worse_than_an_error(verb: str) -> None:
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
            with contextlib.suppress(headgate.HeadgateError, UnicodeDecodeError):
                VERBS[verb](payload)
    finally:
        is_done.set()
        changing.join()
