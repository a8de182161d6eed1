"""The command: JSON and nothing else in a pipe, tables on a terminal, exit codes that mean something."""

import base64
import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import headgate
import pytest
from headgate import cli
from stores import file_of, whole

COMMAND = [sys.executable, "-m", "headgate"]
ROWS = [{"id": number, "name": f"name [{number}]"} for number in range(300)]
UNKNOWN = "oh_" + "A" * 12


class Ran(NamedTuple):
    code: int
    out: bytes
    err: bytes

    @property
    def json(self) -> Any:
        """All that was printed, which is one line of JSON."""
        assert (self.code, self.err) == (0, b"")
        assert self.out.count(b"\n") == 1
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        assert self.out == b""
        assert self.err.count(b"\n") == 1
        return json.loads(self.err)["error"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HEADGATE_STORE", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HEADGATE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path / "home"


@pytest.fixture
def handle(home: Path) -> str:
    """A handle of some rows. What is stored by the library, the command finds."""
    with headgate.open_store(home.as_uri(), sweep_interval=0) as store:
        return store.put({"rows": ROWS}, source_tool="list_rows").output_handle


def run(*args: str, stdin: bytes = b"") -> Ran:
    """Runs the command with pipes."""
    done = subprocess.run([*COMMAND, *args], input=stdin, capture_output=True, check=False)
    return Ran(done.returncode, done.stdout, done.stderr)


def run_on_terminal(*args: str, only: str = "") -> Ran:
    """Runs the command on a terminal: out and err are what appears on it, or with `only` just that one is one."""
    screen, terminal = pty.openpty()
    out = terminal if only != "err" else subprocess.PIPE
    err = terminal if only != "out" else subprocess.PIPE
    child = subprocess.Popen([*COMMAND, *args], stdin=subprocess.DEVNULL, stdout=out, stderr=err)
    os.close(terminal)
    shown = bytearray()
    # Linux ends a terminal that nobody holds any more with an error.
    with contextlib.suppress(OSError):
        while more := os.read(screen, 65536):
            shown += more
    os.close(screen)
    piped_out, piped_err = child.communicate()
    return Ran(
        child.returncode,
        bytes(shown) if piped_out is None else piped_out,
        piped_err or b"" if only == "out" else bytes(shown),
    )


def corrupt(home: Path, handle: str) -> None:
    path = file_of(home, handle)
    path.write_bytes(path.read_bytes()[:-3])


def test_the_command_is_installed() -> None:
    (entry,) = (entry for entry in metadata.entry_points(group="console_scripts") if entry.name == "headgate")
    assert entry.load() is cli.main


def test_put_from_a_file_and_from_standard_input(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "payload.json"
    path.write_bytes(json.dumps(ROWS).encode())
    from_file = run("put", str(path)).json
    from_input = run("put", "-", stdin=path.read_bytes()).json
    assert from_file.keys() == from_input.keys()
    for descriptor in (from_file, from_input):
        assert (descriptor["item_count"], descriptor["mime_type"]) == (300, "application/json")
        with headgate.open_store(home.as_uri(), sweep_interval=0) as store:
            assert whole(store, descriptor["output_handle"]) == path.read_bytes()


def test_put_takes_a_type_a_time_and_a_store(home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    put = run("put", "-", "--mime-type", "text/csv", "--ttl", "60", "--store", elsewhere.as_uri(), stdin=b"a,b\n").json
    assert put["mime_type"] == "text/csv"
    assert not home.exists()
    (stored,) = run("ls", "--store", elsewhere.as_uri()).json
    assert stored["output_handle"] == put["output_handle"]
    assert stored["source_tool"] == "headgate put"


def test_fetch(handle: str) -> None:
    page = run("fetch", handle).json
    assert (page["content"], page["next_offset"]) == (ROWS[:200], 200)
    page = run("fetch", handle, "--offset", "290", "--limit", "5", "--fields", "id").json
    assert page["content"] == [{"id": number} for number in range(290, 295)]
    page = run("fetch", handle, "--path", "/rows/7", "--format", "text").json
    assert json.loads(page["content"]) == ROWS[7]
    page = run("fetch", handle, "--format", "bytes", "--limit", "8").json
    assert base64.b64decode(page["content"]) == b'{"rows":'
    assert len(run("fetch", handle, "--max-bytes", "1000").out) <= 1001


def test_search(handle: str) -> None:
    found = run("search", handle, "name [29").json
    assert [match["item"] for match in found["matches"]] == [29, *range(290, 300)]
    found = run("search", handle, r"NAME \[1\d\]", "--regex", "-i", "--limit", "3", "--context", "0").json
    assert [match["context"] for match in found["matches"]] == ["name [10]", "name [11]", "name [12]"]
    rest = run("search", handle, r"NAME \[1\d\]", "--regex", "-i", "--start", str(found["next_start"])).json
    assert [match["item"] for match in rest["matches"]] == [13, 14, 15, 16, 17, 18, 19]


def test_outline_stat_and_ls(handle: str) -> None:
    shape = "{rows: [{id: int, name: str}] ×300}"
    assert run("outline", handle).json == {"output_handle": handle, "outline": shape}
    assert len(run("outline", handle, "--max-bytes", "12").json["outline"].encode()) <= 12
    stored = run("stat", handle).json
    assert (stored["output_handle"], stored["item_count"], stored["outline"]) == (handle, 300, shape)
    assert run("ls").json == [stored]


def test_the_operator_sees_what_belongs_to_others(home: Path) -> None:
    with headgate.open_store(home.as_uri(), sweep_interval=0) as store:
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
    told = run("journal").json
    assert [(event["event"], event["handle"]) for event in told] == [
        ("output_handle_deleted", handle),
        ("output_handle_expired", expired),
        ("output_handle_created", expired),
        ("output_handle_created", handle),
    ]
    assert len(run("journal", "--count", "1").json) == 1
    summary = run("journal", "summary").json
    assert summary["handles"] == 2
    assert set(summary["by_tool"]) == {"list_rows", "headgate put"}


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["ls"], ["handle", "application/json", "300", "list_rows", "│"]),
        (["fetch", "HANDLE", "--limit", "2"], ["name [1]", "items: 2 from 0 of 300; more from --offset 2"]),
        (["fetch", "HANDLE", "--offset", "299"], ["name [299]", "the end"]),
        (["fetch", "HANDLE", "--format", "text"], ['{"rows":', "the end"]),
        (["search", "HANDLE", "name [29]"], ["byte", "context", "name [29]", "│"]),
        (["search", "HANDLE", "name", "--limit", "1"], ["more from --start"]),
        (["outline", "HANDLE"], ["{rows: [{id: int, name: str}] ×300}"]),
        (["stat", "HANDLE"], ['"item_count": 300']),
        (["sweep"], ['"kept": 1']),
        (["journal"], ["when", "output_handle_created", "list_rows", "│"]),
        (["journal", "summary"], ['"handles": 1']),
        (["rm", "HANDLE"], ['"removed"', "HANDLE"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_on_a_terminal_it_is_made_for_people(args: list[str], shown: list[str], handle: str) -> None:
    ran = run_on_terminal(*(arg.replace("HANDLE", handle) for arg in args), only="out")
    assert (ran.code, ran.err) == (0, b"")
    text = plain(ran.out)
    assert [part for part in shown if part.replace("HANDLE", handle) not in text] == []
    with pytest.raises(json.JSONDecodeError):
        json.loads(ran.out.decode())


def plain(screen: bytes) -> str:
    """What is on a screen, without its colours."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.decode())


@pytest.mark.parametrize(
    ("args", "code", "error"),
    [
        (["fetch", UNKNOWN], 3, "output_handle_not_found"),
        (["fetch", "../../etc/passwd"], 3, "output_handle_not_found"),
        (["stat", UNKNOWN], 3, "output_handle_not_found"),
        (["rm", UNKNOWN], 3, "output_handle_not_found"),
        (["search", UNKNOWN, "x"], 3, "output_handle_not_found"),
        (["outline", UNKNOWN], 3, "output_handle_not_found"),
        (["fetch", "CORRUPT"], 4, "output_handle_corrupt"),
        (["fetch", "TEXT", "--format", "items"], 6, "invalid_format_for_payload"),
        (["outline", "TEXT"], 6, "invalid_format_for_payload"),
        (["fetch", "JSON", "--path", "/nope"], 6, "path_not_found"),
        (["fetch", "JSON", "--limit", "0"], 2, "invalid_argument"),
        (["search", "JSON", "(", "--regex"], 2, "invalid_argument"),
        (["put", "-", "--ttl", "-1"], 2, "invalid_argument"),
        (["ls", "--store", "s3://bucket"], 2, "invalid_argument"),
        (["ls", "--store", "OPEN"], 5, "store_unavailable"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_errors_have_codes(args: list[str], code: int, error: str, home: Path, tmp_path: Path) -> None:
    with headgate.open_store(home.as_uri(), sweep_interval=0) as store:
        names = {kind: store.put(payload).output_handle for kind, payload in KINDS.items()}
    corrupt(home, names["CORRUPT"])
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    names["OPEN"] = (tmp_path / "open").as_uri()
    ran = run(*(names.get(arg, arg) for arg in args))
    assert ran.error["code"] == error
    assert ran.error["message"]
    assert ran.code == code
    seen = run_on_terminal(*(names.get(arg, arg) for arg in args))
    assert seen.code == code
    assert f"{error}: " in plain(seen.out)


KINDS: dict[str, object] = {"CORRUPT": [1], "TEXT": "text", "JSON": {"a": [1]}}


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("args", [["nope"], ["fetch"], ["fetch", UNKNOWN, "--limit", "x"], ["journal", "nope"]])
def test_wrong_usage_is_2(args: list[str]) -> None:
    ran = run(*args)
    assert (ran.code, ran.out) == (2, b"")
    assert b"Usage" in ran.err


def test_help_goes_to_standard_output(home: Path) -> None:
    ran = run("--help")
    assert (ran.code, ran.err) == (0, b"")
    for command in ("put", "ls", "fetch", "search", "outline", "stat", "rm", "sweep", "journal"):
        assert command.encode() in ran.out
    assert not home.exists()


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("missing", ["missing.json", "a [folder]", "w\udcffeird"])
def test_a_file_that_cannot_be_read(missing: str, tmp_path: Path) -> None:
    if "folder" in missing:
        (tmp_path / missing).mkdir()
    ran = run("put", str(tmp_path / missing))
    assert (ran.code, ran.out) == (1, b"")
    assert ran.err.startswith(b"headgate: ")
    assert b"Traceback" not in ran.err
    assert run("ls").json == []


def test_what_can_be_removed_is(handle: str) -> None:
    ran = run("rm", UNKNOWN, handle)
    assert ran.code == 3
    assert json.loads(ran.out) == {"removed": [handle]}
    assert json.loads(ran.err)["error"]["code"] == "output_handle_not_found"
    assert run("ls").json == []


def test_whoever_has_seen_enough_may_leave(handle: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*COMMAND, "fetch", handle], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


LARGE = 9 << 20


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(("size", "has_bar"), [(1000, False), (LARGE, True)])
def test_a_bar_shows_how_far_a_large_put_is(size: int, has_bar: bool, tmp_path: Path) -> None:
    path = tmp_path / "payload"
    path.write_bytes(b"text " * (size // 5))
    ran = run_on_terminal("put", str(path), only="err")
    assert ran.code == 0
    assert json.loads(ran.out)["size_bytes"] == size // 5 * 5
    assert ("MB" in plain(ran.err)) == has_bar


@pytest.mark.usefixtures("home")
def test_no_bar_in_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "payload"
    path.write_bytes(b"text " * (LARGE // 5))
    assert run("put", str(path)).json["mime_type"] == "text/plain"


HOSTILE = "[/red] [bold]not bold[/] \x1b]0;title\x07 \x1b[2J \x9b31m [link=x]y"


@pytest.mark.parametrize(
    "args",
    [
        ["fetch", "HANDLE", "--format", "text"],
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
    with headgate.open_store(home.as_uri(), sweep_interval=0) as store:
        handle = store.put(HOSTILE, source_tool=HOSTILE).output_handle
    ran = run_on_terminal(*(arg.replace("HANDLE", handle) for arg in args))
    assert b"Traceback" not in ran.out
    assert ran.code in (0, 3, 6)
    assert b"\x1b]0" not in ran.out
    assert b"\x1b[2J" not in ran.out
    assert b"\x07" not in ran.out
    assert "\x9b" not in ran.out.decode()
    if ran.code == 0:
        assert "[/red]" in plain(ran.out)


def test_cut_items_are_named_on_a_terminal(home: Path) -> None:
    with headgate.open_store(home.as_uri(), sweep_interval=0) as store:
        handle = store.put({"[/dim]": [{"a": "x" * 100_000}]}).output_handle
    ran = run_on_terminal("fetch", handle)
    assert ran.code == 0
    assert "cut: /[~1dim]/0, 100,008 bytes in all" in plain(ran.out)
