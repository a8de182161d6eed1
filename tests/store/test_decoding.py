"""gzip, UTF-16 and Windows-1252 are read as text, and their bytes stay what was put."""

import base64
import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forebay import InvalidFormat, RedactionFailed, Store
from forebay.outputs.contract import retrieve_artifact, store_artifact
from forebay.store import decoding, redaction
from forebay.store.payload import CHUNK_BYTES
from hypothesis import given
from hypothesis import strategies as st
from stores import content, decompress, file_of, pages, payload_files, store_at, whole

TEXT = "Größe: naïve café\nzweite Zeile, déjà vu\n" * 40
ROWS = [{"id": i, "name": f"Nr {i}"} for i in range(500)]
JSON = json.dumps(ROWS).encode()

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=300)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store_at(tmp_path_factory.mktemp("store")) as store:
        yield store


def read_text(store: Store, handle: str, **ask: Any) -> str:
    return "".join(content(page) for page in pages(store, handle, format="text", **ask))


CASES = {
    "utf-16-le": (b"\xff\xfe" + TEXT.encode("utf-16-le"), None),
    "utf-16-be": (b"\xfe\xff" + TEXT.encode("utf-16-be"), None),
    "windows-1252": ((TEXT + "€„“").encode("cp1252"), None),
    "shift_jis": ("日本語\n".encode("shift_jis") * 9, "text/plain; charset=Shift_JIS"),
    "iso8859-2": ("zażółć gęślą jaźń\n".encode("iso8859-2"), 'text/plain; charset="iso-8859-2"'),
    "gzip": (gzip.compress(TEXT.encode()), None),
    "gzip of utf-16-le": (gzip.compress(b"\xff\xfe" + TEXT.encode("utf-16-le")), None),
    "gzip of windows-1252": (gzip.compress(TEXT.encode("cp1252")), "application/gzip"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("is_streamed", [False, True])
def test_text_is_decoded_and_the_bytes_stay(name: str, is_streamed: bool, store: Store) -> None:
    data, mime_type = CASES[name]
    plain = gzip.decompress(data) if name.startswith("gzip") else data
    charset = name.removeprefix("gzip").removeprefix(" of ") or "utf-8"
    text = plain.decode(charset).removeprefix("\ufeff")
    descriptor = store.put(iter([data[:1], data[1:]]) if is_streamed else data, mime_type=mime_type)
    handle = descriptor.output_handle
    assert (descriptor.decoded_from, descriptor.size_bytes) == (name, len(data))
    assert descriptor.line_count == text.count("\n") + (not text.endswith("\n"))
    assert descriptor.preview is not None
    assert text.startswith(descriptor.preview)
    assert read_text(store, handle, max_bytes=700) == text
    assert "".join(content(page) for page in pages(store, handle, format="lines", limit=7)) == text
    assert store.fetch(handle).decoded_from == json.loads(store.fetch(handle).to_json())["decoded_from"] == name
    found = store.search(handle, text.split()[0])
    assert found.decoded_from == name
    assert found.matches[0]["context"].startswith(text.split()[0])
    assert b"".join(content(page) for page in pages(store, handle, format="bytes", max_bytes=700)) == data
    assert store.fetch(handle, format="bytes").decoded_from is None
    assert whole(store, handle) == data
    assert store.stat(handle).decoded_from == name
    assert decompress(file_of(store.folder, handle)) == data  # type: ignore[arg-type]


@given(texts, st.sampled_from(["utf-16-le", "utf-16-be"]), st.booleans())
def test_decoding_equals_pythons(store: Store, text: str, charset: str, is_zipped: bool) -> None:
    data = "\ufeff".encode(charset) + text.encode(charset)
    descriptor = store.put(gzip.compress(data) if is_zipped else data)
    assert descriptor.decoded_from == ("gzip of " if is_zipped else "") + charset
    assert read_text(store, descriptor.output_handle) == text


@pytest.mark.parametrize("encode", [lambda data: gzip.compress(data), lambda data: data.decode().encode("utf-16")])
def test_json_inside_has_items(encode: Any, store: Store) -> None:
    descriptor = store.put(encode(JSON))
    handle = descriptor.output_handle
    assert (descriptor.mime_type, descriptor.item_count, descriptor.items_path) == ("application/json", 500, "")
    assert descriptor.outline == "[{id: int, name: str}] ×500"
    assert store.fetch(handle, offset=499, fields=["id"]).content == b'[{"id":499}]'
    assert json.loads(store.get(handle, "/7/name")) == "Nr 7"
    assert store.search(handle, "Nr 77").matches[0]["item"] == 77
    assert retrieve_artifact(store_artifact("a", "b", encode(JSON), store=store), store=store) == ROWS


def test_large_streams_are_decoded_from_what_was_stored(store: Store) -> None:
    lines = [base64.b64encode(zlib.crc32(b"%d" % i).to_bytes(4, "big") * 9) for i in range(60_000)]
    data = b"\n".join(lines)
    assert len(data) > 2 * CHUNK_BYTES
    zipped = gzip.compress(data, 1)
    assert len(zipped) > CHUNK_BYTES // 2
    handle = store.put(iter([zipped])).output_handle
    assert store.fetch(handle, format="lines", offset=59_999).content == lines[-1].decode()
    handle = store.put(iter([data.decode().encode("utf-16")])).output_handle
    assert store.fetch(handle, format="lines", offset=59_999).content == lines[-1].decode()
    assert whole(store, handle) == data.decode().encode("utf-16")


def test_all_members_of_a_gzip_file_are_read(store: Store) -> None:
    members = [gzip.compress(b"one\n"), gzip.compress(b""), gzip.compress(b"two\n"), bytes(512)]
    assert read_text(store, store.put(b"".join(members)).output_handle) == "one\ntwo\n"


def test_many_members_are_not_copied_again_and_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fed_bytes = 0

    class CountingZlib:
        error = zlib.error

        def decompressobj(self, window_bits: int) -> Any:
            decompressor = zlib.decompressobj(window_bits)

            class Counting:
                def decompress(self, data: bytes, max_length: int) -> bytes:
                    nonlocal fed_bytes
                    fed_bytes += len(data)
                    return decompressor.decompress(data, max_length)

                def __getattr__(self, name: str) -> Any:
                    return getattr(decompressor, name)

            return Counting()

    monkeypatch.setattr(decoding, "zlib", CountingZlib())
    count = 4000
    member = gzip.compress(b"a")
    assert read_text(store, store.put(member * count).output_handle) == "a" * count
    # The payload is read twice: to find out what it is, and to store its text.
    assert fed_bytes <= 2 * count * (16 << 10)


@pytest.mark.parametrize("data", [gzip.compress(b"", mtime=0), b"\xff\xfe"])
def test_no_text_at_all(data: bytes, store: Store) -> None:
    descriptor = store.put(data)
    assert (descriptor.line_count, descriptor.preview) == (0, "")
    page = store.fetch(descriptor.output_handle)
    assert (page.content, page.total, page.eof) == ("", 0, True)
    assert store.search(descriptor.output_handle, "x").matches == ()
    assert whole(store, descriptor.output_handle) == data


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 5000,
        bytes(range(256)),
        b"\xff\xfe" + b"\x00\xd8" * 50,
        b"\xff\xfea",
        "Привет, мир и всё остальное".encode("cp1251"),
        "日本語の文章です".encode("shift_jis"),
        "broken UTF-8 stays binary: naïve ".encode() + b"\xc3",
        b"\x1b[1mcaf\xe9\x1b[0m",
        gzip.compress(bytes(range(256)) * 100, mtime=0),
    ],
)
def test_anything_else_stays_binary(data: bytes, store: Store) -> None:
    descriptor = store.put(data)
    assert (descriptor.decoded_from, descriptor.preview, descriptor.line_count) == (None, None, None)
    assert whole(store, descriptor.output_handle) == data
    with pytest.raises(InvalidFormat):
        store.fetch(descriptor.output_handle, format="text")


