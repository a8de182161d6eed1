"""What headgate does with a tool result of 50 MB: `python -m headgate.demo`."""

import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

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

    def answer(self, message: bytes, shown: str | None = None, lines: int = 1) -> None:
        """Counts what the agent gets to read, and shows the start of it, or what is more worth showing."""
        self.read += len(message)
        text = message.decode() if shown is None else shown
        width = self.width - 6
        text = text if len(text) <= width * lines else text[: width * lines - 1] + "…"
        for start in range(0, len(text), width):
            print("   ", text[start : start + width])


def duration(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def tokens(size: int) -> str:
    return f"about {size // BYTES_A_TOKEN:,} tokens"


def tour(store: headgate.Store, data: bytes, show: Show) -> None:
    """What an agent does with a result that is too big for it."""
    descriptor = show.step("store.put(data)  # checked, indexed, compressed, written", lambda: store.put(data))
    handle = descriptor.output_handle
    show.answer(descriptor.to_json(), lines=4)
    stored = store.stat(handle)
    print(f"    on disk: {stored.stored_bytes:,} bytes, 1/{stored.size_bytes / stored.stored_bytes:.1f} of it")

    def fetch(call: str, **asked: Any) -> None:
        page = show.step(call, lambda: store.fetch(handle, **asked))
        content = page.content if isinstance(page.content, str) else page.content.decode()
        show.answer(page.to_json(), f"{page.returned} of {page.total:,}: {content}")

    count = descriptor.item_count or 0
    for place, offset in (("start", 0), ("middle", count // 2), ("end", count - 50)):
        fetch(f"store.fetch(handle, offset={offset}, limit=50)  # at the {place}", offset=offset, limit=50)
    fetch('store.fetch(handle, limit=50, fields=["id", "total"])', limit=50, fields=["id", "total"])
    fetch('store.fetch(handle, path="/page")  # not where the items are: read whole, once', path="/page")

    pattern = r'"tier":"pro"[^}]*\}[^}]*refund failed'
    found = show.step(
        f"store.search(handle, r'{pattern}', regex=True, limit=3)",
        lambda: store.search(handle, pattern, regex=True, limit=3, context=20),
    )
    show.answer(found.to_json(), "  ".join(f"item {match['item']}: {match['context']}" for match in found.matches))

    missing = show.step("store.search(handle, 'no such order')", lambda: store.search(handle, "no such order"))
    show.answer(missing.to_json(), f"{len(missing.matches)} matches in all {len(data):,} bytes")

    def redeem() -> bytes:
        with store.open(handle) as file:
            return file.read()

    whole = show.step("store.open(handle).read()  # for a program: the agent reads none of it", redeem)
    print("    the same bytes" if whole == data else "    NOT the same bytes")


def main() -> None:
    show = Show()
    data = payload(SIZE)
    print(f"A tool answered with {len(data):,} bytes of JSON: {tokens(len(data))}.")
    with (
        tempfile.TemporaryDirectory(prefix="headgate-demo-") as folder,
        headgate.open_store((Path(folder) / "store").as_uri()) as store,
    ):
        tour(store, data, show)
    kept = len(data) - show.read
    print(f"\nRead: {show.read:,} bytes. Kept out of the context: {kept:,} bytes, {tokens(kept)}.")


if __name__ == "__main__":
    main()
