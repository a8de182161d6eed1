"""Generated payloads: the same bytes on every machine for a shape, a size and a seed.

A megabyte of items is generated and then repeated with other ids, so that 100 MB cost a few copies.
"""

import json
import random
from collections.abc import Callable
from functools import cache
from itertools import accumulate

__all__ = ["CHUNK", "SHAPES", "generate", "repeat_items"]

CHUNK = "@@@@"
"""Placeholder for the number of the chunk: four digits that make ids differ from chunk to chunk."""

_CHUNK_BYTES = 1_000_000

MakeItem = Callable[[random.Random, int], str]

_STATUSES = ("paid", "shipped", "open", "refunded", "failed")
_STATUS_WEIGHTS = (55, 30, 9, 4, 2)
_COUNTRIES = ("DE", "FR", "US", "JP", "BR", "IN", "PL", "KE")
_CITIES = ("Köln", "Lyon", "Austin", "大阪市", "São Paulo", "Pune", "Kraków", "Nairobi")
_NOTES = (
    "leave it at the door",
    'gift, "no invoice" please',
    "ring twice\nthen call",
    "お届けは午前中に",
    "second attempt after a timeout",
    "naïve café, déjà vu 🚀",
)
_SENTENCES = (
    "The harbour was rebuilt after the storm of 1953 and reopened two years later.",
    "Opening hours change with the season; call before you come.",
    'She wrote "closed until spring" on a card and put it in the window.',
    "この道は冬のあいだ通れません。",
    "Les prix comprennent le petit-déjeuner et l'accès à la piscine.",
    "The path C:\\temp\\old is no longer used.",
    "Tickets are sold at the entrance and online.",
    "Line one\nline two\tand a tab.",
)
_LOG_MESSAGES = (
    "cache hit for key session:{n} in {n} us",
    'GET /api/v2/orders/{n} "Mozilla/5.0" 200 {n} bytes',
    "user {n} opened the project Überblick at step {n}",
    "heartbeat from node-{n} ok",
    "の要求を {n} 件受け付けました shard={n}",
)
_LOG_EVENTS = (
    "request {n} failed after a timeout",
    "connection reset by peer {n}",
    "login of user_id={n} refused",
    "worker {n} died: segmentation fault",
)


def generate(shape: str, size: int, seed: int = 1) -> bytes:
    """Return a payload of a shape with about `size` bytes, and never more unless one item alone is larger."""
    return SHAPES[shape](size, f"{shape}-{seed}")


def repeat_items(make: MakeItem, size: int, separator: bytes, seed: str) -> bytes:
    """Return as many whole chunks as fit in `size`, followed by as many whole items as fit."""
    items = _make_items(make, seed)
    chunk = separator.join(items)
    chunks, rest = divmod(max(size, 0), len(chunk) + len(separator))
    ends = accumulate(len(item) + len(separator) for item in items)
    last = separator.join(items[: sum(end <= rest for end in ends)])
    pieces = [*[chunk] * chunks, last] if last else [chunk] * chunks
    marker = CHUNK.encode()
    return separator.join(piece.replace(marker, b"%04d" % number) for number, piece in enumerate(pieces))


@cache
def _make_items(make: MakeItem, seed: str) -> list[bytes]:
    """Return about a megabyte of items."""
    rng = random.Random(seed)  # noqa: S311 - it has to be reproducible, not secret
    items: list[bytes] = []
    size = 0
    while size < _CHUNK_BYTES:
        items.append(make(rng, len(items)).encode())
        size += len(items[-1]) + 1
    return items


def _dump(number: int, fields: dict[str, object]) -> str:
    """Return an object with a unique integer as its `id`."""
    rest = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    return f'{{"id":1{CHUNK}{number:06},{rest[1:]}'


def _choose_status(rng: random.Random) -> str:
    return rng.choices(_STATUSES, _STATUS_WEIGHTS)[0]


def _format_time(rng: random.Random) -> str:
    day, hour, minute, second = rng.randrange(1, 29), rng.randrange(24), rng.randrange(60), rng.randrange(60)
    return f"2026-{rng.randrange(1, 13):02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"