def test_valid_utf8_is_read_as_utf8_whatever_charset_is_declared(store: Store) -> None:
    descriptor = store.put("café", mime_type="text/plain; charset=iso-8859-1")
    assert (descriptor.decoded_from, descriptor.preview) == (None, "café")


def make_bomb() -> bytes:
    return gzip.compress(bytes(64 << 20), 9)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (make_bomb, "expands to more than 200 times its size"),
        (lambda: gzip.compress(TEXT.encode())[:-9], "ends too early"),
        (lambda: gzip.compress(TEXT.encode()) + b"garbage", "is damaged"),
    ],
    ids=["bomb", "cut", "damaged"],
)
def test_gzip_that_cannot_be_opened_is_kept_with_a_note(make: Any, reason: str, store: Store, tmp_path: Path) -> None:
    data = make()
    descriptor = store.put(data)
    assert (descriptor.mime_type, descriptor.note) == ("application/gzip", f"not opened: this gzip payload {reason}")
    assert whole(store, descriptor.output_handle) == data
    with store_at(tmp_path / "redacting", redact="secret") as redacting:
        with pytest.raises(RedactionFailed, match=reason):
            redacting.put(data)
        assert payload_files(tmp_path / "redacting") == []


def test_the_size_of_the_text_is_limited(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "_MAX_DECODED_BYTES", 5000)
    assert store.put(gzip.compress(b"x\n" * 2500)).decoded_from == "gzip"
    assert "more than 5,000 bytes" in str(store.put(gzip.compress(b"x\n" * 2501)).note)


