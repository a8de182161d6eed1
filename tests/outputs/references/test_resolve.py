"""Resolving references, compared with a naive resolution."""

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
from forebay.outputs.policy import OutputPolicy
from forebay.outputs.references.resolver import ReferenceResolver, ResolvedValue, escape_text, to_lazy, to_objects
from forebay.wire.lazy_json import as_lazy, dump
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
    """Resolve arguments whose first key, "text" or "json", gives the type."""
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

text_references = st.fixed_dictionaries({"$file": st.sampled_from([*FILES])}) | st.fixed_dictionaries(
    {"$file": st.sampled_from(["plain", "empty", "array"]), "lines": lines}
)

base64_references = st.fixed_dictionaries(
    {"$file": st.sampled_from([*FILES]), "encoding": st.just("base64")},
    optional={"offset": st.integers(0, 30), "length": st.integers(0, 30)},
)

json_references = st.fixed_dictionaries({"$file": st.sampled_from(["reference", "object", "array", "word"])})

inner = st.recursive(
    values | text_references | base64_references,
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.sampled_from(["a", "$$file", "b"]), children, max_size=3)
    ),
    max_leaves=6,
)

calls = st.fixed_dictionaries(
    {},
    optional={
        "text": text_references | base64_references,
        "json": json_references | base64_references,
        "other": inner,
    },
)

reuse_fixtures = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.slow
@reuse_fixtures
@given(call=calls)
def test_resolved_arguments_equal_a_naive_resolution(references: ReferenceResolver, call: Any) -> None:
    before = json.dumps(call)
    resolved = references.resolve(call, SCHEMA)
    assert to_objects(resolved) == naive_resolve(call)
    assert json.dumps(call) == before
    if _is_encodable(call):
        sent = dump(to_lazy(resolved, "."))
        assert b"\n" not in sent
        assert b"\r" not in sent
        assert json.loads(sent) == naive_resolve(call)


def _is_encodable(value: Any) -> bool:
    """Return whether orjson can encode the values beside the references."""
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


@pytest.mark.slow
@reuse_fixtures
@given(value=marked)
def test_escaped_arguments_arrive_unescaped(references: ReferenceResolver, value: Any) -> None:
    assert to_objects(references.resolve({"a": escape(value)})) == {"a": value}


@pytest.mark.slow
@reuse_fixtures
@given(value=values.filter(lambda value: "$" not in json.dumps(value)))
def test_arguments_without_references_are_returned_unchanged(references: ReferenceResolver, value: Any) -> None:
    assert references.resolve(value, SCHEMA) is value


def test_a_policy_without_references_returns_arguments_unchanged(store: Store) -> None:
    arguments = {"text": {"$file": "secret"}}
    policy = OutputPolicy(store)
    assert policy.resolve_references("tool", arguments) is arguments
    policy.close()


def test_values_that_are_not_json_pass_unchanged(references: ReferenceResolver) -> None:
    opaque = object()
    resolved = references.resolve({"a": [opaque, {"$file": "plain"}], "b": opaque, "c": (1,)})
    assert to_objects(resolved) == {"a": [opaque, FILES["plain"]], "b": opaque, "c": (1,)}
    assert resolved["a"][1] == ResolvedValue(FILES["plain"].encode())


def test_references_in_large_unparsed_arguments_are_refused(references: ReferenceResolver) -> None:
    rows = [{"$file": "plain"}] * 100
    with pytest.raises(InvalidArgument, match=r"too many to be searched for references.* pass a reference to it"):
        references.resolve({"rows": as_lazy(json.dumps(rows).encode())})
    unparsed = as_lazy(b"[1, 2]")
    resolved = to_objects(references.resolve({"rows": unparsed, "text": {"$file": "plain"}}))
    assert resolved["rows"] is unparsed


def test_content_is_not_searched_for_references(references: ReferenceResolver, store: Store) -> None:
    stored = store.put(b'{"a": {"$file": "plain"}, "b": {"$$file": 1}}').output_handle
    call = {"text": {"$file": "reference"}, "json": {"$file": "reference"}, "other": {"$handle": stored}}
    resolved = to_objects(references.resolve(call, SCHEMA))
    assert resolved["text"] == FILES["reference"]
    assert resolved["json"] == {"$file": "plain"}
    assert json.loads(resolved["other"]) == {"a": {"$file": "plain"}, "b": {"$$file": 1}}


