"""Simulated pages, requests and traces for the example browser: no network, and the same data every time."""

import gzip
import json
import random
import struct
import zlib
from typing import Any
from urllib.parse import urljoin, urlsplit

# Before Python 3.12 pydantic does not support typing.TypedDict.
from typing_extensions import TypedDict

WORDS = (  # noqa: SIM905 - one string reads better than thirty
    "apple bridge candle delta ember forest glacier harbour island jungle kernel lantern meadow needle orbit pepper "
    "quarry river summit timber umbrella valley willow yonder zephyr naïve größe 東京 🙂"
).split()

SEVERITIES = ("critical", "high", "medium", "low")
LINKS_PER_PAGE = 4


class Page(TypedDict):
    """A page of a site; `parent` is the number of the page that links to it."""

    number: int
    parent: int | None
    depth: int
    url: str
    title: str
    links: list[str]
    text: str


class Record(TypedDict):
    """A record of a page's listing."""

    id: int
    name: str
    price: float
    in_stock: bool
    tags: list[str]


class Extracted(TypedDict):
    """The records of a page."""

    items: list[Record]
    count: int


def seeded_random(*key: object) -> random.Random:
    """Return a random generator that gives the same numbers for the same key."""
    return random.Random(repr(key))  # noqa: S311 - made-up pages are no secret


def make_sentence(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=12)).capitalize() + "."


def make_page(url: str, number: int = 0) -> Page:
    """Return page `number` of a site. Page 0 is the root; each page links to `LINKS_PER_PAGE` others."""
    rng = seeded_random(url, number)
    parent, depth, ancestor = (number - 1) // LINKS_PER_PAGE, 0, number
    while ancestor:
        ancestor, depth = (ancestor - 1) // LINKS_PER_PAGE, depth + 1
    return {
        "number": number,
        "parent": parent if number else None,
        "depth": depth,
        "url": page_url(url, number),
        "title": " ".join(rng.sample(WORDS, 3)),
        "links": [page_url(url, number * LINKS_PER_PAGE + child) for child in range(1, LINKS_PER_PAGE + 1)],
        "text": "\n\n".join(" ".join(make_sentence(rng) for _ in range(6)) for _ in range(12)),
    }


def page_url(url: str, number: int) -> str:
    return urljoin(url, f"/pages/{number}") if number else url


def crawl(url: str, max_pages: int) -> dict[str, Any]:
    """Return the pages of a site, breadth first."""
    return {"url": url, "pages": [make_page(url, number) for number in range(max_pages)], "count": max_pages}


def record_requests(url: str, count: int) -> dict[str, Any]:
    """Return the network requests of a page."""
    rng = seeded_random("network", url)
    host = urlsplit(url).netloc
    entries = [
        {
            "id": number,
            "method": rng.choice(["GET", "GET", "GET", "POST"]),
            "url": f"https://{host}/assets/{rng.choice(WORDS)}-{rng.getrandbits(32):08x}.js",
            "status": rng.choice([200, 200, 200, 200, 304, 404, 500]),
            "duration_ms": rng.randrange(2, 900),
            "headers": {"content-type": "text/javascript", "etag": f'"{rng.getrandbits(64):016x}"'},
        }
        for number in range(count)
    ]
    return {"url": url, "entries": entries}


def extract_records(url: str, count: int) -> Extracted:
    """Return the records that a scraper would find."""
    rng = seeded_random("records", url)
    items: list[Record] = [
        {
            "id": number,
            "name": " ".join(rng.sample(WORDS, 2)),
            "price": rng.randrange(100, 99_999) / 100,
            "in_stock": rng.random() < 0.7,
            "tags": rng.sample(WORDS, 3),
        }
        for number in range(count)
    ]
    return {"items": items, "count": count}


def record_trace(url: str, events: int) -> str:
    """Return a trace with one JSON event per line."""
    rng = seeded_random("trace", url)
    time_ms, lines = 0, []
    for number in range(events):
        time_ms += rng.randrange(1, 40)
        event = {
            "seq": number,
            "at_ms": time_ms,
            "kind": rng.choice(["paint", "script", "layout"]),
            "of": make_sentence(rng),
        }
        lines.append(json.dumps(event, ensure_ascii=False))
    return "\n".join(lines)


def scan_for_bugs(url: str, count: int) -> dict[str, Any]:
    """Return the findings of a bug scan, most severe first."""
    rng = seeded_random("bugs", url)
    found = [
        {
            "id": f"BUG-{number:04}",
            "severity": SEVERITIES[number * len(SEVERITIES) // count],
            "title": make_sentence(rng),
            "at": f"src/{rng.choice(WORDS)}.ts:{rng.randrange(1, 900)}",
            "evidence": " ".join(make_sentence(rng) for _ in range(4)),
        }
        for number in range(count)
    ]
    totals = {severity: sum(bug["severity"] == severity for bug in found) for severity in SEVERITIES}
    return {"url": url, "by_severity": totals, "findings": found}


def bundle(url: str) -> bytes:
    """Return a page with its requests and trace as gzip."""
    evidence = {"page": make_page(url), "network": record_requests(url, 400), "trace": record_trace(url, 800)}
    return gzip.compress(json.dumps(evidence).encode(), mtime=0)


def render_png(url: str, width: int, height: int) -> bytes:
    """Return a PNG of coloured noise, which compresses as badly as a photograph."""
    rng = seeded_random("picture", url)
    rows = b"".join(b"\0" + rng.randbytes(3 * width) for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(_png_chunk, *zip(*chunks, strict=True)))


def _png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
