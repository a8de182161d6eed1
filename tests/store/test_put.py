"""Every payload comes back byte for byte, with the right MIME type."""

import contextlib
import dataclasses
import gzip
import io
import json
import mmap
import sys
from collections import deque
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import forebay
import pytest
import pyzstd
from forebay import InvalidArgument, Store
from forebay.store.frames import FRAME_BYTES
from forebay.store.payload import CHUNK_BYTES
from hypothesis import given
from hypothesis import strategies as st
from peak import measured
from stores import decompress, file_of, noise, payload_files, store_at, whole

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(range(256)) * 8
SIZES = sorted(
    {
        0,
        1,
        *(
            size + more
            for size in (FRAME_BYTES, CHUNK_BYTES, CHUNK_BYTES + FRAME_BYTES, 3 * CHUNK_BYTES)
            for more in (-1, 0, 1)
        ),
    }
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def store(root: Path) -> Iterator[Store]:
    with store_at(root) as opened:
        yield opened


def sample(size: int) -> bytes:
    """Return text that is compressible but nowhere repeats exactly."""
    lines = b"".join(b'{"id":%d,"name":"item %d"}\n' % (i, i * 7919) for i in range(size // 24 + 1))
    return lines[:size]


def iter_pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Model:
    """An object with the `model_dump` of a pydantic model."""

    def model_dump(self, *, mode: str) -> dict[str, str]:
        return {"mode": mode}


@pytest.mark.parametrize(
    ("payload", "stored"),
    [
        ({"a": [1, 2.5, None, True, "é"]}, '{"a":[1,2.5,null,true,"é"]}'),
        ([], "[]"),
        ((1, 2), "[1,2]"),
        ({1: "one"}, '{"1":"one"}'),
        (Point(1, 2), '{"x":1,"y":2}'),
        ([Model()], '[{"mode":"json"}]'),
        (None, "null"),
        (5, "5"),
        (True, "true"),
        ("plain text", "plain text"),
        ("", ""),
        ("漢字 😀\r\n\x01", "漢字 😀\r\n\x01"),
        ([Decimal("1.50"), {1}, frozenset("a"), deque([2])], '["1.50",[1],["a"],[2]]'),
        ({"path": Path("x")}, '{"path":"x"}'),
    ],
)
@pytest.mark.parametrize("has_pydantic", [True, False])
def test_objects_and_text(
    payload: object, stored: str, has_pydantic: bool, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_pydantic:
        monkeypatch.setitem(sys.modules, "pydantic_core", None)
    descriptor = store.put(payload)
    assert whole(store, descriptor.output_handle) == stored.encode()
    assert descriptor.size_bytes == len(stored.encode())


def test_a_lone_surrogate_is_kept_but_is_not_text(store: Store) -> None:
    descriptor = store.put("half a pair: \ud83d")
    assert descriptor.mime_type == "application/octet-stream"
    assert descriptor.preview is None
    assert whole(store, descriptor.output_handle) == b"half a pair: \xed\xa0\xbd"


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 1, 1000, FRAME_BYTES + 1, 2 * CHUNK_BYTES + 7])
def test_every_kind_of_bytes_is_stored_unchanged(size: int, store: Store, tmp_path: Path) -> None:
    data = sample(size)
    path = tmp_path / "payload"
    path.write_bytes(data)
    with contextlib.ExitStack() as files:
        kinds: list[object] = [
            data,
            bytearray(data),
            memoryview(data),
            memoryview(bytearray(data)),
            io.BytesIO(data),
            files.enter_context(path.open("rb")),
            files.enter_context(path.open("rb", buffering=0)),
            iter([data]),
            iter([b"", data, b""]),
            iter_pieces(data, 997),
            iter([memoryview(data)[: size // 2], bytearray(data[size // 2 :])]),
        ]
        if size:
            file = files.enter_context(path.open("rb"))
            kinds.append(files.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
            kinds.append(files.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)))
        descriptors = [store.put(kind) for kind in kinds]
        # Leaving the block closes the maps, which fails if a buffer of them is still in use.
    assert all(whole(store, descriptor.output_handle) == data for descriptor in descriptors)
    assert len({(one.mime_type, one.size_bytes, one.item_count, one.preview) for one in descriptors}) == 1


def test_a_file_is_read_from_its_current_position(store: Store) -> None:
    file = io.BytesIO(b"head and rest")
    file.seek(5)
    assert whole(store, store.put(file).output_handle) == b"and rest"


def test_chunks_may_be_text(store: Store) -> None:
    assert whole(store, store.put(io.StringIO("é\nb")).output_handle) == "é\nb".encode()
    assert whole(store, store.put(iter(["é", "\n", "b"])).output_handle) == "é\nb".encode()


@pytest.mark.parametrize("rare", ["é", "漢", "🚀", "\ud83d"])
@pytest.mark.parametrize("shape", ['["%s",null]', '{"text":"%s","number":1,"list":[1,2]}', "text: %s"])
def test_a_long_text_is_stored_as_its_bytes_are(shape: str, rare: str, store: Store) -> None:
    text = shape % "".join(f"row {number} {rare * (number % 3)}, " for number in range(100_000))
    data = text.encode("utf-8", "surrogatepass")
    assert len(text) > CHUNK_BYTES
    by_text, by_bytes = (store.put(payload) for payload in (text, data))
    assert whole(store, by_text.output_handle) == data
    same_name = {"output_handle": by_bytes.output_handle, "expires_at": by_bytes.expires_at}
    assert by_text.to_dict() | same_name == by_bytes.to_dict()


@given(st.lists(st.binary(max_size=300), max_size=12))
def test_chunks_of_any_size_make_one_payload(store: Store, chunks: list[bytes]) -> None:
    handle = store.put(iter(chunks)).output_handle
    assert whole(store, handle) == b"".join(chunks)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("compression", ["zstd", "none"])
@pytest.mark.parametrize("make", [sample, noise])
def test_round_trip_three_ways(size: int, compression: str, make: Callable[[int], bytes], tmp_path: Path) -> None:
    data = make(size)
    with store_at(tmp_path / "store", compression=compression) as store:
        handle = store.put(iter_pieces(data, 99_991)).output_handle
        assert whole(store, handle) == data
    path = file_of(tmp_path / "store", handle)
    assert decompress(path) == data
    with pyzstd.SeekableZstdFile(path) as file:
        assert file.read() == data
        # The metadata frame has an entry in the seek table, with no payload bytes.
        assert file.seek(0, io.SEEK_END) == size
        if size > 2:
            file.seek(size - 2)
            assert file.read() == data[-2:]


def test_payloads_are_compressed_unless_compression_is_none(tmp_path: Path) -> None:
    data = sample(2 * CHUNK_BYTES)
    sizes = {}
    for compression in ("zstd", "none"):
        with store_at(tmp_path / compression, compression=compression) as store:
            sizes[compression] = store.stat(store.put(data).output_handle).stored_bytes
    assert sizes["zstd"] < len(data) // 3
    assert len(data) <= sizes["none"] < len(data) * 1.01


@pytest.mark.parametrize("size", [1000, FRAME_BYTES, 3 * CHUNK_BYTES])
def test_incompressible_payloads_have_little_overhead(size: int, store: Store) -> None:
    stored = store.stat(store.put(noise(size)).output_handle)
    assert size <= stored.stored_bytes <= size * 1.01 + 1024


def test_compressed_payloads_are_not_compressed_again(store: Store) -> None:
    # The zeros would compress, but the header of a PNG is trusted.
    data = PNG + bytes(2 * CHUNK_BYTES)
    assert store.stat(store.put(data).output_handle).stored_bytes >= len(data)


@pytest.mark.parametrize(
    ("payload", "mime_type", "items"),
    [
        (b"[1,2,3]", "application/json", 3),
        (b' \n {"items": [1, 2], "count": 2}\n', "application/json", 2),
        (b'{"a": 1}', "application/json", None),
        (b"[]", "application/json", 0),
        (b"{}", "application/json", None),
        (b'{"a":1}\n{"a":2}\n', "application/x-ndjson", 2),
        (b"[1]\n\n[2]", "application/x-ndjson", 2),
        (b"[123456789012345678901234567890123456789, 1e999]", "application/json", 2),
        (b"# Title\n\ntext", "text/markdown", None),
        (b"intro\n\n## Part\n", "text/markdown", None),
        (b"run:\n```\nx = 1\n```\n", "text/markdown", None),
        (b"plain # not a heading", "text/plain", None),
        (b"#hashtag", "text/plain", None),
        ("漢字".encode(), "text/plain", None),
        (b"", "text/plain", None),
        (b"12", "text/plain", None),
        (b"true", "text/plain", None),
        (b'"quoted"', "text/plain", None),
        (b"[1,2", "text/plain", None),
        (b'{"a": 01}', "text/plain", None),
        (b"[1,2]x", "text/plain", None),
        (b"{'a': 1}", "text/plain", None),
        (b"[INFO] started", "text/plain", None),
        (b'["\xff"]', "application/octet-stream", None),
        (b"text\x00with a nul", "application/octet-stream", None),
        (b"\xffnot utf-8", "application/octet-stream", None),
        (gzip.compress(b"\0", mtime=0), "application/gzip", None),
        (gzip.compress(b"x", mtime=0), "text/plain", None),
        (PNG, "image/png", None),
        (JPEG, "image/jpeg", None),
        (b"GIF89a\xff\x00", "image/gif", None),
        (b"RIFF\xff\x00\x00\x00WEBPVP8 ", "image/webp", None),
        (b"%PDF-1.7\n\xff\x00", "application/pdf", None),
        (b"PK\x03\x04\xff", "application/zip", None),
        (b"\x28\xb5\x2f\xfd\xff", "application/zstd", None),
    ],
)
def test_the_mime_type_is_detected(payload: bytes, mime_type: str, items: int | None, store: Store) -> None:
    for kind in (payload, iter_pieces(payload, 1)):
        descriptor = store.put(kind)
        assert (descriptor.mime_type, descriptor.item_count) == (mime_type, items)
        assert whole(store, descriptor.output_handle) == payload


def test_a_path_is_refused_as_a_payload(tmp_path: Path, store: Store) -> None:
    with pytest.raises(forebay.InvalidArgument, match=r'pass open\(path, "rb"\)'):
        store.put(tmp_path)


@pytest.mark.parametrize("value", [None, True, 42, 1.5, [], {}, ["a"], 10**40, {"n": [-(2**70), "é"]}, ["\ud800"]])
def test_any_object_is_stored_as_json(value: object, store: Store) -> None:
    descriptor = store.put(value)
    assert descriptor.mime_type == "application/json"
    assert store.stat(descriptor.output_handle).nature == "json"
    assert json.loads(store.get(descriptor.output_handle, "")) == value


@pytest.mark.parametrize(
    ("given_type", "payload", "mime_type", "items"),
    [
        ("application/json", b"[1]", "application/json", 1),
        ("application/json", b"12", "application/json", None),
        ("application/json", b"nonsense", "text/plain", None),
        ("application/json", b"# nonsense", "text/markdown", None),
        ("application/json", b"[1\xff]", "application/octet-stream", None),
        ("application/json", b"", "text/plain", None),
        ("application/geo+json; charset=utf-8", b"[1]", "application/geo+json; charset=utf-8", 1),
        ("application/x-ndjson", b"1\n2\n", "application/x-ndjson", 2),
        ("text/plain", b"[1,2]", "text/plain", None),
        ("text/csv", b"a,b\n1,2\n", "text/csv", 1),
        ("text/plain", b"\xff\x00", "text/plain", None),
        ("image/svg+xml", b"<svg/>", "image/svg+xml", None),
        ("application/x-own", b"\xff\x00", "application/x-own", None),
    ],
)
def test_a_given_mime_type_is_kept_unless_it_wrongly_says_json(
    given_type: str, payload: bytes, mime_type: str, items: int | None, store: Store
) -> None:
    descriptor = store.put(payload, mime_type=given_type)
    assert (descriptor.mime_type, descriptor.item_count) == (mime_type, items)
    assert whole(store, descriptor.output_handle) == payload


@pytest.mark.parametrize("nonsense", ["", "x", "a/b\n", "text/plain\x00", "é/é", "a/" + "b" * 5000, "a/b; \ud800"])
def test_an_invalid_mime_type_is_ignored(nonsense: str, store: Store) -> None:
    assert store.put(b"[1]", mime_type=nonsense).mime_type == "application/json"


def test_the_stored_file_has_a_readable_extension(root: Path, store: Store) -> None:
    named = {
        kind: file_of(root, store.put(payload).output_handle).name.split(".")[1]
        for kind, payload in {
            "json": b"[1]",
            "md": b"# a",
            "txt": b"a",
            "png": PNG,
            "gz": gzip.compress(b""),
            "bin": b"\xff",
        }.items()
    }
    assert all(kind == extension for kind, extension in named.items())


@pytest.mark.parametrize(
    "payload",
    [object(), [object()], {"a": {object()}}, [b"bytes"], lambda: 1, memoryview(b"abcd")[::2]],
)
def test_an_object_that_json_cannot_represent_is_a_clear_error(payload: object, tmp_path: Path) -> None:
    says = r"cannot be written as JSON .*; pass bytes, text, an open binary file"
    with store_at(tmp_path / "store") as store, pytest.raises(InvalidArgument, match=says):
        store.put(payload)
    assert payload_files(tmp_path / "store") == []


def test_a_payload_that_contains_itself_is_a_clear_error(store: Store) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidArgument, match="cannot be written as JSON"):
        store.put(endless)


@pytest.mark.parametrize("chunks", [[1], [b"a", None], [b"a" * CHUNK_BYTES, 5]], ids=["int", "None", "late"])
def test_a_chunk_of_the_wrong_type_is_a_clear_error(chunks: list[Any], tmp_path: Path) -> None:
    with (
        store_at(tmp_path / "store") as store,
        pytest.raises(InvalidArgument, match="a chunk of a payload is bytes or"),
    ):
        store.put(iter(chunks))
    assert payload_files(tmp_path / "store") == []


@pytest.mark.slow
@pytest.mark.parametrize("good", [0, 1, FRAME_BYTES, 3 * CHUNK_BYTES, 20 * CHUNK_BYTES])
def test_an_iterator_that_fails_in_the_middle_stores_nothing(good: int, tmp_path: Path) -> None:
    def failing() -> Iterator[bytes]:
        yield sample(good)
        raise ConnectionResetError("upstream is gone")

    with store_at(tmp_path / "store") as store:
        with pytest.raises(ConnectionResetError, match="upstream is gone"):
            store.put(failing())
        assert list(store.list(principal=forebay.OPERATOR)) == []
        assert payload_files(tmp_path / "store") == []
        # Later puts work as usual.
        assert whole(store, store.put(b"next").output_handle) == b"next"


@pytest.mark.parametrize("size", [1, FRAME_BYTES, FRAME_BYTES + 1, 12 * CHUNK_BYTES + 5])
def test_progress_increases_up_to_the_size_of_the_payload(size: int, store: Store) -> None:
    reported: list[int] = []
    store.put(iter_pieces(sample(size), 12_345), progress=reported.append)
    assert reported == sorted(set(reported))
    assert reported[-1] == size


@pytest.mark.slow
def test_an_error_in_the_progress_function_stops_a_put(tmp_path: Path) -> None:
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with store_at(tmp_path / "store") as store, pytest.raises(KeyboardInterrupt):
        store.put(sample(20 * CHUNK_BYTES), progress=stop)
    assert payload_files(tmp_path / "store") == []


def test_a_principal_or_tool_with_a_lone_surrogate_is_refused(tmp_path: Path) -> None:
    with store_at(tmp_path / "store") as store:
        for name in ("principal", "source_tool"):
            with pytest.raises(InvalidArgument, match=name):
                store.put(b"x", **{name: "\ud800"})  # type: ignore[arg-type]
    assert payload_files(tmp_path / "store") == []


def test_the_descriptor_describes_the_payload(store: Store) -> None:
    descriptor = store.put({"rows": [{"id": i} for i in range(1000)]}, source_tool="list_rows")
    fields = json.loads(descriptor.to_json())
    assert list(fields) == [
        "output_handle", "mime_type", "size_bytes", "item_count", "preview_items", "preview", "expires_at",
        "fetch_with", "items_path", "outline",
    ]  # fmt: skip
    assert fields["item_count"] == 1000
    assert fields["items_path"] == "/rows"
    assert fields["outline"] == "{rows: [{id: int}] ×1000}"
    assert fields["preview"].startswith('{"rows":[{"id":0},')
    assert fields["fetch_with"] == "output_fetch"


def test_a_streamed_payload_has_the_same_items_and_a_similar_outline(store: Store) -> None:
    data = json.dumps([{"id": i, "name": f"n{i}"} for i in range(200_000)]).encode()
    assert len(data) > 3 * CHUNK_BYTES
    streamed, put_whole = store.put(iter_pieces(data, 70_001)), store.put(data)
    assert streamed.outline == put_whole.outline == "[{id: int, name: str}] ×200000"
    assert streamed.item_count == put_whole.item_count == 200_000


MEASURE = """
import forebay


def chunks(count):
    # Produced faster than they can be compressed, so that they would pile up.
    chunk = b"".join(b'{"id":%d,"name":"item %d of a long list","tags":["a","b"]}\\n' % (i, i) for i in range(20_000))
    return (bytes(bytearray(chunk)) for _ in range(count))


with forebay.open_store(sys.argv[1], sweep_interval=0) as store:
    store.put(chunks(1))
    before = peak()
    descriptor = store.put(chunks(250))
    print(peak() - before, descriptor.size_bytes, descriptor.item_count)
"""


@pytest.mark.posix
@pytest.mark.slow
def test_a_payload_larger_than_memory_can_be_stored(tmp_path: Path) -> None:
    grown, size, items = measured(MEASURE, (tmp_path / "store").as_uri())
    assert size > 280_000_000
    assert items == 5_000_000
    assert grown <= 64 << 20
