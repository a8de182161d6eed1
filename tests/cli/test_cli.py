"""The store commands in a pipe: they print JSON, or the payload itself."""

import base64
import hashlib
import json
import subprocess
import sys
import time
from datetime import datetime
from importlib import metadata
from pathlib import Path

import forebay
import pytest
from command import ROWS, UNKNOWN, run, run_on_terminal
from forebay import cli
from forebay.adapters.mcp import get_principal
from forebay.cli import commands
from mcp.server.auth.provider import AccessToken
from peak import measured
from stores import whole

pytestmark = pytest.mark.slow


def test_the_command_is_installed() -> None:
    (entry,) = (entry for entry in metadata.entry_points(group="console_scripts") if entry.name == "forebay")
    assert entry.load() is cli.main


def test_put_from_a_file_and_from_standard_input(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "payload.json"
    path.write_bytes(json.dumps(ROWS).encode())
    from_file = run("put", str(path)).json
    from_input = run("put", "-", stdin=path.read_bytes()).json
    assert from_file.keys() == from_input.keys()
    for descriptor in (from_file, from_input):
        assert (descriptor["item_count"], descriptor["mime_type"]) == (300, "application/json")
        with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
            assert whole(store, descriptor["output_handle"]) == path.read_bytes()


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(("name", "mime_type"), [("a.csv", "text/csv"), ("b.TSV", "text/tab-separated-values")])
def test_put_knows_rows_by_the_name_of_the_file(tmp_path: Path, name: str, mime_type: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"id,\tname\r\n1,\tx\r\n")
    put = run("put", str(path)).json
    assert (put["mime_type"], put["item_count"]) == (mime_type, 1)
    (row,) = run("fetch", put["output_handle"]).json["content"]
    assert row == ({"id": "1", "\tname": "\tx"} if mime_type == "text/csv" else {"id,": "1,", "name": "x"})
    assert run("put", str(path), "--mime-type", "text/plain").json["item_count"] is None


def test_put_takes_a_type_a_time_and_a_store(home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    put = run("put", "-", "--mime-type", "text/csv", "--ttl", "60", "--store", elsewhere.as_uri(), stdin=b"a,b\n").json
    assert put["mime_type"] == "text/csv"
    assert not home.exists()
    (stored,) = run("ls", "--store", elsewhere.as_uri()).json
    assert stored["output_handle"] == put["output_handle"]
    assert stored["source_tool"] == "forebay put"


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("15m", 900), ("2h", 7200), ("7d", 604800), ("0.5h", 1800)]
)
def test_put_takes_a_duration(text: str, seconds: int) -> None:
    stored = run("stat", run("put", "-", "--ttl", text, stdin=b"x").json["output_handle"]).json
    created, expires = (datetime.fromisoformat(stored[name]) for name in ("created_at", "expires_at"))
    assert abs((expires - created).total_seconds() - seconds) <= 1


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    "args", [["put", "-", "--ttl"], ["doctor", "--timeout"], ["lint-tools", "--timeout"], ["wrap", "--ttl"]]
)
def test_an_invalid_duration_is_answered_with_examples(args: list[str]) -> None:
    result = run(*args, "2x", *(["--", "cat"] if args[0] == "wrap" else []))
    assert result.code == 2
    assert args[-1] in result.error["message"]
    assert " is a number of seconds or a duration, such as 90s, 15m, 2h or 7d, not '2x'" in result.error["message"]


def test_fetch(handle: str) -> None:
    page = run("fetch", handle).json
    assert (page["content"], page["next_offset"]) == (ROWS[:200], 200)
    page = run("fetch", handle, "--offset", "290", "--limit", "5", "--fields", "id").json
    assert page["content"] == [{"id": number} for number in range(290, 295)]
    page = run("fetch", handle, "--where", '{"id": {">=": 297}, "name": {"contains": "[298]"}}').json
    assert (page["content"], page["item_numbers"], page["total"]) == ([ROWS[298]], [298], 1)
    page = run("fetch", handle, "--path", "/rows/7", "--format", "text").json
    assert json.loads(page["content"]) == ROWS[7]
    page = run("fetch", handle, "--format", "bytes", "--limit", "8").json
    assert base64.b64decode(page["content"]) == b'{"rows":'
    assert len(run("fetch", handle, "--max-bytes", "1000").out) <= 1001


