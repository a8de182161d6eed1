"""Generated payloads for the benches: the same bytes on every machine, 100 MB in well under a second.

A megabyte of items is generated from a seed and then repeated with other ids, so a payload costs a few copies.
`python benches/corpus.py DIR` writes the payloads that the Rust benches read.
"""

import json
import random
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from forebay.bench.generate import CHUNK, repeat_items

MB = 1_000_000
SIZES = {"1 MB": MB, "9 MB": 9 * MB, "20 MB": 20 * MB, "100 MB": 100 * MB}

WORDS = [
    *("cache", "index", "shard", "queue", "login", "payment", "invoice"),
    *("profile", "session", "upload", "export", "webhook", "retry", "audit"),
]
PROSE = [
    "the request was accepted",
    "naïve café, déjà vu",
    "検索結果を表示しています",
    "Привет, мир",
    'she said "ship it" and left',
    "path C:\\temp\\new",
    "line one\nline two\ttabbed",
    "shipping 🚀 to production 👩‍💻",
    "見積もりは 3,200 円です",
    "nothing to see here",
]
# Messages of most log lines, and messages of one line in fifty, which are worth finding.
ORDINARY = [
    "cache hit for key session:{n} in {n} us",
    'GET /api/v2/items/{n} "Mozilla/5.0" 200 {n} bytes',
    "user {n} opened the project Überblick at step {n}",
    "stored {n} rows of résumé_data, {n} left",
    "の要求を {n} 件受け付けました shard={n}",
    "heartbeat from node-{n} ok, load 0.{n}",
    "token refreshed for tenant {n}, expires after {n} s",
]
EVENTS = [
    "request {n} failed after a timeout",
    "request {n} failed, retry {n} had its own timeout",
    "the job failed and nobody knows why, step {n}",
    "peer 10.20.{b}.{b} left the cluster",
    "Connection Reset by peer {n}",
    "接続がリセット されました {n}",
    "login of user_id={n} refused",
    "user_id=990017 refused, short user_id=17",
    'config "read timeout" is "{n} s"',
    "slow query took {n}ms",
    "still waiting, retrying {n}",
    "worker {n} died: segmentation fault",
    "build QX{n} done",
    "upstream prematurely closed connection while reading response header from upstream, client {n}",
]

Make = Callable[[random.Random, int], str]


def records(size: int) -> bytes:
    """An array of small objects with a list of tags, about 200 bytes each."""
    return _array(_record, size)


def big_items(size: int) -> bytes:
    """An array of nested objects of more than a kilobyte each."""
    return _array(_big_item, size)


def tweets(size: int) -> bytes:
    """An array of posts: multibyte text, escapes, nested users and entities."""
    return _array(_tweet, size)


def deep(size: int) -> bytes:
    """An array of items that nest ten levels."""
    return _array(_deep, size)


def tiny_ints(size: int) -> bytes:
    """An array of small integers: as many items as bytes allow."""
    return _array(_tiny_int, size)


def wrapped(size: int) -> bytes:
    """Posts under a key, with metadata behind them."""
    tail = b',"search_metadata":{"count":100,"query":"forebay","next":null}}'
    return b'{"statuses":' + tweets(size - len(tail) - 12) + tail


def keyed(size: int) -> bytes:
    """A map of the records, under a key."""
    return b'{"total":1,"records":{' + _repeat(_keyed_record, size - 24, b",") + b"}}"


def ndjson(size: int) -> bytes:
    """The records, one per line."""
    return _lines(_record, size)


def log(size: int) -> bytes:
    """Lines of a service's log, some of them multibyte."""
    return _lines(_log_line, size)


BY_NAME: dict[str, Callable[[int], bytes]] = {
    make.__name__: make for make in (records, big_items, tweets, deep, tiny_ints, wrapped, keyed, ndjson, log)
}


@lru_cache(maxsize=2)
def load(name: str, size: str) -> bytes:
    """Return a corpus by name. The last two stay in memory, because benches load the same one many times in a row."""
    return BY_NAME[name](SIZES[size])


