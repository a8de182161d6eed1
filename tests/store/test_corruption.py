"""Damaged files: a read returns the right bytes or raises one of our errors, never anything else."""

import dataclasses
import itertools
import json
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from faults import opened, redeem, stored_files
from forebay import OPERATOR, ForebayError, HandleCorrupt, HandleNotFound, Store
from forebay.store import frames
from forebay.store import frames as write

FLIPS = [0x01, 0x80, 0xFF]

# Long enough for several frames of `SMALL` bytes, and compressible.
SMALL = 128
ROWS = json.dumps([{"id": i, "name": "row" * 6} for i in range(10)]).encode()
PAYLOADS: dict[str, bytes] = {
    "json": ROWS,
    "wrapped": b'{"total":10,"items":' + ROWS + b"}",
    "ndjson": b"".join(b'{"id":%d,"name":"rowrowrow"}\n' % i for i in range(10)),
    "text": "a line of text, é漢😀 and on\n".encode() * 10,
    "binary": b"\x00\xff\x80\x0a" * 80,
    "empty": b"",
}
VICTIMS = [
    ("json", "zstd", "one frame"),
    ("json", "none", "frames"),
    ("wrapped", "zstd", "frames"),
    ("ndjson", "none", "one frame"),
    ("text", "zstd", "frames"),
    ("binary", "none", "frames"),
    ("binary", "zstd", "one frame"),
    ("empty", "zstd", "one frame"),
]

READS: dict[str, Callable[[Store, str], object]] = {
    "auto": lambda store, handle: store.fetch(handle).to_json(),
    "items": lambda store, handle: store.fetch(handle, offset=4, limit=3, format="items").to_json(),
    "fields": lambda store, handle: store.fetch(handle, offset=5, fields=["id"]).to_json(),
    "path": lambda store, handle: store.fetch(handle, path="/3").to_json(),
    "bytes": lambda store, handle: store.fetch(handle, offset=200, limit=99, format="bytes").to_json(),
    "text": lambda store, handle: store.fetch(handle, format="text", limit=150).to_json(),
    "lines": lambda store, handle: store.fetch(handle, offset=5, format="lines").to_json(),
    "search": lambda store, handle: store.search(handle, "ro", limit=3).to_json(),
    "outline": lambda store, handle: store.outline(handle),
    "get": lambda store, handle: store.get(handle, "/2"),
    "read": lambda store, handle: redeem(store, handle),
    # The size on disk is that of the damaged file.
    "stat": lambda store, handle: dataclasses.replace(store.stat(handle), stored_bytes=0),
}


@dataclasses.dataclass
class Victim:
    """A stored file to damage, and the correct result of every read."""

    store: Store
    handle: str
    path: Path
    intact: bytes
    truth: dict[str, object]
    changes: Iterator[int]

    def read(self, name: str) -> object:
        try:
            return READS[name](self.store, self.handle)
        except ForebayError:
            return None

    def overwrite(self, stored: bytes, *, is_noticed: bool = True) -> None:
        """Change the file; unless `is_noticed`, keep its modification time, as a failing disk would."""
        before = self.path.stat()
        self.path.write_bytes(stored)
        later = next(self.changes) if is_noticed else before.st_mtime_ns
        os.utime(self.path, ns=(later, later))

    def assert_never_wrong(self) -> None:
        for name, right in self.truth.items():
            found = self.read(name)
            assert found is None or found == right, name


@pytest.fixture(params=VICTIMS, ids=" ".join)
def victim(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Victim]:
    name, compression, split = request.param
    if split == "frames":
        monkeypatch.setattr(write, "FRAME_BYTES", SMALL)
    with opened(tmp_path / "store", compression=compression) as store:
        handle = store.put(PAYLOADS[name]).output_handle
        path = stored_files(tmp_path / "store")[handle]
        hurt = Victim(store, handle, path, path.read_bytes(), {}, itertools.count(1_000_000_000, 1_000_000_000))
        hurt.truth = {name: hurt.read(name) for name in READS}
        assert hurt.truth["read"] == PAYLOADS[name]
        yield hurt


@pytest.mark.slow
def test_a_flipped_byte_gives_the_right_bytes_or_an_error(victim: Victim) -> None:
    for at, flip in itertools.product(range(len(victim.intact)), FLIPS):
        hurt = bytearray(victim.intact)
        hurt[at] ^= flip
        victim.overwrite(bytes(hurt))
        victim.assert_never_wrong()
    victim.overwrite(victim.intact)
    assert victim.read("read") == victim.truth["read"]


