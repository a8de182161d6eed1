"""The command on a terminal: readable, and safe from control sequences in payloads."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import forebay
import pytest
from command import COMMAND, ROWS, plain, run, run_on_terminal
from forebay.cli import output
from forebay.cli.output import stored
from forebay.outputs.monitor import Monitor


@pytest.mark.posix
@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["ls"], ["handle", "json", "300", "list_rows", "expires"]),
        (["fetch", "HANDLE", "--limit", "2"], ["name [1]", "items: 2 from 0 of 300; more from --offset 2"]),
        (["fetch", "HANDLE", "--offset", "299"], ["name [299]", "the end"]),
        (["fetch", "HANDLE", "--format", "text"], ['{"rows":', "the end"]),
        (["search", "HANDLE", "name [29]"], ["byte", "context", "name [29]"]),
        (["search", "HANDLE", "name", "--limit", "1"], ["more from --offset"]),
        (["get", "HANDLE", "/rows/7"], ['"id": 7', "name [7]"]),
        (["outline", "HANDLE"], ["{rows: [{id: int, name: str}] ×300}"]),
        (["stat", "HANDLE"], ['"item_count": 300']),
        (["sweep"], ['"kept": 1']),
        (["journal"], ["time (UTC)", "day, 20", "created", "list_rows"]),
        (["journal", "summary"], ["kept out of context", "1 handle", "list_rows"]),
        (["rm", "HANDLE"], ['"removed"', "HANDLE"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_on_a_terminal_it_is_made_for_people(args: list[str], expected: list[str], handle: str) -> None:
    result = run_on_terminal(*(arg.replace("HANDLE", handle) for arg in args), only="out")
    assert (result.code, result.err) == (0, b"")
    text = plain(result.out)
    assert [part for part in expected if part.replace("HANDLE", handle) not in text] == []
    with pytest.raises(json.JSONDecodeError):
        json.loads(result.out.decode())


LARGE = 9 << 20


@pytest.mark.posix
@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(("size", "has_bar"), [(1000, False), (LARGE, True)])
def test_a_bar_shows_how_far_a_large_put_is(size: int, has_bar: bool, tmp_path: Path) -> None:
    path = tmp_path / "payload"
    path.write_bytes(b"text " * (size // 5))
    result = run_on_terminal("put", str(path), only="err")
    assert result.code == 0
    assert json.loads(result.out)["size_bytes"] == size // 5 * 5
    assert ("MB" in plain(result.err)) == has_bar


@pytest.mark.usefixtures("home")
def test_no_bar_in_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "payload"
    path.write_bytes(b"text " * (LARGE // 5))
    assert run("put", str(path)).json["mime_type"] == "text/plain"


BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
HOSTILE = f"[/red] [bold]not bold[/] \x1b]0;title\x07 \x1b[2J \x9b31m {BIDI} [link=x]y"


def assert_harmless(screen: bytes) -> None:
    assert b"\x1b]0" not in screen
    assert b"\x1b[2J" not in screen
    assert b"\x07" not in screen
    assert not {*BIDI, "\x7f", *map(chr, range(0x80, 0xA0))} & {*screen.decode()}


@pytest.mark.posix
@pytest.mark.slow
@pytest.mark.parametrize(
    "args",
    [
        ["fetch", "HANDLE", "--format", "text"],
        ["fetch", "HANDLE", "--format", "text", "--raw"],
        ["fetch", "HANDLE", "--format", "bytes", "--raw"],
        ["cat", "HANDLE"],
        ["search", "HANDLE", "bold"],
        ["ls"],
        ["stat", "HANDLE"],
        ["journal"],
        ["fetch", "HANDLE", "--path", "/[/red]\x1b[2J"],
        ["fetch", "[/red]\x1b[2J"],
    ],
    ids=repr,
)
def test_a_payload_has_no_power_over_the_terminal(args: list[str], home: Path) -> None:
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        handle = store.put(HOSTILE, source_tool=HOSTILE).output_handle
    result = run_on_terminal(*(arg.replace("HANDLE", handle) for arg in args))
    assert b"Traceback" not in result.out
    assert result.code in (0, 3, 6)
    assert_harmless(result.out)
    if result.code == 0:
        assert "[/red]" in plain(result.out)


@pytest.mark.posix
@pytest.mark.slow
@pytest.mark.parametrize("is_escaped", [True, False])
@pytest.mark.parametrize(
    "args", [["fetch", "HANDLE"], ["get", "HANDLE", "/0"], ["cat", "HANDLE"], ["outline", "HANDLE"]]
)
def test_json_has_no_power_over_the_terminal(args: list[str], is_escaped: bool, home: Path) -> None:
    hostile = f"{HOSTILE}\x7f\x85"
    text = json.dumps([{hostile: hostile}] * 3, ensure_ascii=is_escaped)
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        handle = store.put(text.encode(), mime_type="application/json").output_handle
    arguments = [arg.replace("HANDLE", handle) for arg in args]
    result = run_on_terminal(*arguments)
    assert result.code == 0
    assert_harmless(result.out)
    if args[0] == "cat":
        # In a pipe, bytes stay as they are.
        assert run(*arguments).out == text.encode()


@pytest.mark.posix
@pytest.mark.slow
def test_the_log_of_a_gateway_has_no_power_over_the_terminal(home: Path) -> None:
    server = ["sh", "-c", "printf '\\033[2J\\342\\200\\256 hello\\n'; sleep 0.2"]
    result = run_on_terminal("wrap", "--store", home.as_uri(), "--", *server, only="err")
    assert "hello" in plain(result.err)
    assert_harmless(result.err)


@pytest.mark.posix
def test_cut_items_are_named_on_a_terminal(home: Path) -> None:
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        handle = store.put({"[/dim]": [{"a": "x" * 100_000}]}).output_handle
    result = run_on_terminal("fetch", handle)
    assert result.code == 0
    assert "cut: /[~1dim]/0, 100,008 bytes in all" in plain(result.out)


@pytest.mark.posix
@pytest.mark.slow
@pytest.mark.parametrize("length", [12, 26])
def test_tables_fit_on_80_columns(length: int, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with forebay.open_store(home.as_uri(), sweep_interval=0, handle_length=length) as store:
        tool = "a_tool_with_quite_a_long_name"
        handle = store.put([1] * 100_000, source_tool=tool, principal="https://issuer.example ann").output_handle
        store.fetch(handle, principal=forebay.OPERATOR)
        store.journal.record("store_failed", code="store_full")
    listed = plain(run_on_terminal("ls").out).splitlines()
    events = plain(run_on_terminal("journal").out).splitlines()
    assert max(map(len, [*listed, *events])) <= 80
    assert (len(listed), len(events)) == (3, 5)
    assert [handle in line for line in listed] == [False, True, False]
    assert [handle in line for line in events] == [False, False, False, True, True]
    assert "100,000" in listed[1]
    assert listed[2].startswith("1 payload, 200.0 kB, ")
    assert events[1].startswith(("today, ", "yesterday, "))
    for words, line in zip(("store_failed", "fetched", "created"), events[2:], strict=True):
        assert words in line
    assert "store_full" in events[2]


@pytest.mark.posix
def test_events_are_shown_with_tool_path_size_and_reason(home: Path) -> None:
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        record = store.journal.record
        record("output_handle_refused", handle="oh_" + "A" * 12, code="output_handle_not_found")
        record("tool_called", tool="list_rows", response_bytes=1500, mode="inline")
        record("response_oversize", tool="list_rows", response_bytes=5000, mode="handle", budget_bytes=4096)
        record("file_ref_denied", tool="upload", path="/etc/shadow", code="file_ref_denied")
        record("capability_denied", tool="wipe", capability="admin")
    header, day, *rows = plain(run_on_terminal("journal").out).splitlines()
    assert header.split() == ["time", "(UTC)", "event", "handle", "or", "tool", "size", "reason"]
    assert day.startswith(("today, ", "yesterday, "))
    assert [row.partition(" ago  ")[2].split() for row in reversed(rows)] == [
        ["✗", "refused", "oh_AAAAAAAAAAAA", "not_found"],
        ["·", "tool_called", "list_rows", "1.5", "kB"],
        ["▲", "response_oversize", "list_rows", "5.0", "kB", "over", "4.1", "kB"],
        ["✗", "file_ref_denied", "upload", "/etc/shadow"],
        ["✗", "capability_denied", "wipe", "capability", "admin"],
    ]


@pytest.mark.posix
@pytest.mark.parametrize("command", ["ls", "journal"])
def test_a_client_is_shown_as_it_can_be_asked_for(command: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    principals = ["ann", '["client", "ann"]', '["client", 1]', '["subject", null, "ann"]']
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        for principal in principals:
            store.put([1], principal=principal)
    screen = plain(run_on_terminal(command).out)
    for text in ("  ann", "client:ann", '["client", 1]', '["subject", null, "ann"]'):
        assert screen.count(text) == 1


@pytest.mark.posix
@pytest.mark.slow
def test_a_table_leaves_out_what_is_empty(handle: str) -> None:
    assert "principal" not in plain(run_on_terminal("ls").out)
    run("put", "-", "--principal", "ann", stdin=b"x")
    assert "principal" in plain(run_on_terminal("ls").out)
    run("rm", handle)
    assert "items" not in plain(run_on_terminal("ls").out)


@pytest.mark.posix
def test_a_match_is_highlighted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "é\x1b[2J a needle, a haystack, a Needle"
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        handle = store.put(text).output_handle
    found = run_on_terminal("search", handle, "^.*?(needle)|needle$", "--regex", "-i", "--context", "5")
    assert [part.split("\x1b")[0] for part in found.out.decode().split("\x1b[1;31m")[1:]] == [
        "é␛[2J a needle",
        "Needle",
    ]
    assert_harmless(found.out)
    monkeypatch.setenv("NO_COLOR", "1")
    uncoloured = run_on_terminal("search", handle, "needle", "-i")
    assert b"\x1b" not in uncoloured.out
    assert plain(run_on_terminal("search", handle, "needle", "-i", "--limit", "1").out).count("needle") == 1
    monkeypatch.delenv("NO_COLOR")
    assert b"\x1b" not in run("search", handle, "needle").out


@pytest.mark.parametrize(("character", "count"), [("x", 50), ('"', 400)])
def test_a_shortened_match_has_its_offset(character: str, count: int, home: Path) -> None:
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        handle = store.put("b" * 600 + character * count + "a" * 600).output_handle
        page = store.search(handle, f"{character}+", regex=True, context=500, max_bytes=512)
    (match,), (offset,) = page.matches, page.context_offsets
    assert match["context"][:offset].strip("b") == ""
    assert match["context"][offset : offset + count].strip(character) == ""
    assert match["context"][offset] == character


@pytest.mark.posix
def test_fields_are_shown_as_a_table(home: Path) -> None:
    rows = [{"id": 1, "user": {"name": "ann\x1b[2J"}, "tags": ["a", "b"]}, {"id": 2, "user": None}]
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        handle = store.put({"rows": rows}).output_handle
    arguments = ["fetch", handle, "--fields", "id,user.name,tags"]
    screen = run_on_terminal(*arguments).out
    lines = [line.rstrip() for line in plain(screen).splitlines()]
    assert lines == [
        "id  user.name  tags",
        ' 1  ann␛[2J    ["a","b"]',
        " 2",
        "items: 2 from 0 of 2; the end",
    ]
    assert_harmless(screen)
    for option in ("--json", "--raw"):
        assert '"name"' in plain(run_on_terminal(*arguments, option).out)
    assert run(*arguments).json == run(*arguments, "--json").json


@pytest.mark.posix
def test_a_table_of_fields_has_the_values_as_they_are_written(home: Path) -> None:
    document = r"""[{"a.b": 0.12345678901234567890123, "/x": {"n": [1.50, 1e400]}, "a": {"b": 1e400}, "e\\f": 1}]"""
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        rows = store.put("id,Total.Amount,/sum\n1,2.50,7\n", mime_type="text/csv").output_handle
        items = store.put(document.encode()).output_handle
    lines = show_terminal("fetch", rows, "--fields", "id,Total.Amount,/sum").splitlines()
    assert [line.split() for line in lines[:2]] == [["id", "Total.Amount", "/sum"], ["1", "2.50", "7"]]
    lines = show_terminal("fetch", items, "--fields", r"a\.b,a.b,/x,/~1x/n,e\\f").splitlines()
    assert lines[0].split() == [r"a\.b", "a.b", "/x", "/~1x/n", r"e\\f"]
    assert lines[1].split() == ["0.12345678901234567890123", "1e400", '{"n":[1.50,1e400]}', "[1.50,1e400]", "1"]


@pytest.mark.posix
def test_items_that_are_no_objects_are_no_table(home: Path) -> None:
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        handle = store.put([{"id": 1}, [2], 3]).output_handle
    screen = plain(run_on_terminal("fetch", handle, "--fields", "id").out)
    assert '"id": 1' in screen


@pytest.mark.posix
@pytest.mark.parametrize(
    "args", [["ls"], ["journal"], ["stats"], ["search", "HANDLE", "name [7]"], ["outline", "HANDLE"]]
)
def test_json_can_be_had_on_a_terminal(args: list[str], handle: str) -> None:
    arguments = [arg.replace("HANDLE", handle) for arg in args]
    shown = json.loads(plain(run_on_terminal(*arguments, "--json").out))
    if args[0] != "journal":
        assert shown == run(*arguments).json


@pytest.mark.posix
@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("command", ["ls", "journal"])
def test_nothing_is_said_to_be_nothing(command: str) -> None:
    assert plain(run_on_terminal(command).out).split() == ["nothing"]


@pytest.mark.posix
def test_a_match_at_the_end_of_its_context_is_shown(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        handle = store.put("x" * 100 + "NEEDLE").output_handle
    assert "NEEDLE" in plain(run_on_terminal("search", handle, "NEEDLE").out)


@pytest.mark.posix
def test_raw_content_on_a_terminal_says_how_to_go_on(handle: str) -> None:
    result = run_on_terminal("fetch", handle, "--limit", "2", "--raw", only="err")
    assert len(json.loads(result.out)) == 2
    assert "more from --offset 2" in plain(result.err)


@pytest.mark.posix
def test_what_a_terminal_cannot_show_is_no_failure(handle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    result = run_on_terminal("outline", handle)
    assert (result.code, plain(result.out).split()[-1]) == (0, r"\xd7300}")


@pytest.mark.posix
def test_bytes_that_are_no_text_are_seen_to_be_none(home: Path) -> None:
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        handle = store.put(b"a\xffb\r\n\xe2\x82").output_handle
    assert plain(run_on_terminal("cat", handle).out) == "a\ufffdb\r\n\ufffd"


@pytest.mark.posix
@pytest.mark.slow
@pytest.mark.usefixtures("home")
def test_serve_tells_a_terminal_what_it_waits_for(tmp_path: Path) -> None:
    config = tmp_path / "forebay.toml"
    config.write_text(f'[upstreams.none]\ncommand = "{sys.executable}"\nargs = ["-c", ""]\n')
    told = "speaking MCP on stdin and stdout; --http HOST:PORT serves HTTP"
    done = run_on_terminal("serve", "--config", str(config), typed="\x04")
    assert (done.code, plain(done.err).count(told)) == (0, 1)
    assert told.encode() not in run("serve", "--config", str(config)).err


def show_terminal(*args: str, code: int = 0) -> str:
    result = run_on_terminal(*args)
    assert result.code == code
    return plain(result.out)


@pytest.mark.posix
@pytest.mark.slow
def test_an_empty_store_has_totals_of_nothing(home: Path) -> None:
    with forebay.open_store(home.as_uri(), sweep_interval=0):
        pass
    text = show_terminal("stats")
    assert text.startswith("no call was counted yet; every call through forebay is counted")
    assert "0 payloads" in text
    text = show_terminal("journal", "summary")
    assert text.startswith("kept out of context  0 B")
    assert "tool" not in text


@pytest.mark.posix
@pytest.mark.slow
def test_calls_of_one_day_need_no_chart(home: Path) -> None:
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        store.call_counts.add("list_rows", None, calls=2, handles=1, stored_bytes=5000, shown_bytes=1000)
    text = show_terminal("stats")
    assert re.search(r"days +all on \d{4}-\d\d-\d\d \(UTC\)", text)
    assert "by day" not in text
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        Monitor(store.journal).record("list_rows", 100, mode="inline", budget=1000, principal=None)
    assert "list_rows" in show_terminal("stats")


@pytest.mark.posix
@pytest.mark.slow
def test_numbers_that_python_does_not_parse_are_shown_as_they_are(home: Path) -> None:
    number = "7" * 5000
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        handle = store.put(b'[{"id": ' + number.encode() + b'}, {"id": 1}]').output_handle
    for args in (["get", handle, "/0"], ["fetch", handle, "--fields", "id"], ["fetch", handle]):
        assert number in show_terminal(*args).replace("\r\n", "").replace("\n", "")


@pytest.mark.posix
@pytest.mark.slow
def test_fields_are_named_in_each_way(home: Path) -> None:
    rows = [{"id": 1, "tags": [{"name": "a"}, {"name": "b"}], "a/b": {"c": 3}}, {"id": 2, "tags": [], "a/b": 4}]
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        handle = store.put({"rows": rows, "total": 2, "note": "beside the items"}).output_handle
        entries = store.put({f"k{number}": {"x": number} for number in range(9)}).output_handle
    lines = show_terminal("fetch", handle, "--fields", "id,tags.name,/a~1b/c").splitlines()
    assert lines[0].split() == ["id", "tags.name", "/a~1b/c"]
    assert lines[1].split() == ["1", '["a","b"]', "3"]
    assert lines[2].split() == ["2", "[]"]
    lines = show_terminal("fetch", entries, "--fields", "x", "--limit", "2").splitlines()
    assert [line.split() for line in lines[:2]] == [["_key", "x"], ["k0", "0"]]
    # A field that is wrong is named under the rows.
    assert "idd" in show_terminal("fetch", handle, "--fields", "id,idd").splitlines()[-2]
    text = show_terminal("search", handle, "beside", "--mode", "values")
    assert "/note" in text


@pytest.mark.posix
@pytest.mark.slow
def test_what_is_beside_the_items_is_named(home: Path) -> None:
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        handle = store.put({"rows": ROWS[:20], "notes": "beside the items " * 100}).output_handle
    text = show_terminal("fetch", handle, "--format", "items", "--limit", "20")
    assert re.search(r"not among the items: 1,7\d\d bytes; --path /notes reads them", text)


@pytest.mark.posix
@pytest.mark.slow
def test_an_event_without_a_time_is_of_an_unknown_day(home: Path) -> None:
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        store.journal.record("store_warning")
    (log,) = (home / "journal").iterdir()
    log.write_text(log.read_text() + '{"event": "tool_called", "tool": "list_rows"}\n')
    lines = show_terminal("journal").splitlines()
    assert lines[1] == "unknown day"
    assert lines[2].split() == ["·", "tool_called", "list_rows"]


@pytest.mark.posix
@pytest.mark.slow
def test_without_standard_error_the_content_is_still_there(handle: str) -> None:
    command = shlex.join([*COMMAND, "fetch", handle, "--raw", "--limit", "1"])
    finished = subprocess.run(["sh", "-c", f"{command} 2>&-"], capture_output=True, check=True)
    assert json.loads(finished.stdout) == [{"id": 0, "name": "name [0]"}]


def test_what_expires_at_once_says_so() -> None:
    assert stored._format_expiry(0).plain == "now"


def test_only_the_functions_for_output_are_names() -> None:
    assert not hasattr(output, "print_nothing")