def test_all_arguments_may_come_from_one_file(references: ReferenceResolver) -> None:
    assert to_objects(references.resolve({"$file": "object"}))["b"] == "é\n"
    with pytest.raises(InvalidArgument, match="arguments of a tool are an object"):
        references.resolve({"$file": "array"})


@pytest.mark.parametrize(
    ("data", "message"),
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
def test_invalid_json_is_refused_for_a_json_argument(
    references: ReferenceResolver, root: Path, data: bytes, message: str
) -> None:
    (root / "wrong").write_bytes(data)
    with pytest.raises(InvalidJSON) as caught:
        references.resolve({"json": {"$file": "wrong"}}, SCHEMA)
    assert message in str(caught.value)
    assert "'wrong'" in str(caught.value)
    assert "refer to" in str(caught.value)


def test_a_byte_order_mark_is_dropped_from_json_only(references: ReferenceResolver, root: Path) -> None:
    (root / "bom").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    call = {"json": {"$file": "bom"}, "text": {"$file": "bom"}}
    assert to_objects(references.resolve(call, SCHEMA)) == {"json": {"a": 1}, "text": '\ufeff{"a": 1}'}


@pytest.mark.parametrize("data", [b"\xff\xff", b"a\x00b", "é".encode("latin-1"), "é".encode()[:1]])
def test_binary_content_needs_base64(references: ReferenceResolver, store: Store, root: Path, data: bytes) -> None:
    (root / "binary").write_bytes(data)
    handle = store.put(data).output_handle
    for reference in ({"$file": "binary"}, {"$handle": handle}):
        with pytest.raises(InvalidFormat, match='add "encoding": "base64"'):
            references.resolve({"text": reference}, SCHEMA)
        resolved = to_objects(references.resolve({"text": {**reference, "encoding": "base64"}}, SCHEMA))
        assert base64.b64decode(resolved["text"]) == data


def test_a_range_that_cuts_a_character_is_refused(references: ReferenceResolver, root: Path) -> None:
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


def test_the_byte_budget_is_per_call(store: Store, root: Path) -> None:
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


def test_deeply_nested_references_are_refused(references: ReferenceResolver) -> None:
    deep: Any = {"$file": "plain"}
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(InvalidArgument, match="200 levels"):
        references.resolve({"a": deep})


def test_json_that_python_cannot_parse_is_refused_in_process_only(references: ReferenceResolver, root: Path) -> None:
    for name, data in (("digits", b"[" + b"1" * 5000 + b"]"), ("deep", b"[" * 50_000 + b"]" * 50_000)):
        (root / name).write_bytes(data)
        try:
            resolved = references.resolve({"json": {"$file": name}}, SCHEMA)
        except InvalidJSON:
            # The core refuses deep documents itself.
            continue
        with pytest.raises(InvalidJSON, match="refer to a part of it"):
            to_objects(resolved)
        assert dump(to_lazy(resolved, ".")) == b'{"json":' + data + b"}"


def test_the_journal_has_no_content(references: ReferenceResolver, store: Store, root: Path) -> None:
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
    # Content read by reference does not count as pages read by the model.
    assert store.journal.summary()["pages_read"] == 0


def test_the_default_roots(store: Store, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_default_roots_exclude_the_filesystem_root(
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
    store_files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert store_files
    for path in store_files:
        with pytest.raises(FileRefDenied):
            references.resolve({"a": {"$file": str(path), "encoding": "base64"}})


def cut(text: bytes, chunk_bytes: int) -> list[bytes]:
    return [text[start : start + chunk_bytes] for start in range(0, len(text), chunk_bytes)]


@given(nasty_text, st.integers(1, 9))
def test_escaping_in_chunks_equals_escaping_at_once(text: str, chunk_bytes: int) -> None:
    assert b"".join(escape_text(cut(text.encode(), chunk_bytes))) == orjson.dumps(text)


def test_escaping_with_every_chunk_size() -> None:
    for chunk_bytes in range(1, len(NASTY.encode()) + 1):
        assert b"".join(escape_text(cut(NASTY.encode(), chunk_bytes))) == orjson.dumps(NASTY)