@pytest.mark.slow
def test_a_byte_flipped_while_the_store_is_open_gives_the_right_bytes_or_an_error(victim: Victim) -> None:
    for at in range(len(victim.intact)):
        victim.overwrite(victim.intact)
        victim.read("stat")
        hurt = bytearray(victim.intact)
        hurt[at] ^= 0x40
        victim.overwrite(bytes(hurt), is_noticed=False)
        victim.assert_never_wrong()


@pytest.mark.slow
def test_a_truncated_file_is_corrupt(victim: Victim) -> None:
    for length in range(len(victim.intact)):
        victim.overwrite(victim.intact[:length])
        victim.assert_never_wrong()
        with pytest.raises(HandleCorrupt):
            victim.store.stat(victim.handle)


@pytest.mark.slow
def test_a_file_that_lost_its_beginning_is_corrupt(victim: Victim) -> None:
    for length in range(1, len(victim.intact)):
        victim.overwrite(victim.intact[length:])
        victim.assert_never_wrong()
        with pytest.raises(HandleCorrupt):
            victim.store.stat(victim.handle)


def test_garbage_before_or_after_a_file_is_noticed(victim: Victim) -> None:
    for garbage in (b"\0", b"\n", b"garbage", bytes(4096), bytes(frames.TAIL_BYTES), victim.intact, victim.intact[-9:]):
        for hurt in (victim.intact + garbage, garbage + victim.intact):
            victim.overwrite(hurt)
            victim.assert_never_wrong()
            with pytest.raises(HandleCorrupt):
                victim.store.stat(victim.handle)


def test_a_corrupt_file_is_kept_by_sweeps_until_it_would_have_expired(victim: Victim) -> None:
    victim.overwrite(victim.intact[:-1])
    os.utime(victim.path)
    report = victim.store.sweep()
    assert (report.corrupt, report.kept, report.expired) == ((victim.handle,), 1, 0)
    victim.overwrite(victim.intact)
    assert victim.read("read") == victim.truth["read"]
    assert victim.store.sweep().corrupt == ()