def _item(number: int, fields: dict[str, object]) -> str:
    """Return an object with a unique integer as its `id`."""
    rest = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    return f'{{"id":1{CHUNK}{number:06},{rest[1:]}'


def _record(rng: random.Random, number: int) -> str:
    return _item(
        number,
        {
            "name": f"{rng.choice(WORDS)}-{rng.randrange(10**6)}",
            "active": rng.random() < 0.8,
            "score": round(rng.random() * 100, 3),
            "tags": [rng.choice(WORDS) for _ in range(rng.randrange(1, 4))],
            "owner": {"id": rng.randrange(10**6), "email": f"{rng.choice(WORDS)}@example.org"},
            "note": rng.choice(PROSE),
        },
    )


def _keyed_record(rng: random.Random, number: int) -> str:
    return f'"r{CHUNK}{number:06}":{_record(rng, number)}'


def _user(rng: random.Random) -> dict[str, object]:
    return {
        "id": rng.randrange(10**9),
        "screen_name": f"{rng.choice(WORDS)}_{rng.randrange(10**4)}",
        "description": " ".join(rng.choice(PROSE) for _ in range(2)),
        "followers": rng.randrange(10**5),
        "verified": rng.random() < 0.1,
        "location": None,
    }


def _tweet(rng: random.Random, number: int) -> str:
    return _item(
        number,
        {
            "created_at": f"Mon Nov {rng.randrange(1, 29):02} 12:{rng.randrange(60):02}:00 +0000 2026",
            "text": " ".join(rng.choice(PROSE) for _ in range(4)),
            "entities": {
                "hashtags": [{"text": rng.choice(WORDS), "indices": [0, 9]} for _ in range(rng.randrange(3))],
                "urls": [{"url": f"https://example.org/{rng.randrange(10**8)}", "indices": [10, 33]}],
            },
            "user": _user(rng),
            "retweets": rng.randrange(10**4),
            "favorited": False,
        },
    )


def _big_item(rng: random.Random, number: int) -> str:
    return _item(
        number,
        {
            "title": rng.choice(PROSE),
            "body": " ".join(rng.choice(PROSE) for _ in range(20)),
            "author": _user(rng),
            "replies": [{"user": _user(rng), "text": rng.choice(PROSE)} for _ in range(3)],
            "coordinates": [round(rng.uniform(-180, 180), 6) for _ in range(12)],
        },
    )


def _deep(rng: random.Random, number: int) -> str:
    value: object = {"leaf": rng.choice(PROSE), "n": rng.randrange(10**6)}
    for level in range(9):
        value = {"level": level, "next": value} if level % 2 else [rng.randrange(100), value]
    return _item(number, {"root": value})


def _tiny_int(rng: random.Random, _: int) -> str:
    return str(rng.randrange(100))


def _log_line(rng: random.Random, number: int) -> str:
    is_event = rng.random() < 0.02
    level = rng.choice(("WARN", "ERROR", "FATAL", "INFO")) if is_event else "INFO"
    day, hour, minute, second = rng.randrange(1, 29), rng.randrange(24), rng.randrange(60), rng.randrange(60)
    message = rng.choice(EVENTS if is_event else ORDINARY).format(n=rng.randrange(10**7), b=rng.randrange(256))
    return (
        f"2026-11-{day:02}T{hour:02}:{minute:02}:{second:02}.{rng.randrange(1000):03}Z "
        f"{level:5} svc-{rng.randrange(40):02} #1{CHUNK}{number:06} {message}"
    )


def _repeat(make: Make, size: int, separator: bytes) -> bytes:
    return repeat_items(make, size, separator, make.__name__)


def _array(make: Make, size: int) -> bytes:
    return b"[" + _repeat(make, size - 2, b",") + b"]"


def _lines(make: Make, size: int) -> bytes:
    return _repeat(make, size - 1, b"\n") + b"\n"


def _write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("records", "big_items", "tweets", "wrapped", "tiny_ints"):
        (folder / f"{name}.json").write_bytes(BY_NAME[name](SIZES["100 MB"]))


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
