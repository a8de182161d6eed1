"""Write the test vectors of docs/format.md: `python tools/make_vectors.py [FOLDER]`.

Each `NAME.zst` is a stored file, and `NAME.json` says what a reader gets from it. What is expected follows from the
payload, by plain Python, and not from a reader of stored files. Handles are random, so every run writes other bytes:
run this only when the format changes.
"""

import csv
import gzip
import hashlib
import io
import json
import random
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import forebay

VECTORS = Path(__file__).resolve().parents[1] / "tests" / "vectors"

NOW = 1_800_000_000.5

_SAMPLES = 5
"""How many items of a vector are in its expectations."""


class Vector(NamedTuple):
    """A payload to store, and what it has, by plain Python."""

    payload: bytes
    mime_type: str | None = None
    text: bytes | None = None
    items: list[Any] | None = None
    has_lines: bool = True


def build_vectors() -> dict[str, Vector]:
    """Return the payloads by the name of their vector."""
    orders = [{"id": n, "status": "failed" if n % 9 == 4 else "paid", "note": "é漢😀" * (n % 3)} for n in range(4000)]
    plugins = {f"plugin-{n}": {"version": f"1.{n}", "stars": n} for n in range(40)}
    lines = "".join(f"line {n} of a log, status={n % 7}{chr(13) * (n % 2)}\n" for n in range(9000)) + "no line feed"
    western = "Die Größe zählt nicht, das Gewicht schon.\n" * 20
    rows = [[str(n), f'say "{n}",\nplease' if n % 3 else "plain", ""] for n in range(300)]
    table = io.StringIO(newline="")
    csv.writer(table).writerows([["id", "text", "note"], *rows])
    return {
        "array": Vector(
            _dump([{"id": 1}, {"id": 2}, "three", None, [5]]), items=[{"id": 1}, {"id": 2}, "three", None, [5]]
        ),
        "wrapped": Vector(_dump({"page": 1, "orders": orders, "next": None}), items=orders),
        "map": Vector(_dump({"updated": "today", "plugins": plugins}), items=[list(pair) for pair in plugins.items()]),
        "mark": Vector(b"\xef\xbb\xbf" + _dump(orders[:50]), items=orders[:50]),
        "object": Vector(_dump({"a": 1, "b": {"c": True}})),
        "ndjson": Vector(b"\n".join(map(_dump, orders)) + b"\n\n", "application/x-ndjson", items=orders),
        "lines": Vector(lines.encode(), "text/plain"),
        "csv": Vector(table.getvalue().encode(), "text/csv", items=rows),
        "tsv": Vector(b"id\tname\n1\tone\n\n2\ttwo", "text/tab-separated-values", items=[["1", "one"], ["2", "two"]]),
        "binary": Vector(random.Random(1).randbytes(5000), has_lines=False),  # noqa: S311 - no secret
        "empty": Vector(b""),
        "gzip": Vector(gzip.compress(lines.encode("utf-16"), mtime=0), text=lines.encode()),
        "latin": Vector(western.encode("cp1252"), text=western.encode()),
    }


def _dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def describe(vector: Vector) -> dict[str, Any]:
    """Return what a reader gets from a vector."""
    expected: dict[str, Any] = {"payload_sha256": _hash(vector.payload), "size_bytes": len(vector.payload)}
    if vector.text is not None:
        expected |= {"text_sha256": _hash(vector.text), "text_bytes": len(vector.text)}
    samples: dict[str, dict[str, Any]] = {}
    if vector.items is not None:
        samples["items"] = _sample(vector.items)
        expected["items"] = len(vector.items)
    if vector.has_lines:
        content = vector.payload if vector.text is None else vector.text
        lines = [line.decode() for line in io.BytesIO(content)]
        samples["lines"] = {number: line for number, line in _sample(lines).items() if len(line) < 200}
        expected["lines"] = len(lines)
    return expected | {"samples": samples}


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _sample(items: list[Any]) -> dict[str, Any]:
    numbers = sorted({round(position * (len(items) - 1) / (_SAMPLES - 1)) for position in range(_SAMPLES)})
    return {str(number): items[number] for number in numbers if 0 <= number < len(items)}


def damage(intact: bytes) -> Iterator[tuple[str, str, bytes]]:
    """Yield files that a reader must refuse: a name, the reason, and the bytes. `intact` has several frames."""
    (count,) = struct.unpack_from("<I", intact, len(intact) - 9)
    table = len(intact) - 17 - 12 * count
    sizes = [struct.unpack_from("<I", intact, table + 8 + 12 * number)[0] for number in range(count)]
    first, second = sizes[:2]
    meta = table - sizes[-1]
    yield "torn", "the end is missing", intact[:-100]
    yield "start", "the first frame is missing", intact[first:]
    yield (
        "swapped",
        "two frames are swapped",
        b"".join((intact[first : first + second], intact[:first], intact[first + second :])),
    )
    for name, reason, at in (
        ("frame", "a bit of a frame is wrong", first // 2),
        ("metadata", "a bit of the metadata is wrong", meta + 20),
        ("seal", "a bit of the seal is wrong", table - 1),
        ("table", "a bit of the seek table is wrong", table + 9),
    ):
        yield name, reason, intact[:at] + bytes([intact[at] ^ 0x10]) + intact[at + 1 :]


def main(folder: Path) -> None:
    """Write all vectors into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as root:
        store = forebay.open_store(Path(root), sweep_interval=0, clock=lambda: NOW, ttl=3600)
        for name, vector in build_vectors().items():
            handle = store.put(vector.payload, mime_type=vector.mime_type, source_tool="make_vectors").output_handle
            (stored,) = Path(root).glob(f"*/{handle}.*.zst")
            _write(folder / name, stored.read_bytes(), {"handle": handle, **describe(vector)})
            if name == "wrapped":
                for kind, reason, data in damage(stored.read_bytes()):
                    _write(folder / f"refused-{kind}", data, {"refused": reason})
        store.close()


def _write(path: Path, stored: bytes, expected: dict[str, Any]) -> None:
    path.with_suffix(".zst").write_bytes(stored)
    text = json.dumps(expected, ensure_ascii=False, indent=1)
    path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else VECTORS)
