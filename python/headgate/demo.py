"""What headgate does with a tool result of 50 MB: `python -m headgate.demo`."""

import random
import shutil
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import headgate

SIZE = 50_000_000
BYTES_A_TOKEN = 4

NOTES = [
    "paid in full",
    "客様は返品を希望しています",
    "Übergabe an Spedition, naïve Schätzung",
    'asked for "express" 🚚',
    "refund failed after timeout",
    "доставка завтра",
]

T = TypeVar("T")


def payload(size: int) -> bytes:
    """An answer as an order service would give it: a page of metadata around a great many records."""
    rng = random.Random(7)  # noqa: S311 - the same demo every time
    orders: list[bytes] = []
    written = 0
    while written < size:
        number = len(orders)
        order = (
            f'{{"id":{number},"customer":{{"id":{rng.randrange(10**6)},"tier":"{rng.choice(["free", "pro"])}"}},'
            f'"total":{rng.randrange(10**5) / 100},"tags":["{rng.choice(["new", "late", "gift"])}"],'
            f'"note":"{rng.choice(NOTES).replace(chr(34), chr(92) + chr(34))}"}}'
        ).encode()
        orders.append(order)
        written += len(order) + 1
    return b'{"orders":[' + b",".join(orders) + b'],"page":{"next":null,"took_ms":412}}'


class Show:
    """Prints a step, its time and some of its answer, and adds up what an agent would have read."""

    def __init__(self) -> None:
        self.width = min(shutil.get_terminal_size((100, 24)).columns, 110)
        self.read = 0

    def step(self, call: str, verb: Callable[[], T]) -> T:
        start = time.perf_counter()
        answer = verb()
        seconds = time.perf_counter() - start
        print(f"\n{call:<{self.width - 12}}{duration(seconds):>12}")
        return answer

    def answer(self, text: str, lines: int = 2, size: int | None = None) -> None:
        """Shows the first lines of what the agent gets to read; `size` where it reads more than `text`."""
        self.read += len(text.encode()) if size is None else size
        width = self.width - 6
        shown = text if len(text) <= width * lines else text[: width * lines - 1] + "…"
        for start in range(0, len(shown), width):
            print("   ", shown[start : start + width])


def duration(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def tokens(size: int) -> str:
    return f"about {size // BYTES_A_TOKEN:,} tokens"


def main() -> None:
    show = Show()
    data = payload(SIZE)
    print(f"A tool answered with {len(data):,} bytes of JSON: {tokens(len(data))}.")

    show.answer(show.step("outline(data)", lambda: headgate.outline(data)))

    head = show.step("preview(data, 500)", lambda: headgate.preview(data, 500)) or ""
    show.answer(head)

    index = show.step("index_items(data)  # every byte validated", lambda: headgate.index_items(data))
    show.answer(f"{len(index):,} items at {index.path}; the index takes {len(index.to_bytes()):,} bytes")

    for name, offset in (("first", 0), ("middle", len(index) // 2), ("last", len(index) - 3)):
        call = f"read_items(data, index, {offset}, 3)  # the {name} ones"
        page = show.step(call, partial(headgate.read_items, data, index, offset, 3))
        show.answer(page.content.decode(), lines=1)

    pattern = r'"tier":"pro"[^}]*\}[^}]*refund failed'
    call = f"search(data, r'{pattern}', regex=True, index=index, limit=3)"
    found = show.step(call, lambda: headgate.search(data, pattern, regex=True, index=index, limit=3, context=20))
    for match in found.matches:
        show.answer(f"item {match.item}, byte {match.start}: {match.context}", lines=1)

    nothing = show.step("search(data, 'no such order')", lambda: headgate.search(data, "no such order"))
    show.answer(f"{len(nothing.matches)} matches in all {len(data):,} bytes")

    overview = show.step("truncate(data, max_bytes=2048)", lambda: headgate.truncate(data, max_bytes=2048))
    show.answer(overview.decode(), size=len(overview))

    kept = len(data) - show.read
    print(f"\nRead: {show.read:,} bytes. Kept out of the context: {kept:,} bytes, {tokens(kept)}.")


if __name__ == "__main__":
    main()
