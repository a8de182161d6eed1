"""Stored files are those of docs/format.md: readers and writers that know only this page agree with forebay."""

import csv
import gzip
import hashlib
import io
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import make_vectors
import pytest
import zstandard
from forebay import ForebayError, HandleCorrupt, Store
from forebay.store.frames import read_footer, read_verified
from hypothesis import given, settings
from hypothesis import strategies as st
from spec_reader import Refused, StoredFile, read_stored_file, xxh64
from stores import Clock, decompress, file_of, store_at

VECTORS = Path(__file__).resolve().parents[1] / "vectors"
INTACT = sorted(path.stem for path in VECTORS.glob("*.zst") if not path.name.startswith("refused-"))
REFUSED = sorted(path.stem for path in VECTORS.glob("refused-*.zst"))


def expected_of(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class BytesSource:
    """A stored file in memory."""

    def __init__(self, data: bytes) -> None:
        self.data, self.size = data, len(data)

    def read(self, start: int, length: int) -> bytes:
        return self.data[start : start + length]

    def read_ahead(self) -> None:
        pass


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with all intact vectors in it, as another program would put them there."""
    with store_at(tmp_path, clock=Clock(make_vectors.NOW)) as store:
        folder = tmp_path / "2027-01-15"
        folder.mkdir(mode=0o700)
        for name in INTACT:
            (folder / f"{expected_of(name)['handle']}.bin.zst").write_bytes((VECTORS / f"{name}.zst").read_bytes())
        yield store


def test_there_is_a_vector_of_each_payload_and_each_damage() -> None:
    payloads = make_vectors.build_vectors()
    assert sorted(payloads) == INTACT
    kinds = [name for name, _, _ in make_vectors.damage((VECTORS / "wrapped.zst").read_bytes())]
    assert sorted(f"refused-{kind}" for kind in kinds) == REFUSED
    for name, vector in payloads.items():
        expected, committed = json.loads(json.dumps(make_vectors.describe(vector))), expected_of(name)
        # Versions of zlib compress differently; the text is the same.
        varies = {"handle", *(("payload_sha256", "size_bytes") if name == "gzip" else ())}
        assert {key: value for key, value in expected.items() if key not in varies} == {
            key: value for key, value in committed.items() if key not in varies
        }


@pytest.mark.parametrize("name", INTACT)
def test_the_specification_reads_a_vector(name: str) -> None:
    expected = expected_of(name)
    stored = read_stored_file((VECTORS / f"{name}.zst").read_bytes())
    assert sha256(stored.payload) == expected["payload_sha256"]
    assert (stored.text is None) == ("text_sha256" not in expected)
    assert stored.text is None or sha256(stored.text) == expected["text_sha256"]
    assert {key: stored.meta[key] for key in ("handle", "size_bytes")} == {
        key: expected[key] for key in ("handle", "size_bytes")
    }
    assert (stored.meta["created_at"], stored.meta["expires_at"]) == (make_vectors.NOW, make_vectors.NOW + 3600)
    assert stored.meta["item_count"] == expected.get("items")
    assert (None if stored.lines is None else stored.lines.item_count) == expected.get("lines")
    samples = expected["samples"]
    for number, item in samples.get("items", {}).items():
        assert as_json(stored.read_item(int(number))) == item
    for number, line in samples.get("lines", {}).items():
        assert stored.read_line(int(number)).decode() == line


def as_json(item: object) -> object:
    return list(item) if isinstance(item, tuple) else item


@pytest.mark.parametrize("name", INTACT)
def test_forebay_reads_a_vector(store: Store, name: str) -> None:
    expected = expected_of(name)
    handle = expected["handle"]
    assert sha256(store.open(handle).read()) == expected["payload_sha256"]
    stat = store.stat(handle)
    assert (stat.item_count, stat.size_bytes) == (expected.get("items"), expected["size_bytes"])
    for number, item in expected["samples"].get("items", {}).items():
        (found,) = json.loads(store.fetch(handle, offset=int(number), limit=1).content)
        if stat.mime_type in ("text/csv", "text/tab-separated-values"):
            found = list(found.values())
        elif name == "map":
            found = [found.pop("_key"), found]
        assert found == item
    for number, line in expected["samples"].get("lines", {}).items():
        page = store.fetch(handle, offset=int(number), limit=1, format="lines")
        assert (page.content, page.total) == (line, expected["lines"])


@pytest.mark.posix
@pytest.mark.parametrize("name", INTACT)
def test_zstd_reads_a_vector(name: str) -> None:
    assert sha256(decompress(VECTORS / f"{name}.zst")) == expected_of(name)["payload_sha256"]


@pytest.mark.parametrize("name", REFUSED)
def test_everybody_refuses_a_damaged_vector(name: str) -> None:
    data = (VECTORS / f"{name}.zst").read_bytes()
    with pytest.raises(Refused):
        read_stored_file(data)
    with pytest.raises(HandleCorrupt):
        read_all(data)


def read_all(data: bytes) -> bytes:
    """Read a stored file with forebay, and check all of it."""
    source = BytesSource(data)
    footer = read_footer(source)
    assert b"".join(read_verified(source, footer)) == data
    return b"".join(footer.iter_chunks(source))


@pytest.mark.parametrize("name", ["array", "tsv", "latin"])
def test_a_flipped_bit_is_refused_by_both_or_changes_nothing(name: str) -> None:
    intact = (VECTORS / f"{name}.zst").read_bytes()
    payload = read_stored_file(intact).payload
    refused = 0
    for at in range(len(intact)):
        flipped = intact[:at] + bytes([intact[at] ^ 1 << at % 8]) + intact[at + 1 :]
        results: list[bytes | None] = []
        for read in (lambda data: read_stored_file(data).payload, read_all):
            try:
                results.append(read(flipped))
            except (Refused, ForebayError):
                results.append(None)
        assert results in ([None, None], [payload, payload]), at
        refused += results[0] is None
    # Only a few bits of a zstd frame mean nothing.
    assert refused >= len(intact) - 3


def write_from_specification(payload: bytes, meta: dict[str, Any], index: bytes, frame_bytes: int) -> bytes:
    """Build a stored file as docs/format.md says, with a line index."""
    frames, entries = [], []
    for start in range(0, len(payload), frame_bytes):
        chunk = payload[start : start + frame_bytes]
        frame = zstandard.ZstdCompressor(level=9, write_checksum=True).compress(chunk)
        frames.append(frame)
        entries.append((len(frame), len(chunk), xxh64(chunk) & 0xFFFFFFFF))
    parts = [json.dumps(meta).encode(), b"", index]
    size = sum(map(len, parts)) + 20
    entries.append((8 + size, 0, 0x51D8E999))
    table = struct.pack("<II", 0x184D2A5E, 12 * len(entries) + 9)
    table += b"".join(struct.pack("<III", *entry) for entry in entries)
    table += struct.pack("<IBI", len(entries), 0x80, 0x8F92EAB1)
    content = b"".join(parts) + struct.pack("<III", *map(len, parts))
    seal = xxh64(content + bytes(8) + table)
    return b"".join([*frames, struct.pack("<II", 0x184D2A57, size), content, struct.pack("<Q", seal), table])


def varint(number: int) -> bytes:
    head, rest = number & 0x7F, number >> 7
    return bytes([head | 0x80]) + varint(rest) if rest else bytes([head])


def index_lines_from_specification(payload: bytes) -> bytes:
    entries: list[tuple[int, int]] = []
    offset = 0
    lines = payload.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if not entries or entries[-1][0] // 65_536 != offset // 65_536:
            entries.append((offset, number))
        offset += len(line)
    fields = [0, 0, len(payload), len(lines), len(entries)]
    block = item = 0
    for offset, number in entries:
        fields += [offset // 65_536 - block, offset % 65_536, number - item]
        block, item = offset // 65_536, number
    return b"hgi1\x03" + b"".join(map(varint, fields))


def describe_lines(payload: bytes) -> dict[str, Any]:
    return {
        "handle": "oh_BCDEFGHIJKLM",
        "mime_type": "text/plain",
        "size_bytes": len(payload),
        "nature": "text",
        "created_at": make_vectors.NOW,
        "expires_at": make_vectors.NOW + 60,
        **dict.fromkeys(("item_count", "items_path", "outline", "principal", "source_tool")),
    }


@pytest.mark.parametrize("frame_bytes", [1_000, 65_537, 1 << 20])
def test_forebay_reads_a_file_that_was_written_from_the_specification(tmp_path: Path, frame_bytes: int) -> None:
    payload = b"".join(b"%d is a line of %d\n" % (number, number % 7) for number in range(20_000))
    meta = {**describe_lines(payload), "unknown": True}
    handle = meta["handle"]
    stored = write_from_specification(payload, meta, index_lines_from_specification(payload), frame_bytes)
    assert read_stored_file(stored).read_line(19_999) == b"19999 is a line of 0\n"
    (tmp_path / "2027-01-15").mkdir(mode=0o700)
    path = tmp_path / "2027-01-15" / f"{handle}.txt.zst"
    path.write_bytes(stored)
    with store_at(tmp_path, clock=Clock(make_vectors.NOW)) as store:
        assert store.open(handle).read() == decompress(path) == payload
        page = store.fetch(handle, format="lines", offset=12_345, limit=1)
        assert (page.content, page.total) == ("12345 is a line of 4\n", 20_000)
        assert store.search(handle, "7777 is").matches[0]["line"] == 7_777


LINES = b"a\nb\nc\n" * 50
VALUES: list[Any] = [None, "x", "binary", 1, -1, 1.5, 2**64, 1e300, True, [], {}]


def judge(stored: bytes) -> tuple[bool, bool]:
    """Return whether the specification's reader accepts a file, and whether forebay does."""
    verdicts = []
    for read in (read_stored_file, read_all):
        try:
            read(stored)
            verdicts.append(True)
        except (Refused, ForebayError):
            verdicts.append(False)
    return verdicts[0], verdicts[1]


@pytest.mark.parametrize("key", [*describe_lines(b""), "text_bytes", "decoded_from", "note"])
def test_both_refuse_the_same_metadata(key: str) -> None:
    meta, index = describe_lines(LINES), index_lines_from_specification(LINES)
    variants = [{**meta, key: value} for value in VALUES]
    variants.append({name: value for name, value in meta.items() if name != key})
    for variant in variants:
        ours, theirs = judge(write_from_specification(LINES, variant, index, 100))
        assert ours == theirs, variant.get(key)
    assert judge(write_from_specification(LINES, {**meta, key: True}, index, 100)) == (False, False)


CHANGES = st.tuples(st.sampled_from(["change", "insert", "delete"]), st.integers(0, 99), st.integers(0, 255))


@settings(max_examples=300, deadline=None)
@given(st.lists(CHANGES, max_size=3))
def test_both_refuse_the_same_indexes(changes: list[tuple[str, int, int]]) -> None:
    index = bytearray(index_lines_from_specification(LINES))
    for change, at, byte in changes:
        at %= len(index)
        index[at : at + (change != "insert")] = b"" if change == "delete" else bytes([byte])
    ours, theirs = judge(write_from_specification(LINES, describe_lines(LINES), bytes(index), 100))
    assert ours == theirs


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)