def test_text_is_redacted_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_MAX_UNZIPPED_BYTES", 5000)
    with store_at(tmp_path, redact="secret") as store:
        assert store.put(gzip.compress(b"x\n" * 2500)).decoded_from == "gzip"
        with pytest.raises(RedactionFailed, match="more than 5,000 bytes"):
            store.put(gzip.compress(b"x\n" * 2501))
        # The limit is for what a small payload expands to.
        assert store.put(("x\n" * 9000).encode("utf-16")).decoded_from == "utf-16-le"


SECRET = b"hunter2-correct-horse".decode()


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: ("\ufeff" + text).encode(),
        lambda text: text.encode("utf-16"),
        lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
        lambda text: text.encode("cp1252"),
        lambda text: gzip.compress(text.encode()),
        lambda text: gzip.compress(text.encode("utf-16")),
        lambda text: gzip.compress(text.encode("cp1252")),
    ],
    ids=["bom", "utf-16", "utf-16-be", "windows-1252", "gzip", "gzip utf-16", "gzip windows-1252"],
)
@pytest.mark.parametrize("is_json", [False, True])
def test_secrets_are_removed_from_decoded_text(encode: Any, is_json: bool, tmp_path: Path) -> None:
    # In JSON the secret is escaped, so that only a reader of the decoded document finds it.
    text = (
        json.dumps({"pässword": SECRET}, ensure_ascii=False).replace("h", "\\u0068")
        if is_json
        else f"pässword={SECRET}"
    )
    data = encode(text)
    for redact in (SECRET, lambda found: found.replace(SECRET.encode(), b"[redacted]")):
        root = tmp_path / f"store{callable(redact)}"
        with store_at(root, redact=redact, compression="none") as store:
            descriptor = store.put(iter([data]), source_tool="tool")
            handle = descriptor.output_handle
            assert "[redacted]" in read_text(store, handle)
            assert store.search(handle, "hunter2|correct", regex=True).matches == ()
            kept = whole(store, handle)
            for seen in (kept, descriptor.to_json(), *(path.read_bytes() for path in payload_files(root))):
                for charset in ("utf-8", "utf-16-le", "utf-16-be"):
                    assert SECRET[1:7].encode(charset) not in seen
            assert not kept.startswith(b"\x1f\x8b")


def test_text_without_secrets_is_kept_as_it_was_put(tmp_path: Path) -> None:
    with store_at(tmp_path, redact=SECRET) as store:
        for data, mime_type in CASES.values():
            descriptor = store.put(data, mime_type=mime_type)
            assert descriptor.decoded_from is not None
            assert whole(store, descriptor.output_handle) == data


def test_what_is_left_of_gzip_without_secrets_is_text(tmp_path: Path) -> None:
    with store_at(tmp_path, redact=SECRET) as store:
        data = json.dumps([{"a": SECRET}] * 9).encode()
        descriptor = store.put(gzip.compress(data), mime_type="application/gzip")
        assert (descriptor.mime_type, descriptor.item_count) == ("application/json", 9)
        assert file_of(tmp_path, descriptor.output_handle).suffixes == [".json", ".zst"]