def test_files_under_each_others_names_are_corrupt(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with opened(root) as store:
        one, two = (store.put(data, principal=who).output_handle for data, who in ((b"one", "ann"), (b"two", "bob")))
        assert (redeem(store, one, "ann"), redeem(store, two, "bob")) == (b"one", b"two")
        files = stored_files(root)
        aside = tmp_path / "aside"
        files[one].rename(aside)
        files[two].rename(files[one])
        aside.rename(files[two])
        for handle, who in itertools.product((one, two), ("ann", "bob", None, OPERATOR)):
            with pytest.raises(HandleCorrupt):
                redeem(store, handle, who)
        assert list(store.list(principal=OPERATOR)) == []
        store.sweep()


def test_a_copy_under_a_new_name_is_corrupt(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as store:
        handle = store.put(b"payload").output_handle
        path = stored_files(tmp_path / "store")[handle]
        path.with_name("oh_ABCDEFGHIJKL.txt.zst").write_bytes(path.read_bytes())
        with pytest.raises(HandleCorrupt):
            store.fetch("oh_ABCDEFGHIJKL")


FORGERIES: dict[str, dict[str, Any]] = {
    "another handle": {"handle": "oh_ABCDEFGHIJKL"},
    "no handle": {"handle": None},
    "another principal": {"principal": ["ann"]},
    "a size too large": {"size_bytes": 1 << 60},
    "a size too small": {"size_bytes": 5},
    "a negative size": {"size_bytes": -1},
    "a size that is text": {"size_bytes": "12"},
    "a nature unknown": {"nature": "gas"},
    "a nature that is not so": {"nature": "binary"},
    "text that is not": {"nature": "text"},
    "no nature": {"nature": None},
    "an expiry that is text": {"expires_at": "tomorrow"},
    "an expiry beyond time": {"expires_at": 1e300},
    "no expiry": {"expires_at": None},
    "a creation beyond time": {"created_at": -1e300},
    "a type that is a list": {"mime_type": []},
    "items that are not": {"item_count": "many", "items_path": 7},
}


def forge(intact: bytes, footer: frames.Footer, meta: object, table: list[frames.SeekEntry]) -> bytes:
    """Write the same payload with another footer, with a valid checksum."""
    body = intact[: footer.frame_offsets[-1]]
    return body + frames.build_footer(meta, footer.items, footer.lines, table)  # type: ignore[arg-type]


def parse_footer(stored: bytes) -> frames.Footer:
    class Whole:
        size = len(stored)

        def read(self, start: int, length: int) -> bytes:
            return stored[start : start + length]

        def read_ahead(self) -> None: ...

    return frames.read_footer(Whole())


def test_forged_metadata_raises_only_forebay_errors(victim: Victim) -> None:
    footer = parse_footer(victim.intact)
    for forgery, forged in FORGERIES.items():
        victim.path.write_bytes(victim.intact)
        victim.overwrite(forge(victim.intact, footer, {**footer.meta, **forged}, list(footer.frames)))
        for name in READS:
            victim.read(name)
        assert victim.read("read") in (None, victim.truth["read"]), forgery
        list(victim.store.list(principal=OPERATOR))
        victim.store.sweep()


def test_incomplete_metadata_is_corrupt(victim: Victim) -> None:
    footer = parse_footer(victim.intact)
    lacking: list[object] = [{name: footer.meta[name] for name in footer.meta if name != key} for key in footer.meta]
    for meta in (None, [], "text", 7, {}, *lacking):
        victim.path.write_bytes(victim.intact)
        victim.overwrite(forge(victim.intact, footer, meta, list(footer.frames)))
        for name in READS:
            assert victim.read(name) is None, name
        victim.store.sweep()


def test_a_forged_table_never_gives_wrong_bytes(victim: Victim) -> None:
    footer = parse_footer(victim.intact)
    true = list(footer.frames)
    tables = [
        *([entry._replace(plain_bytes=plain) for entry in true] for plain in (0, 1, 0xFFFFFFFF)),
        [entry._replace(plain_bytes=entry.plain_bytes + 1) for entry in true],
        [entry._replace(checksum=entry.checksum ^ 1) for entry in true],
        [*true[1:], *true[:1]],
        true[:-1],
        [*true, frames.SeekEntry(0, 0, 0)],
        [frames.SeekEntry(0, 0, 0), *true],
        [frames.SeekEntry(0, 5, 0), *true],
        [frames.SeekEntry(sum(entry.stored_bytes for entry in true), sum(entry.plain_bytes for entry in true), 0)],
    ]
    for table in tables:
        victim.overwrite(forge(victim.intact, footer, footer.meta, table))
        victim.assert_never_wrong()


def test_swapped_frames_are_noticed(tmp_path: Path) -> None:
    with opened(tmp_path / "store", compression="none") as store:
        first, second, last = (bytes([letter]) * frames.FRAME_BYTES for letter in b"abc")
        handle = store.put(first + second + last).output_handle
        (path,) = stored_files(tmp_path / "store").values()
        intact = path.read_bytes()
        _, one, two, _ = parse_footer(intact).frame_offsets
        assert two - one == one, "each is whole, as long as the other, and has a checksum that is right"
        path.write_bytes(intact[one:two] + intact[:one] + intact[two:])
        for offset in (0, frames.FRAME_BYTES):
            with pytest.raises(HandleCorrupt):
                store.fetch(handle, offset=offset, limit=100, format="bytes")
        assert store.fetch(handle, offset=2 * frames.FRAME_BYTES, limit=3, format="bytes").content == "Y2Nj"


def test_a_table_that_claims_more_frames_than_there_are_is_corrupt(victim: Victim) -> None:
    for count in (0, 1, 1000, 0x7FFFFFFF, 0xFFFFFFFF):
        hurt = victim.intact[:-9] + struct.pack("<IBI", count, 0x80, 0x8F92EAB1)
        if hurt != victim.intact:
            victim.overwrite(hurt)
            with pytest.raises(HandleCorrupt):
                victim.store.stat(victim.handle)


def test_a_sweep_removes_a_corrupt_file_but_its_principal_cannot(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with opened(root) as store:
        handle = store.put(b"payload", principal="ann").output_handle
    path = stored_files(root)[handle]
    path.write_bytes(b"gone")
    with opened(root, clock=lambda: path.stat().st_mtime + 25 * 3600 if path.exists() else 0.0) as store:
        with pytest.raises(HandleCorrupt):
            store.delete(handle, principal="ann")
        assert store.sweep().expired == 1
        with pytest.raises(HandleNotFound):
            store.delete(handle, principal="ann")


def test_valid_lines_of_a_damaged_journal_are_read(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as store:
        store.put(b"payload")
        (journal,) = (tmp_path / "store" / "journal").iterdir()
        whole = journal.read_bytes()
        for at in range(len(whole)):
            for hurt in (
                whole[:at],
                whole[:at] + b"\xff" + whole[at + 1 :],
                whole[:at] + b"\n[1]\nnull\n" + whole[at:],
            ):
                journal.write_bytes(hurt + whole)
                assert len(store.journal.recent()) >= 1 or not hurt.endswith(b"\n")
                store.journal.summary()
        for odd in ({"size_bytes": "x"}, {"size_bytes": 1, "shown_bytes": "x"}, {"size_bytes": 1, "shown_bytes": [1]}):
            journal.write_bytes(orjson.dumps({"event": "output_handle_created", **odd}))
            store.journal.summary()
        journal.write_bytes(orjson.dumps({"event": "output_handle_fetched", "returned_bytes": {}}))
        store.journal.summary()