def test_search(handle: str) -> None:
    found = run("search", handle, "name [29").json
    assert [match["item"] for match in found["matches"]] == [29, *range(290, 300)]
    found = run("search", handle, r"NAME \[1\d\]", "--regex", "-i", "--limit", "3", "--context", "0").json
    assert [match["match"] for match in found["matches"]] == ["name [10]", "name [11]", "name [12]"]
    rest = run("search", handle, r"NAME \[1\d\]", "--regex", "-i", "--offset", str(found["next_offset"])).json
    assert [match["item"] for match in rest["matches"]] == [13, 14, 15, 16, 17, 18, 19]


def test_outline_stat_and_ls(handle: str) -> None:
    shape = "{rows: [{id: int, name: str}] ×300}"
    assert run("outline", handle).json == {"output_handle": handle, "outline": shape}
    assert len(run("outline", handle, "--max-bytes", "12").json["outline"].encode()) <= 12
    stored = run("stat", handle).json
    assert (stored["output_handle"], stored["item_count"], stored["outline"]) == (handle, 300, shape)
    assert run("ls").json == [stored]


def test_the_operator_sees_what_belongs_to_others(home: Path) -> None:
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        handle = store.put([1], principal="ann").output_handle
    assert [stored["principal"] for stored in run("ls").json] == ["ann"]
    assert run("fetch", handle).json["content"] == [1]
    assert run("rm", handle).json == {"removed": [handle]}


def test_rm_sweep_and_journal(handle: str) -> None:
    expired = run("put", "-", "--ttl", "0", stdin=b"gone").json["output_handle"]
    report = run("sweep").json
    assert (report["expired"], report["kept"]) == (1, 1)
    assert run("rm", handle).json == {"removed": [handle]}
    assert run("ls").json == []
    events = run("journal").json
    assert [(event["event"], event["handle"]) for event in events] == [
        ("output_handle_deleted", handle),
        ("output_handle_expired", expired),
        ("output_handle_created", expired),
        ("output_handle_created", handle),
    ]
    for option in ("--count", "--limit"):
        assert len(run("journal", option, "1").json) == 1
    summary = run("journal", "summary").json
    assert summary["handles"] == 2
    assert set(summary["by_tool"]) == {"list_rows", "forebay put"}


def test_only_put_makes_a_store(tmp_path: Path) -> None:
    elsewhere = (tmp_path / "elsewhere").as_uri()
    for command in (["ls"], ["stat", UNKNOWN], ["journal"], ["sweep"]):
        result = run(*command, "--store", elsewhere)
        assert (result.code, result.error["code"]) == (5, "store_unavailable")
        assert "there is no store at" in result.error["message"]
    assert not (tmp_path / "elsewhere").exists()
    run("put", "-", "--store", elsewhere, stdin=b"payload")
    assert len(run("ls", "--store", elsewhere).json) == 1


def test_cat_is_the_payload(home: Path) -> None:
    for payload in (b"", b"text without an end of line", bytes(range(256)) * 9000):
        with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
            handle = store.put(payload).output_handle
        assert run("cat", handle) == (0, payload, b"")


def test_cat_takes_little_memory(home: Path, tmp_path: Path) -> None:
    piece = b"0123456789abcdef" * (1 << 16)
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        handle = store.put(piece for _ in range(256)).output_handle
    (taken,) = measured(CAT, handle, str(tmp_path / "out"))
    with (tmp_path / "out").open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == hashlib.sha256(piece * 256).hexdigest()
    assert taken < 128 << 20


CAT = """
import os, sys
from forebay.cli import main

handle, out = sys.argv[1:]
stdout = os.dup(1)
os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT), 1)
sys.argv = ["forebay", "cat", handle]
main()
sys.stdout.flush()
os.write(stdout, b"%d" % peak())
"""


def test_get(handle: str) -> None:
    assert run("get", handle, "/rows/7").json == ROWS[7]
    assert run("get", handle, "").json == {"rows": ROWS}


