"""Putting what references name in their place, against doing so plainly on trees where nothing is hidden."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from documents import values
from forebay import (
    FileRefDenied,
    FileRefNotFound,
    FileRefTooLarge,
    ForebayError,
    InvalidArgument,
    InvalidFormat,
    InvalidJSON,
    Store,
)
from forebay.outputs.references.resolver import ReferenceResolver, ResolvedValue, escape_text, to_fragments, to_objects
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference_values import escape, marked
from stores import events, store_at
from texts import NASTY, nasty_text

FILES = {
    "plain": "some text\nof three\nlines",
    "empty": "",
    "nasty": NASTY.replace("\x00", ""),
    "marked": "\ufefftext",
    "reference": '{"$file": "plain"}',
    "object": '{"a": [1, 2.50, 123456789012345678901234567890],\r\n "b": "\\u00e9\\n"}\n',
    "array": " [1,\n 2]",
    "word": '"w"',
}

SCHEMA = {"properties": {"text": {"type": "string"}, "json": {"type": ["object", "array"]}}}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    for name, text in FILES.items():
        (root / name).write_bytes(text.encode())
    return root


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with store_at(tmp_path / "store") as store:
        yield store


@pytest.fixture
def references(store: Store, root: Path) -> ReferenceResolver:
    return ReferenceResolver(store, [root])


def naive_resolve(arguments: Any, path: tuple[str | int, ...] = ()) -> Any:
    """For arguments of which the first key says what is wanted below it."""
    if isinstance(arguments, list):
        return [naive_resolve(inner, (*path, number)) for number, inner in enumerate(arguments)]
    if not isinstance(arguments, dict):
        return arguments
    if "$file" not in arguments:
        return {key.replace("$$", "$"): naive_resolve(inner, (*path, key)) for key, inner in arguments.items()}
    data = FILES[arguments["$file"]].encode()
    if "lines" in arguments:
        first, end = arguments["lines"]
        data = b"".join([line + b"\n" for line in data.split(b"\n")][first:end]).removesuffix(
            b"\n" * (end >= data.count(b"\n") + 1 > first)
        )
    start = arguments.get("offset", 0)
    data = data[start : start + arguments.get("length", 10**9)]
    if arguments.get("encoding") == "base64":
        return base64.b64encode(data).decode()
    return json.loads(data) if path == ("json",) else data.decode()


lines = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(sorted)

of_text = st.fixed_dictionaries({"$file": st.sampled_from([*FILES])}) | st.fixed_dictionaries(
    {"$file": st.sampled_from(["plain", "empty", "array"]), "lines": lines}
)

of_bytes = st.fixed_dictionaries(
    {"$file": st.sampled_from([*FILES]), "encoding": st.just("base64")},
    optional={"offset": st.integers(0, 30), "length": st.integers(0, 30)},
)

of_json = st.fixed_dictionaries({"$file": st.sampled_from(["reference", "object", "array", "word"])})

inner = st.recursive(
    values | of_text | of_bytes,
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.sampled_from(["a", "$$file", "b"]), some, max_size=3),
    max_leaves=6,
)

calls = st.fixed_dictionaries({}, optional={"text": of_text | of_bytes, "json": of_json | of_bytes, "other": inner})

of_one_place = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.slow
@of_one_place
@given(call=calls)
def test_arguments_are_what_plain_reading_makes_of_them(references: ReferenceResolver, call: Any) -> None:
    before = json.dumps(call)
    resolved = references.resolve(call, SCHEMA)
    assert to_objects(resolved) == naive_resolve(call)
    sent = orjson.dumps(to_fragments(resolved), option=orjson.OPT_PASSTHROUGH_DATACLASS) if _fits(call) else b"{}"
    assert b"\n" not in sent
    assert b"\r" not in sent
    assert json.loads(sent) == (naive_resolve(call) if _fits(call) else {})
    assert json.dumps(call) == before


def _fits(value: Any) -> bool:
    """Whether orjson can write what is beside the references."""
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


@pytest.mark.slow
@of_one_place
@given(value=marked)
def test_what_was_escaped_arrives_as_it_was(references: ReferenceResolver, value: Any) -> None:
    assert to_objects(references.resolve({"a": escape(value)})) == {"a": value}


@pytest.mark.slow
@of_one_place
@given(value=values)
def test_without_references_nothing_is_touched(references: ReferenceResolver, value: Any) -> None:
    assert references.resolve(value, SCHEMA) is value


def test_what_is_not_of_json_passes_as_it_is(references: ReferenceResolver) -> None:
    opaque = object()
    found = references.resolve({"a": [opaque, {"$file": "plain"}], "b": opaque, "c": (1,)})
    assert to_objects(found) == {"a": [opaque, FILES["plain"]], "b": opaque, "c": (1,)}
    assert found["a"][1] == ResolvedValue(FILES["plain"].encode())


def test_what_was_read_is_never_looked_at_for_references(references: ReferenceResolver, store: Store) -> None:
    stored = store.put(b'{"a": {"$file": "plain"}, "b": {"$$file": 1}}').output_handle
    call = {"text": {"$file": "reference"}, "json": {"$file": "reference"}, "other": {"$handle": stored}}
    found = to_objects(references.resolve(call, SCHEMA))
    assert found["text"] == FILES["reference"]
    assert found["json"] == {"$file": "plain"}
    assert json.loads(found["other"]) == {"a": {"$file": "plain"}, "b": {"$$file": 1}}


def test_all_arguments_may_be_one_file(references: ReferenceResolver) -> None:
    assert to_objects(references.resolve({"$file": "object"}))["b"] == "é\n"
    with pytest.raises(InvalidArgument, match="arguments of a tool are an object"):
        references.resolve({"$file": "array"})


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b'{"a": 1}\n{"a": 2}\n', "one on each line"),
        (b"", "nothing but white space"),
        (b"{", "unexpected end"),
        (b'{"a": 1} x', "at byte 9"),
        (b'["\xff"]', "at byte 2"),
        (b"NaN", "not valid JSON"),
        (b"some text", "not valid JSON"),
    ],
)
def test_what_is_not_one_document_is_refused_where_json_is_wanted(
    references: ReferenceResolver, root: Path, data: bytes, told: str
) -> None:
    (root / "wrong").write_bytes(data)
    with pytest.raises(InvalidJSON) as caught:
        references.resolve({"json": {"$file": "wrong"}}, SCHEMA)
    assert told in str(caught.value)
    assert "'wrong'" in str(caught.value)
    assert "refer to" in str(caught.value)


def test_json_may_begin_with_a_mark_and_text_keeps_it(references: ReferenceResolver, root: Path) -> None:
    (root / "bom").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    call = {"json": {"$file": "bom"}, "text": {"$file": "bom"}}
    assert to_objects(references.resolve(call, SCHEMA)) == {"json": {"a": 1}, "text": '\ufeff{"a": 1}'}


@pytest.mark.parametrize("data", [b"\xff\xfe", b"a\x00b", "é".encode("latin-1"), "é".encode()[:1]])
def test_what_is_not_text_says_to_ask_for_base64(
    references: ReferenceResolver, store: Store, root: Path, data: bytes
) -> None:
    (root / "binary").write_bytes(data)
    handle = store.put(data).output_handle
    for reference in ({"$file": "binary"}, {"$handle": handle}):
        with pytest.raises(InvalidFormat, match='add "encoding": "base64"'):
            references.resolve({"text": reference}, SCHEMA)
        found = to_objects(references.resolve({"text": {**reference, "encoding": "base64"}}, SCHEMA))
        assert base64.b64decode(found["text"]) == data


def test_a_range_may_not_cut_a_character(references: ReferenceResolver, root: Path) -> None:
    (root / "wide").write_text("é漢😀")
    data = (root / "wide").read_bytes()
    for start in range(len(data) + 1):
        for end in range(start, len(data) + 1):
            call = {"text": {"$file": "wide", "offset": start, "length": end - start}}
            try:
                text: str | None = data[start:end].decode()
            except UnicodeDecodeError:
                text = None
            if text is None:
                with pytest.raises(InvalidFormat):
                    references.resolve(call)
            else:
                assert to_objects(references.resolve(call)) == {"text": text}


def test_a_call_takes_in_no_more_than_it_may(store: Store, root: Path) -> None:
    references = ReferenceResolver(store, [root], 10)
    (root / "ten").write_bytes(b"0123456789")
    (root / "more").write_bytes(b"0123456789x")
    with (root / "huge").open("wb") as file:
        file.truncate(1 << 42)
    handle = store.put({"a": "0123456789x", "b": "0123456789", "c": "x" * 99}).output_handle
    assert to_objects(references.resolve({"a": {"$file": "ten"}})) == {"a": "0123456789"}
    assert to_objects(references.resolve({"a": {"$file": "more", "offset": 1}})) == {"a": "123456789x"}
    assert to_objects(references.resolve({"a": {"$handle": handle, "path": "/b"}})) == {"a": "0123456789"}
    huge = {"$file": "huge", "offset": (1 << 42) - 3, "encoding": "base64"}
    assert to_objects(references.resolve({"a": huge})) == {"a": "AAAA"}
    for reference in (
        {"$file": "more"},
        {"$file": "huge"},
        {"$file": "huge", "lines": [0, 1]},
        {"$file": "huge", "offset": 5, "encoding": "base64"},
        {"$handle": handle},
        {"$handle": handle, "path": "/a"},
        {"$handle": handle, "path": "/c"},
    ):
        with pytest.raises(FileRefTooLarge, match="10 bytes"):
            references.resolve({"a": reference})
    with pytest.raises(FileRefTooLarge, match="4 bytes"):
        references.resolve({"a": {"$file": "ten", "length": 6}, "b": [{"$file": "ten", "length": 5}]})


def test_arguments_that_are_too_deep_are_refused_only_if_they_refer(references: ReferenceResolver) -> None:
    deep: Any = {"$file": "plain"}
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(InvalidArgument, match="200 levels"):
        references.resolve({"a": deep})


def test_json_that_python_cannot_hold_is_refused_in_process_and_sent_on_elsewhere(
    references: ReferenceResolver, root: Path
) -> None:
    for name, data in (("digits", b"[" + b"1" * 5000 + b"]"), ("deep", b"[" * 50_000 + b"]" * 50_000)):
        (root / name).write_bytes(data)
        try:
            found = references.resolve({"json": {"$file": name}}, SCHEMA)
        except InvalidJSON:
            # The core has a depth of its own.
            continue
        with pytest.raises(InvalidJSON, match="refer to a part of it"):
            to_objects(found)
        assert orjson.dumps(to_fragments(found)) == b'{"json":' + data + b"}"


def test_what_happens_is_journalled_without_contents(references: ReferenceResolver, store: Store, root: Path) -> None:
    (root / "secret").write_text("content")
    handle = store.put({"a": "content"}, principal="ann").output_handle
    call = {"a": {"$file": "secret"}, "b": {"$handle": handle, "path": "/a"}, "c": {"$file": "x" * 10**6}}
    with pytest.raises(ForebayError):
        references.resolve(call, None, "ann", tool="take")
    second, first = events(store, "file_ref_resolved")
    (denied,) = events(store, "file_ref_denied")
    about = {"principal": "ann", "tool": "take"}
    assert first | about | {"path": "secret", "size_bytes": 7} == first
    assert second | about | {"handle": handle, "path": "/a", "size_bytes": 7} == second
    assert denied | about | {"path": "x" * 256} == denied
    assert "content" not in json.dumps([first, second, denied])
    # None of it passed the model: it counts as kept out.
    assert store.journal.summary()["pages_read"] == 0


def test_by_default_files_are_below_here_or_temporary(
    store: Store, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, elsewhere = tmp_path / "temporary", tmp_path / "elsewhere"
    for folder in (temporary, elsewhere):
        folder.mkdir()
        (folder / "file").write_text(folder.name)
    monkeypatch.chdir(root)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    references = ReferenceResolver(store)
    for path, text in (("plain", FILES["plain"]), (str(temporary / "file"), "temporary")):
        assert to_objects(references.resolve({"a": {"$file": path}})) == {"a": text}
    with pytest.raises(FileRefDenied):
        references.resolve({"a": {"$file": str(elsewhere / "file")}})
    with pytest.raises(FileRefNotFound):
        references.resolve({"a": {"$file": "file"}})


def test_started_at_the_very_top_there_are_but_temporary_files(
    store: Store, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    (temporary / "file").write_text("temporary")
    monkeypatch.chdir("/")
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    references = ReferenceResolver(store)
    assert to_objects(references.resolve({"a": {"$file": "file"}})) == {"a": "temporary"}
    with pytest.raises(FileRefDenied):
        references.resolve({"a": {"$file": str(root / "plain")}})


def test_no_file_of_the_store_is_read(store: Store, tmp_path: Path) -> None:
    store.put("mine", principal="ann")
    references = ReferenceResolver(store, [tmp_path])
    found = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert found
    for path in found:
        with pytest.raises(FileRefDenied):
            references.resolve({"a": {"$file": str(path), "encoding": "base64"}})


@given(nasty_text, st.integers(1, 9))
def test_a_text_is_escaped_in_pieces_as_in_one(text: str, piece: int) -> None:
    assert escape_text(text.encode(), piece) == orjson.dumps(text)


def test_a_text_is_escaped_whatever_the_pieces() -> None:
    for piece in range(1, len(NASTY.encode()) + 1):
        assert escape_text(NASTY.encode(), piece) == orjson.dumps(NASTY)