def check_stored(folder: Path, payload: bytes, mime_type: str | None) -> StoredFile:
    """Put a payload, and return what the specification's reader finds in the file."""
    with store_at(folder) as store:
        descriptor = store.put(payload, mime_type=mime_type)
        path = file_of(folder, descriptor.output_handle)
        stored = read_stored_file(path.read_bytes())
        path.unlink()
    assert stored.payload == payload
    assert stored.meta["mime_type"] == descriptor.mime_type
    assert stored.meta["item_count"] == descriptor.item_count
    return stored


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@settings(max_examples=40, deadline=None)
@given(st.lists(JSON_VALUES, min_size=1, max_size=6), st.integers(1, 3000), st.sampled_from([None, 1]), st.booleans())
def test_arrays_as_the_specification_says(
    root: Path, values: list[Any], repeat: int, indent: int | None, has_mark: bool
) -> None:
    items = [values[n % len(values)] for n in range(repeat)]
    payload = (b"\xef\xbb\xbf" if has_mark else b"") + json.dumps(items, indent=indent, ensure_ascii=False).encode()
    stored = check_stored(root, payload, "application/json")
    assert stored.items is not None
    assert (stored.items.kind, stored.items.path, stored.items.item_count) == ("array", "", repeat)
    for number in {0, repeat // 2, repeat - 1}:
        assert stored.read_item(number) == items[number]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(JSON_VALUES.filter(bool), min_size=2, max_size=6),
    st.integers(2, 3000),
    st.sampled_from(["\n", "\r\n", "\n \n"]),
)
def test_ndjson_as_the_specification_says(root: Path, values: list[Any], repeat: int, end: str) -> None:
    items = [{"value": values[n % len(values)]} for n in range(repeat)]
    payload = end.join(json.dumps(item, ensure_ascii=False) for item in items).encode()
    stored = check_stored(root, payload, "application/x-ndjson")
    assert stored.items is not None
    assert (stored.items.kind, stored.items.path, stored.items.item_count) == ("ndjson", "", repeat)
    for number in {0, repeat // 2, repeat - 1}:
        assert stored.read_item(number) == items[number]


@settings(max_examples=40, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=6), st.integers(1, 6000), st.sampled_from([None, "gzip", "utf-16"]))
def test_lines_as_the_specification_says(root: Path, values: list[str], repeat: int, coding: str | None) -> None:
    text = "\n".join(["begin", *(values[n % len(values)] for n in range(repeat))])
    payload = text.encode("utf-16" if coding == "utf-16" else "utf-8")
    stored = check_stored(root, gzip.compress(payload) if coding == "gzip" else payload, "text/plain")
    assert stored.content.decode() == text
    assert (stored.text is None) == (coding is None)
    lines = [*io.BytesIO(text.encode())]
    assert stored.lines is not None
    assert (stored.lines.kind, stored.lines.item_count) == ("lines", len(lines))
    for number in {0, len(lines) // 2, len(lines) - 1}:
        assert stored.read_line(number) == lines[number]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(TEXTS, min_size=2, max_size=3), min_size=1, max_size=4), st.integers(1, 3000))
