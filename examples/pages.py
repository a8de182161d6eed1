"""What the example's browser would have found: made up, without any network, and the same every time."""

import gzip
import json
import random
import struct
import zlib
from typing import Any
from urllib.parse import urljoin, urlsplit

# Before Python 3.12 pydantic makes no schema of the other one.
from typing_extensions import TypedDict

WORDS = (  # noqa: SIM905 - one string reads better than thirty
    "apple bridge candle delta ember forest glacier harbour island jungle kernel lantern meadow needle orbit pepper "
    "quarry river summit timber umbrella valley willow yonder zephyr naïve größe 東京 🙂"
).split()

SEVERITIES = ("critical", "high", "medium", "low")
BRANCHES = 4
"""How many pages each page leads to."""


class Page(TypedDict):
    """A page of a site. `parent` makes a tree of a list of them."""

    number: int
    parent: int | None
    depth: int
    url: str
    title: str
    links: list[str]
    text: str


class Record(TypedDict):
    """What is extracted of a page's listing."""

    id: int
    name: str
    price: float
    in_stock: bool
    tags: list[str]


class Extracted(TypedDict):
    """All that was extracted."""

    items: list[Record]
    count: int


def dice(*of: object) -> random.Random:
    """Chance that falls the same way for the same thing."""
    return random.Random(repr(of))  # noqa: S311 - made-up pages are no secret


def sentence(chance: random.Random) -> str:
    return " ".join(chance.choices(WORDS, k=12)).capitalize() + "."


def page(url: str, number: int = 0) -> Page:
    """One page of a site: the first is its root, and each leads to the next few."""
    chance = dice(url, number)
    parent, depth, ancestor = (number - 1) // BRANCHES, 0, number
    while ancestor:
        ancestor, depth = (ancestor - 1) // BRANCHES, depth + 1
    return {
        "number": number,
        "parent": parent if number else None,
        "depth": depth,
        "url": address(url, number),
        "title": " ".join(chance.sample(WORDS, 3)),
        "links": [address(url, number * BRANCHES + child) for child in range(1, BRANCHES + 1)],
        "text": "\n\n".join(" ".join(sentence(chance) for _ in range(6)) for _ in range(12)),
    }


def address(url: str, number: int) -> str:
    return urljoin(url, f"/pages/{number}") if number else url


def crawled(url: str, max_pages: int) -> dict[str, Any]:
    """The tree of a site, breadth first."""
    return {"url": url, "pages": [page(url, number) for number in range(max_pages)], "count": max_pages}


def requests(url: str, count: int) -> dict[str, Any]:
    """What went over the network."""
    chance = dice("network", url)
    host = urlsplit(url).netloc
    entries = [
        {
            "id": number,
            "method": chance.choice(["GET", "GET", "GET", "POST"]),
            "url": f"https://{host}/assets/{chance.choice(WORDS)}-{chance.getrandbits(32):08x}.js",
            "status": chance.choice([200, 200, 200, 200, 304, 404, 500]),
            "duration_ms": chance.randrange(2, 900),
            "headers": {"content-type": "text/javascript", "etag": f'"{chance.getrandbits(64):016x}"'},
        }
        for number in range(count)
    ]
    return {"url": url, "entries": entries}


def extracted(url: str, count: int) -> Extracted:
    """Records, as a scraper has them."""
    chance = dice("records", url)
    items: list[Record] = [
        {
            "id": number,
            "name": " ".join(chance.sample(WORDS, 2)),
            "price": chance.randrange(100, 99_999) / 100,
            "in_stock": chance.random() < 0.7,
            "tags": chance.sample(WORDS, 3),
        }
        for number in range(count)
    ]
    return {"items": items, "count": count}


def trace(url: str, events: int) -> str:
    """A line of JSON an event."""
    chance = dice("trace", url)
    at, lines = 0, []
    for number in range(events):
        at += chance.randrange(1, 40)
        event = {
            "seq": number,
            "at_ms": at,
            "kind": chance.choice(["paint", "script", "layout"]),
            "of": sentence(chance),
        }
        lines.append(json.dumps(event, ensure_ascii=False))
    return "\n".join(lines)


def findings(url: str, count: int) -> dict[str, Any]:
    """What a scan for bugs says, the worst first."""
    chance = dice("bugs", url)
    found = [
        {
            "id": f"BUG-{number:04}",
            "severity": SEVERITIES[number * len(SEVERITIES) // count],
            "title": sentence(chance),
            "at": f"src/{chance.choice(WORDS)}.ts:{chance.randrange(1, 900)}",
            "evidence": " ".join(sentence(chance) for _ in range(4)),
        }
        for number in range(count)
    ]
    totals = {severity: sum(bug["severity"] == severity for bug in found) for severity in SEVERITIES}
    return {"url": url, "by_severity": totals, "findings": found}


def bundle(url: str) -> bytes:
    """Everything about a page, packed."""
    evidence = {"page": page(url), "network": requests(url, 400), "trace": trace(url, 800)}
    return gzip.compress(json.dumps(evidence).encode(), mtime=0)


def picture(url: str, width: int, height: int) -> bytes:
    """A PNG of coloured noise: like a photograph, it does not compress."""
    chance = dice("picture", url)
    rows = b"".join(b"\0" + chance.randbytes(3 * width) for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, *zip(*chunks, strict=True)))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
