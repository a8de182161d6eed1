"""What a store keeps for whom and how long, what it says of it, and what it writes down."""

import collections
import json
import logging
import random
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import headgate
import pytest
from headgate import HandleNotFound, InvalidArgument, RedactionFailed, Store, StoreFull
from headgate.handles import is_handle, new_handle
from headgate.store.folders import Folders
from headgate.store.journal import Journal
from headgate.store.local import LocalUpload
from hypothesis import given
from hypothesis import strategies as st
from stores import payload_files, store_at, whole
from texts import NASTY, nasty_text


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def events(store: Store, name: str) -> list[dict[str, Any]]:
    return [event for event in store.journal.recent(1000) if event["event"] == name]


# Handles


@pytest.mark.parametrize("length", [12, 26])
def test_handles_are_drawn_from_all_characters_alike(length: int) -> None:
    handles = [new_handle(length) for _ in range(3000)]
    assert len(set(handles)) == len(handles)
    assert all(is_handle(handle) and len(handle) == 3 + length for handle in handles)
    counts = collections.Counter("".join(handle[3:] for handle in handles))
    assert set(counts) == set("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
    expected = 3000 * length / 32
    assert all(0.7 * expected < count < 1.3 * expected for count in counts.values())


@pytest.mark.parametrize(
    "text",
    [
        "", "oh_", "oh_AAAAAAAAAAA", "oh_AAAAAAAAAAAAA", "oh_aaaaaaaaaaaa", "oh_AAAAAAAAAAA1", "oh_AAAAAAAAAAA0",
        "OH_AAAAAAAAAAAA", "oh_AAAAAAAAAAAA\n", " oh_AAAAAAAAAAAA", "oh_AAAAAAAAAAA/", "oh_../../../etc", "../oh_AAAA",
        "oh_AAAAAAAAAAA\0", "oh_ÀAAAAAAAAAAA", "oh_ＡAAAAAAAAAAA", "oh_" + "A" * 25, "oh_" + "A" * 27,
        "oh_" + "A" * 10**6, "oh_AAAAAAAAAAA٢",
    ],
    ids=lambda text: repr(text[:20]),
)  # fmt: skip
def test_what_is_no_handle_is_simply_not_found(text: str, tmp_path: Path) -> None:
    assert not is_handle(text)
    with store_at(tmp_path / "store") as store, pytest.raises(HandleNotFound) as raised:
        store.fetch(text)
    assert raised.value.to_dict()["error"]["code"] == "output_handle_not_found"
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("length", [12, 26])
def test_a_store_makes_handles_of_the_length_it_is_told(length: int, tmp_path: Path) -> None:
    with store_at(tmp_path / "store", handle_length=length) as store:
        handle = store.put(b"x").output_handle
        assert len(handle) == 3 + length
    # And reads those of the other length.
    with store_at(tmp_path / "store", handle_length=38 - length) as store:
        assert whole(store, handle) == b"x"


# How long


def test_a_payload_expires_to_the_second(tmp_path: Path, clock: Clock) -> None:
    with store_at(tmp_path / "store", ttl=50, clock=clock) as store:
        made, longer = store.put(b"x"), store.put(b"y", ttl=55)
        assert made.expires_at == "2027-01-15T08:00:50Z"
        clock.now += 49.9
        assert whole(store, made.output_handle) == b"x"
        clock.now += 0.1
        for verb in (store.fetch, store.stat, store.open, store.delete):
            with pytest.raises(HandleNotFound):
                verb(made.output_handle)
        assert [one.output_handle for one in store.list()] == [longer.output_handle]
        assert len(payload_files(tmp_path / "store")) == 2
        report = store.sweep()
        assert (report.expired, report.kept) == (1, 1)
        assert len(payload_files(tmp_path / "store")) == 1
        (event,) = events(store, "output_handle_expired")
        assert event["handle"] == made.output_handle


def test_a_ttl_of_nothing_expires_at_once(tmp_path: Path) -> None:
    with store_at(tmp_path / "store") as store:
        handle = store.put(b"x", ttl=0).output_handle
        with pytest.raises(HandleNotFound):
            store.fetch(handle)


def test_the_default_is_a_day(tmp_path: Path, clock: Clock) -> None:
    with store_at(tmp_path / "store", clock=clock) as store:
        assert store.put(b"x").expires_at == "2027-01-16T08:00:00Z"


@pytest.mark.parametrize("ttl", [-1, float("nan"), float("inf"), 1e300])
def test_a_ttl_that_is_no_time_is_refused(ttl: float, tmp_path: Path) -> None:
    with store_at(tmp_path / "store") as store, pytest.raises(InvalidArgument, match="ttl"):
        store.put(b"x", ttl=ttl)
    with pytest.raises(InvalidArgument, match="ttl"):
        store_at(tmp_path / "store", ttl=ttl)
    assert payload_files(tmp_path / "store") == []


# How much


def test_the_total_quota_is_refused_then_freed(tmp_path: Path) -> None:
    with store_at(tmp_path / "store", quota=250_000) as store:
        first = store.put(noise(100_000, 1)).output_handle
        store.put(noise(100_000, 2), principal="ann")
        with pytest.raises(StoreFull, match="quota of 250,000 bytes is used up; delete what is no longer needed"):
            store.put(noise(100_000, 3), principal="bob")
        (event,) = events(store, "store_failed")
        assert (event["code"], event["principal"]) == ("store_full", "bob")
        assert len(payload_files(tmp_path / "store")) == 2
        store.delete(first)
        store.put(noise(100_000, 3), principal="bob")


def test_each_principal_has_a_quota_and_nobody_in_particular_has_none(tmp_path: Path) -> None:
    with store_at(tmp_path / "store", principal_quota=150_000) as store:
        store.put(noise(100_000), principal="ann")
        with pytest.raises(StoreFull, match="your quota of 150,000 bytes"):
            store.put(noise(100_000), principal="ann")
        store.put(noise(100_000), principal="bob")
        for _ in range(3):
            store.put(noise(100_000))
        # What was refused counts for nothing.
        store.put(noise(40_000), principal="ann")


def test_what_is_refused_takes_no_room(tmp_path: Path) -> None:
    with store_at(tmp_path / "store", quota=260_000, principal_quota=150_000) as store:
        store.put(noise(100_000), principal="ann")
        for _ in range(5):
            with pytest.raises(StoreFull):
                store.put(noise(100_000), principal="ann")
        store.put(noise(140_000), principal="bob")


def test_the_quota_is_of_all_who_use_the_root(tmp_path: Path) -> None:
    with store_at(tmp_path / "store", quota=150_000) as store, store_at(tmp_path / "store", quota=150_000) as other:
        store.put(noise(100_000))
        with pytest.raises(StoreFull):
            other.put(noise(100_000))


def test_the_quota_counts_what_is_on_disk(tmp_path: Path) -> None:
    with store_at(tmp_path / "store", quota=100_000) as store:
        store.put(b"a" * 10_000_000)


def test_the_oldest_of_one_s_own_are_evicted(tmp_path: Path, clock: Clock) -> None:
    with store_at(tmp_path / "store", principal_quota=250_000, on_full="evict", clock=clock) as store:
        handles = []
        others = store.put(noise(100_000), principal="bob").output_handle
        for number in range(4):
            clock.now += 1
            handles.append(store.put(noise(100_000, number), principal="ann").output_handle)
        assert {one.output_handle for one in store.list(principal="ann")} == set(handles[2:])
        assert whole(store, others) == noise(100_000)
        assert [event["handle"] for event in events(store, "output_handle_evicted")] == [handles[1], handles[0]]


@pytest.mark.parametrize("stream", [False, True])
def test_nothing_is_evicted_for_what_has_no_room_anyway(stream: bool, tmp_path: Path) -> None:
    with store_at(tmp_path / "store", quota=250_000, on_full="evict") as store:
        mine = store.put(noise(100_000), principal="ann").output_handle
        with pytest.raises(StoreFull):
            store.put(iter([noise(300_000)]) if stream else noise(300_000), principal="ann")
        store.put(noise(100_000), principal="bob")
        with pytest.raises(StoreFull):
            # Not even without all of hers.
            store.put(noise(180_000), principal="ann")
        assert whole(store, mine) == noise(100_000)
        assert events(store, "output_handle_evicted") == []


@pytest.mark.parametrize("on_full", ["refuse", "evict"])
def test_a_stream_without_end_is_refused_early(on_full: str, tmp_path: Path) -> None:
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        chunk = noise(1 << 20)
        while taken < 1 << 30:
            taken += len(chunk)
            yield chunk

    with store_at(tmp_path / "store", quota=3_000_000, on_full=on_full) as store:
        with pytest.raises(StoreFull):
            store.put(endless())
        assert taken < 32 << 20
        assert payload_files(tmp_path / "store") == []
        store.put(noise(1_000_000))


# Redaction

SECRET = b"hunter2-correct-horse"


def holds_secret(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and SECRET in path.read_bytes()]


@pytest.mark.parametrize("size", [100, 3_000_000])
def test_what_is_redacted_was_never_on_disk(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    looks = 0
    write = LocalUpload.write

    def watched(upload: LocalUpload, parts: Any) -> None:
        nonlocal looks
        write(upload, parts)
        assert holds_secret(root) == []
        looks += 1

    def remove(data: bytes) -> bytes:
        assert holds_secret(root) == []
        return data.replace(SECRET, b"[removed]")

    monkeypatch.setattr(LocalUpload, "write", watched)
    text = (b"x" * size) + SECRET + b" and on"
    payloads: list[Callable[[], object]] = [
        lambda: text,
        lambda: text.decode(),
        lambda: iter([text[:-12], text[-12:]]),
        lambda: {"key": text.decode()},
    ]
    with store_at(root, redact=[remove, bytes], compression="none") as store:
        for payload in payloads:
            descriptor = store.put(payload(), source_tool="tool")
            assert SECRET not in descriptor.to_json()
            assert b"[removed] and on" in whole(store, descriptor.output_handle)
        assert holds_secret(root) == []
    assert looks >= len(payloads)


def test_redactions_follow_each_other(tmp_path: Path) -> None:
    with store_at(tmp_path / "store", redact=[bytes.upper, lambda data: data + b"!"]) as store:
        assert whole(store, store.put("abc").output_handle) == b"ABC!"


def quote(data: bytes) -> bytes:
    raise ValueError(data.decode())


@pytest.mark.parametrize(
    "redact",
    [
        lambda data: json.loads(data + SECRET),
        lambda data: data.decode(),
        lambda _: None,
        lambda data: bytearray(data),
        lambda _: 1 / 0,
        lambda data: quote(data),
    ],
    ids=["raises", "text", "None", "bytearray", "divides", "quotes"],
)
def test_a_redaction_that_fails_stores_and_shows_nothing(redact: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with store_at(root, redact=redact, compression="none") as store:
        with pytest.raises(RedactionFailed, match="nothing was stored") as raised:
            store.put(SECRET)
        assert SECRET.decode() not in json.dumps(raised.value.to_dict())
        assert raised.value.code == "redaction_failed"
        assert SECRET.decode() not in "".join(traceback.format_exception(raised.value))
        (event,) = events(store, "store_failed")
        assert event["code"] == "redaction_failed"
    assert payload_files(root) == []
    assert holds_secret(root) == []


# The descriptor


def message_of(descriptor: headgate.Descriptor) -> bytes:
    """A descriptor as it goes over the wire."""
    result = {"content": [{"type": "text", "text": descriptor.to_json().decode()}], "isError": False}
    message = {"jsonrpc": "2.0", "id": "0f8fad5b-d9cb-469f-a165-70867728950e", "result": result}
    return json.dumps(message, ensure_ascii=False).encode()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store_at(tmp_path_factory.mktemp("store"), handle_length=26) as store:
        yield store


@pytest.mark.parametrize(
    "payload",
    [
        "\x01" * 10_000,
        '"' * 10_000,
        "\\" * 10_000,
        "😀" * 10_000,
        NASTY.replace("\x00", "") * 200,
        ["\x01" * 5000],
        {"\x01" * 100: "\x02" * 5000},
        {f"{quote}key{i}{quote}" * 5: [quote * 9] for i in range(200) for quote in '"\\\x01'},
        {"k" * 4000: {"l" * 4000: {"m" * 4000: [1, 2, 3]}}},
        {"\x01" * 1000: [{"\x02" * 1000: "\\" * 1000}] * 50},
        [{"é漢😀" * 30: "é漢😀" * 30}] * 100,
    ],
    ids=lambda payload: str(payload)[:12],
)
def test_a_descriptor_fits_into_its_message(payload: object, shared: Store) -> None:
    descriptor = shared.put(payload, mime_type="application/" + "x" * 100 + "+json")
    assert len(message_of(descriptor)) <= 4096
    json.loads(json.loads(message_of(descriptor))["result"]["content"][0]["text"])


@given(st.recursive(nasty_text, lambda inner: st.lists(inner) | st.dictionaries(nasty_text, inner), max_leaves=80))
def test_any_descriptor_fits_into_its_message(shared: Store, payload: object) -> None:
    assert len(message_of(shared.put(payload))) <= 4096


def test_the_preview_shrinks_first(shared: Store) -> None:
    rows = [{"name": '"' * 50, "text": "\x01" * 50}] * 100
    descriptor = shared.put({"rows": rows})
    assert descriptor.outline == "{rows: [{name: str, text: str}] ×100}"
    assert descriptor.preview is not None
    assert 100 < len(descriptor.preview) < 2048
    assert len(message_of(descriptor)) > 3000


def test_then_the_outline_then_where_the_items_are(shared: Store) -> None:
    descriptor = shared.put({"k" * 4000: [1] * 2000})
    assert (descriptor.outline, descriptor.items_path) == (None, None)
    assert descriptor.item_count == 2000
    assert shared.fetch(descriptor.output_handle).format == "items"
    assert descriptor.preview == '{"' + "k" * len(descriptor.preview[2:])  # type: ignore[index]


def test_the_preview_is_whole(shared: Store) -> None:
    preview = shared.put("é" * 5000).preview
    assert preview is not None
    assert set(preview) == {"é"}
    assert len(preview.encode()) == 2048
    assert shared.put(b"\xff" * 5000).preview is None
    assert shared.put("short").preview == "short"


# The journal


def test_what_happens_is_written_down(tmp_path: Path, clock: Clock) -> None:
    with store_at(tmp_path / "store", clock=clock) as store:
        descriptor = store.put([1, 2, 3], source_tool="numbers")
        mine = descriptor.output_handle
        anns = store.put("x" * 1000, source_tool="letters", principal="ann").output_handle
        store.fetch(mine)
        store.fetch(anns, principal="ann", limit=10)
        store.delete(mine)
        told = store.journal.recent()
        assert [event["event"] for event in told] == [
            "output_handle_deleted",
            "output_handle_fetched",
            "output_handle_fetched",
            "output_handle_created",
            "output_handle_created",
        ]
        assert told[-1] == {
            "event": "output_handle_created", "handle": mine, "source_tool": "numbers", "size_bytes": 7,
            "mime_type": "application/json", "principal": None, "ts": "2027-01-15T08:00:00Z",
            "shown_bytes": len(descriptor.to_json()),
        }  # fmt: skip
        assert len(store.journal.recent(2)) == 2
        assert {event["handle"] for event in store.journal.recent(principal="ann", is_operator=False)} == {anns}
        assert {event["handle"] for event in store.journal.recent(principal=None, is_operator=False)} == {mine}
        assert store.journal.recent(principal="bob", is_operator=False) == []


def test_the_summary_adds_up(tmp_path: Path) -> None:
    with store_at(tmp_path / "store") as store:
        descriptors = [
            store.put("é" * 10_000, source_tool="a"),
            store.put("y" * 500, source_tool="a", principal="ann"),
            store.put("z" * 100, source_tool="b"),
        ]
        store.fetch(descriptors[0].output_handle, limit=400)
        summary = store.journal.summary()
        assert (summary["handles"], summary["bytes_stored"], summary["pages_read"]) == (3, 20_600, 1)
        # Descriptors are read too, not only pages.
        kept = 20_600 - 400 - sum(len(descriptor.to_json()) for descriptor in descriptors)
        assert (summary["bytes_kept_out"], summary["tokens_kept_out"]) == (kept, kept // 4)
        assert summary["by_tool"] == {"a": {"handles": 2, "bytes": 20_500}, "b": {"handles": 1, "bytes": 100}}
        hers = store.journal.summary(principal="ann", is_operator=False)
        assert (hers["handles"], hers["bytes_stored"], hers["pages_read"]) == (1, 500, 0)


WRITE = """
import sys, headgate
with headgate.open_store(sys.argv[1], sweep_interval=0) as store:
    for number in range(400):
        store.journal.record("written", principal=sys.argv[2], number=number, padding="x" * number)
"""


def test_several_processes_write_one_journal(tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    writers = [subprocess.Popen([sys.executable, "-c", WRITE, url, str(name)]) for name in range(4)]
    assert [writer.wait() for writer in writers] == [0] * 4
    with store_at(tmp_path / "store") as store:
        for name in range(4):
            told = store.journal.recent(1000, principal=str(name), is_operator=False)
            assert [event["number"] for event in told] == list(reversed(range(400)))


def test_a_journal_is_bounded_and_keeps_the_newest(tmp_path: Path, clock: Clock) -> None:
    folders = Folders(tmp_path / "store")
    journal = Journal(folders, clock, most_bytes=2000, most_files=3)
    for number in range(1000):
        clock.now += 600 if number % 10 == 0 else 0
        journal.record("counted", number=number)
        assert len(list((tmp_path / "store" / "journal").iterdir())) <= 3
    sizes = [path.stat().st_size for path in (tmp_path / "store" / "journal").iterdir()]
    assert max(sizes) < 2000 + 200
    told = [event["number"] for event in journal.recent(1000)]
    assert told == list(range(999, 999 - len(told), -1))
    assert len(told) > 20
    journal.close()
    folders.close()


def test_a_journal_has_a_file_a_day(tmp_path: Path, clock: Clock) -> None:
    with store_at(tmp_path / "store", clock=clock) as store:
        for _ in range(3):
            store.journal.record("day")
            clock.now += 24 * 3600
    names = sorted(path.name for path in (tmp_path / "store" / "journal").iterdir())
    assert names == ["2027-01-15.jsonl", "2027-01-16.jsonl", "2027-01-17.jsonl"]


def test_lines_that_are_torn_tell_nothing(tmp_path: Path, clock: Clock) -> None:
    with store_at(tmp_path / "store", clock=clock) as store:
        store.journal.record("first")
        (path,) = (tmp_path / "store" / "journal").iterdir()
        for torn in (b'{"event": "half', b"\n\xff\xfe\n", b"[1,2]\n", b"null\n", b"\n"):
            with path.open("ab") as file:
                file.write(torn)
        store.journal.record("second")
        with path.open("ab") as file:
            file.write(
                b'{"event":"output_handle_created","size_bytes":"x","shown_bytes":"y"}\n{"event":"output_handle_f'
            )
        assert [event["event"] for event in store.journal.recent()][1:] == ["second", "first"]
        assert store.journal.summary()["bytes_stored"] == 0


def test_a_torn_last_line_takes_no_other_with_it(tmp_path: Path, clock: Clock) -> None:
    with store_at(tmp_path / "store", clock=clock) as store:
        store.journal.record("first")
    (path,) = (tmp_path / "store" / "journal").iterdir()
    with path.open("ab") as file:
        file.write(b'{"event": "half')
    with store_at(tmp_path / "store", clock=clock) as store:
        store.journal.record("second")
        assert [event["event"] for event in store.journal.recent()] == ["second", "first"]


def test_a_journal_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(mode=0o700)
    (tmp_path / "store" / "journal").write_text("a file where the folder should be")
    with store_at(tmp_path / "store") as store:
        assert whole(store, store.put(b"x").output_handle) == b"x"
        assert store.journal.recent() == []


def test_whoever_stores_much_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "headgate"), store_at(tmp_path / "store", warn_bytes=1000) as store:
        store.put(b"x" * 600, principal="ann")
        store.put(b"x" * 600, principal="bob")
        assert caplog.records == []
        for _ in range(3):
            store.put(b"x" * 600, principal="ann")
        assert [record.getMessage() for record in caplog.records] == [
            "one connection has stored 1200 bytes in all: more than 1000"
        ]
        assert [event["principal"] for event in events(store, "store_warning")] == ["ann"]
    assert headgate.Options().warn_bytes == 100_000_000


# Where


def test_the_default_is_the_user_s_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADGATE_HOME", raising=False)
    monkeypatch.setattr("platformdirs.user_data_path", lambda name, **_: tmp_path / "data" / name)
    with headgate.open_store() as store:
        store.put(b"x")
    assert len(payload_files(tmp_path / "data" / "headgate")) == 1


@pytest.mark.parametrize("home", ["home", "a folder", "ordner-ü"])
def test_headgate_home_overrides_it(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADGATE_HOME", home)
    with headgate.open_store() as store:
        handle = store.put(b"x").output_handle
    assert len(payload_files(tmp_path / home)) == 1
    with headgate.open_store((tmp_path / home).as_uri()) as store:
        assert whole(store, handle) == b"x"
    with headgate.open_store("file://localhost" + (tmp_path / home).as_uri().removeprefix("file://")) as store:
        assert whole(store, handle) == b"x"


@pytest.mark.parametrize(
    "url",
    [
        "", "/path", "path", "s3://bucket", "redis://localhost", "file:", "file:relative", "file://host/path",
        "file:///path?x=1", "file:///path#part", "file:///a%00b", "http://[bad",
    ],
)  # fmt: skip
def test_a_url_of_no_store_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument, match="a store is file:///path, or nothing for the default"):
        headgate.open_store(url)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"compression": "gzip"}, "compression is 'zstd' or 'none', not 'gzip'"),
        ({"durability": "none"}, "durability is 'process' or 'power'"),
        ({"on_full": "drop"}, "on_full is 'refuse' or 'evict'"),
        ({"ttl": -1}, "ttl"),
        ({"quota": -1}, "quota is a number, not negative"),
        ({"principal_quota": -1}, "principal_quota is a number, not negative"),
        ({"sweep_interval": -1}, "sweep_interval is a number, not negative"),
        ({"warn_bytes": -1}, "warn_bytes is a number, not negative"),
        ({"handle_length": 13}, "handle_length is 12 or 26, not 13"),
        ({"quota": "1GB"}, "quota is a number"),
        ({"ttl": "1h"}, "ttl is from 0 seconds"),
        ({"warn_bytes": None}, "warn_bytes is a number"),
        ({"sweep_interval": float("inf")}, "sweep_interval is a number"),
        ({"principal_quota": float("nan")}, "principal_quota is a number"),
        ({"redact": [b"secret"]}, "redact is a function"),
        ({"colour": "red"}, "no such option of a store: colour; there are ttl, quota"),
    ],
)
def test_an_option_that_is_none_is_refused_before_anything_is_made(
    options: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgument, match=says):
        headgate.open_store((tmp_path / "store").as_uri(), **options)
    assert not (tmp_path / "store").exists()


def test_files_are_their_owner_s_alone(tmp_path: Path) -> None:
    with store_at(tmp_path / "store") as store:
        store.put(b"x", principal="ann")
    for path in [tmp_path / "store", *(tmp_path / "store").rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_power_is_an_option(tmp_path: Path) -> None:
    with store_at(tmp_path / "store", durability="power") as store:
        assert whole(store, store.put(noise(2_000_000)).output_handle) == noise(2_000_000)