def _make_order_fields(rng: random.Random) -> dict[str, object]:
    place = rng.randrange(len(_COUNTRIES))
    lines = [
        {"sku": f"SKU-{rng.randrange(10**5):05}", "qty": rng.randrange(1, 9), "price": rng.randrange(99, 99999) / 100}
        for _ in range(rng.randrange(1, 5))
    ]
    return {
        "status": _choose_status(rng),
        "created": _format_time(rng),
        "customer": {
            "id": rng.randrange(10**6),
            "email": f"user{rng.randrange(10**5)}@example.org",
            "country": _COUNTRIES[place],
            "city": _CITIES[place],
        },
        "lines": lines,
        "total": rng.randrange(99, 999999) / 100,
        "note": rng.choice(_NOTES) if rng.random() < 0.3 else None,
    }


def _make_order(rng: random.Random, number: int) -> str:
    return _dump(number, _make_order_fields(rng))


def _make_page(rng: random.Random, number: int) -> str:
    host = f"https://example.org/{rng.choice(_CITIES[:3])}/{rng.randrange(10**6)}"
    return _dump(
        number,
        {
            "url": host,
            "status": rng.choice((200, 200, 200, 200, 301, 404)),
            "kind": rng.choice(("article", "article", "listing", "image", "redirect")),
            "fetched": _format_time(rng),
            "title": rng.choice(_SENTENCES)[:40],
            "text": " ".join(rng.choice(_SENTENCES) for _ in range(rng.randrange(5, 60))),
            "links": [f"{host}?page={page}" for page in range(rng.randrange(0, 12))],
        },
    )


def _make_event(rng: random.Random, number: int) -> str:
    return _dump(
        number,
        {
            "ts": _format_time(rng),
            "level": rng.choice(("info", "info", "info", "warn", "error")),
            "message": rng.choice(_LOG_MESSAGES + _LOG_EVENTS).format(n=rng.randrange(10**7)),
            "tags": [rng.choice(_COUNTRIES) for _ in range(rng.randrange(3))],
        },
    )


def _make_log_line(rng: random.Random, number: int) -> str:
    is_event = rng.random() < 0.02
    level = rng.choice(("WARN", "ERROR")) if is_event else "INFO"
    message = rng.choice(_LOG_EVENTS if is_event else _LOG_MESSAGES).format(n=rng.randrange(10**7))
    return f"{_format_time(rng)} {level:5} svc-{rng.randrange(40):02} #1{CHUNK}{number:06} {message}"


def _make_row(rng: random.Random, number: int) -> str:
    place = rng.randrange(len(_COUNTRIES))
    note = '"ring twice, then call"' if rng.random() < 0.2 else ""
    status, total = _choose_status(rng), rng.randrange(99, 999999) / 100
    return f"1{CHUNK}{number:06},{status},{_format_time(rng)},{_COUNTRIES[place]},{_CITIES[place]},{total},{note}"


def _orders(size: int, seed: str) -> bytes:
    head, tail = b'{"orders":[', b'],"page":1,"next":null}'
    return head + repeat_items(_make_order, size - len(head) - len(tail), b",", seed) + tail


def _crawl(size: int, seed: str) -> bytes:
    return b"[" + repeat_items(_make_page, size - 2, b",", seed) + b"]"


def _events(size: int, seed: str) -> bytes:
    return repeat_items(_make_event, size - 1, b"\n", seed) + b"\n"


def _log(size: int, seed: str) -> bytes:
    return repeat_items(_make_log_line, size - 1, b"\n", seed) + b"\n"


def _csv(size: int, seed: str) -> bytes:
    head = b"id,status,created,country,city,total,note\n"
    return head + repeat_items(_make_row, size - len(head) - 1, b"\n", seed) + b"\n"


SHAPES: dict[str, Callable[[int, str], bytes]] = {
    "orders": _orders,
    "crawl": _crawl,
    "events": _events,
    "log": _log,
    "csv": _csv,
}
"""Functions that return a payload: JSON with an array, JSON of long texts, NDJSON, a log, rows of CSV."""