def test_raw_is_only_the_content(handle: str) -> None:
    code, out, err = run("fetch", handle, "--limit", "2", "--raw")
    assert (code, json.loads(out)) == (0, ROWS[:2])
    assert json.loads(err) == {"next_offset": 2, "total": 300, "truncated": []}, "it is not all, and says so beside it"
    assert run("fetch", handle, "--offset", "299", "--raw").json == ROWS[299:]
    assert run("fetch", handle, "--format", "text", "--limit", "8", "--raw").out == b'{"rows":'
    binary = run("put", "-", stdin=b"\xff\x00\r\n").json["output_handle"]
    assert run("fetch", binary, "--raw") == (0, b"\xff\x00\r\n", b"")
    lines = run("put", "-", stdin="é\n\n2".encode()).json["output_handle"]
    assert run("fetch", lines, "--format", "lines", "--raw").out == "é\n\n2".encode()


def test_a_wrong_name_in_fields_is_reported(handle: str) -> None:
    code, out, err = run("fetch", handle, "--limit", "300", "--fields", "id,nmae", "--raw")
    assert (code, len(json.loads(out))) == (0, 300)
    assert "no item has the field 'nmae'; the items are [{id" in json.loads(err)["hint"]
    assert "'nmae'" in run("fetch", handle, "--fields", "id,nmae").json["hint"]


def test_a_search_has_a_budget(handle: str) -> None:
    result = run("search", handle, "name", "--max-bytes", "1000")
    assert len(result.out) <= 1001
    assert result.json["next_offset"] is not None


READS = [["fetch"], ["cat"], ["get", ""], ["search", "1"], ["outline"], ["stat"], ["rm"]]


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("command", READS, ids=lambda command: command[0])
def test_a_principal_sees_its_own(command: list[str]) -> None:
    name, *rest = command
    handle = run("put", "-", "--principal", "ann", stdin=b"[1]").json["output_handle"]
    assert run(name, handle, *rest, "--principal", "bob").error["code"] == "output_handle_not_found"
    assert run(name, handle, *rest, "--principal", "ann").code == 0


@pytest.mark.posix
def test_ls_selects_by_tool_size_and_age(home: Path) -> None:
    now = time.time()
    with forebay.open_store(home.as_uri(), sweep_interval=0, clock=lambda: now - 3 * 3600) as store:
        handles = {"old": store.put("x" * 5000, source_tool="crawl_pages").output_handle}
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        handles["large"] = store.put("x" * 5000, source_tool="crawl_sites", principal="ann").output_handle
        handles["small"] = store.put("x", source_tool="orders").output_handle
        handles["mine"] = store.put("xyz").output_handle

    def list_names(*options: str) -> set[str]:
        listed = {entry["output_handle"] for entry in run("ls", *options).json}
        shown = run_on_terminal("ls", *options).out.decode()
        # The table has the same rows.
        assert {handle for handle in handles.values() if handle in shown} == listed
        return {name for name, handle in handles.items() if handle in listed}

    assert list_names() == {"old", "large", "small", "mine"}
    assert list_names("--tool", "crawl*") == {"old", "large"}
    assert list_names("--tool", "orders") == {"small"}
    assert list_names("--tool", "unknown") == {"mine"}
    assert list_names("--larger", "3") == {"old", "large"}
    assert list_names("--larger", "5kB") == set()
    assert list_names("--since", "1h") == {"large", "small", "mine"}
    assert list_names("--since", "4h", "--tool", "crawl*", "--larger", "1kB") == {"old", "large"}
    assert list_names("--tool", "crawl*", "--principal", "ann") == {"large"}
    assert "such as 90s" in run("ls", "--since", "soon").error["message"]


@pytest.mark.usefixtures("home")
def test_a_principal_lists_its_own() -> None:
    for name in ("ann", "bob"):
        run("put", "-", "--principal", name, stdin=b"[1]")
    (stored,) = run("ls", "--principal", "ann").json
    assert stored["principal"] == "ann"
    assert len(run("ls").json) == 2
    (event,) = run("journal", "--principal", "bob").json
    assert event["principal"] == "bob"
    assert [run("journal", "summary", *who).json["handles"] for who in (["--principal", "bob"], [])] == [1, 2]


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("command", READS, ids=lambda command: command[0])
def test_a_principal_with_a_token_is_called_by_its_name(command: list[str]) -> None:
    name, *rest = command
    token = get_principal(AccessToken(token="", client_id="ann", scopes=[]))
    assert token is not None
    for principal in ("ann", "client:ann", token):
        handle = run("put", "-", "--principal", token, stdin=b"[1]").json["output_handle"]
        assert run(name, handle, *rest, "--principal", "bob").error["code"] == "output_handle_not_found"
        assert run(name, handle, *rest, "--principal", principal).code == 0