def test_rows_as_the_specification_says(root: Path, values: list[list[str]], repeat: int) -> None:
    table = io.StringIO(newline="")
    csv.writer(table).writerows([["a", "b"], *(values[n % len(values)] for n in range(repeat))])
    payload = table.getvalue().encode()
    stored = check_stored(root, payload, "text/csv")
    rows = [row for row in csv.reader(io.StringIO(table.getvalue(), newline="")) if row][1:]
    assert stored.items is not None
    assert (stored.items.kind, stored.items.path, stored.items.item_count) == ("csv", "", len(rows))
    for number in {0, len(rows) // 2, len(rows) - 1}:
        assert stored.read_item(number) == rows[number]


@settings(max_examples=20, deadline=None)
@given(st.dictionaries(st.text(max_size=9), st.fixed_dictionaries({"a": JSON_VALUES, "b": st.integers()}), min_size=8))
def test_maps_as_the_specification_says(root: Path, entries: dict[str, Any]) -> None:
    stored = check_stored(root, json.dumps({"by": entries}).encode(), None)
    assert stored.items is not None
    assert (stored.items.kind, stored.items.path, stored.items.item_count) == ("map", "/by", len(entries))
    pairs = [*entries.items()]
    for number in {0, len(pairs) // 2, len(pairs) - 1}:
        assert stored.read_item(number) == pairs[number]


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=2000), st.integers(1, 400))
def test_any_bytes_as_the_specification_says(root: Path, data: bytes, repeat: int) -> None:
    check_stored(root, data * repeat, None)