@pytest.mark.usefixtures("home")
def test_a_name_lists_what_is_a_token_s_and_what_a_program_has_put() -> None:
    token = get_principal(AccessToken(token="", client_id="ann", scopes=[]))
    assert token is not None
    for name in ("ann", token, "bob"):
        run("put", "-", "--principal", name, stdin=b"[1]")
    for principal, owners in (
        ("ann", {"ann", "client:ann"}),
        ("client:ann", {"client:ann"}),
        (token, {"client:ann"}),
        ("client:bob", set()),
    ):
        assert {stored["principal"] for stored in run("ls", "--principal", principal).json} == owners
        assert {event["principal"] for event in run("journal", "--principal", principal).json} == owners
        assert run("journal", "summary", "--principal", principal).json["handles"] == len(owners)
        assert run("stats", "--principal", principal).json["storage"]["payloads"] == len(owners)
    (stored,) = run("ls", "--principal", "client:ann").json
    assert run("stat", stored["output_handle"]).json["principal"] == "client:ann"


def test_references_lead_to_their_handles(handle: str) -> None:
    for reference in (f"ax://bugs/scan-7~{handle}", f"forebay://output/{handle}?offset=1"):
        assert run("stat", reference).json["output_handle"] == handle
    assert run("rm", f"ax://bugs/scan-7~{handle}").json == {"removed": [handle]}


def test_rm_tells_of_each(handle: str) -> None:
    other = run("put", "-", stdin=b"x").json["output_handle"]
    result = run("rm", UNKNOWN, handle, "../x", other)
    assert result.code == 3
    assert json.loads(result.out) == {"removed": [handle, other]}
    errors = [json.loads(line)["error"] for line in result.err.splitlines()]
    assert [error["code"] for error in errors] == ["output_handle_not_found"] * 2
    assert [name in error["message"] for name, error in zip((UNKNOWN, "../x"), errors, strict=True)] == [True, True]
    assert run("ls").json == []


def test_version() -> None:
    assert run("--version") == (0, f"forebay {forebay.__version__}\n".encode(), b"")


def test_help_goes_to_standard_output(home: Path) -> None:
    result = run("--help")
    assert (result.code, result.err) == (0, b"")
    for command in ("put", "ls", "fetch", "search", "outline", "stat", "rm", "sweep", "journal", "cat", "get"):
        assert command.encode() in result.out
    for code in (b"0    success", b"3    handle not found", b"130  interrupted"):
        assert code in result.out
    assert not home.exists()


def test_help_says_what_is_counted() -> None:
    text = " ".join(run("fetch", "--help").out.decode().split())
    for words in ("items items of the main array or map", "text bytes of text", "data of all principals"):
        assert words in text


COMMANDS = [
    "export",
    "mirror",
    "query",
    *(name for name in commands.__all__ if not name.startswith(("open_", "reject_", "resolve_"))),
]


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_on_80_columns(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, run(*command.replace("_", "-").split(), "--help").out.decode().splitlines())) <= 80


def test_a_pattern_may_begin_with_a_dash(home: Path) -> None:
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        handle = store.put("a -b --c -5").output_handle
    for args in (["--", "-b"], ["--", "--c"], ["-5"]):
        assert len(run("search", handle, *args).json["matches"]) == 1


SLOW = {"rich", "typer", "pydantic", "forebay.store", "zstandard", "asyncio", "orjson"}


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("args", "slow"),
    [
        (["--version"], set()),
        (["fetch", "--help"], set()),
        (["ls"], {"forebay.store", "zstandard", "asyncio", "orjson"}),
    ],
    ids=lambda value: " ".join(sorted(value)),
)
def test_a_command_imports_what_it_uses(args: list[str], slow: set[str]) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "forebay", *args]
    done = subprocess.run(command, capture_output=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}
    assert "forebay.cli.commands" in imported
    # The imports of the store itself are not checked here.
    assert imported & SLOW <= slow


def test_a_wish_for_colours_makes_no_terminal_of_a_pipe(handle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert [stored["output_handle"] for stored in run("ls").json] == [handle]
