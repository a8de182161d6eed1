"""`forebay doctor`: what is wrong with the servers of clients."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from client_home import ClientHome
from command import COMMAND, CommandResult, plain, run, run_on_terminal
from waiting import wait_until
from wires import Servers

pytestmark = [pytest.mark.usefixtures("home"), pytest.mark.slow]

SERVER = [sys.executable, str(Path(__file__).parents[1] / "support" / "plain_server.py")]
WRAP = [*COMMAND, "wrap"]


@pytest.fixture
def clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClientHome:
    return ClientHome(tmp_path, monkeypatch)


def entry(command: list[str], **more: Any) -> dict[str, Any]:
    return {"command": command[0], "args": command[1:], **more}


def file_of(**servers: Any) -> str:
    return json.dumps({"mcpServers": servers})


def check(*args: str) -> tuple[CommandResult, dict[str | None, Any]]:
    """Run the command and return the row of each server by its name."""
    result = run("doctor", *args)
    report = json.loads(result.out)
    assert report["problems"] == sum(len(row["problems"]) for row in report["servers"])
    assert result.code == (1 if report["problems"] else 0)
    assert result.err == b""
    return result, {row["server"]: row for row in report["servers"]}


def test_servers_that_are_well(clients: ClientHome) -> None:
    path = clients.write(
        ".cursor/mcp.json",
        file_of(
            bare=entry(SERVER), behind=entry([*WRAP, "--prefix", "oc_", "--", *SERVER]), off=entry(["x"], disabled=True)
        ),
    )
    toml = f"[mcp_servers.bare]\ncommand = {json.dumps(SERVER[0])}\nargs = {json.dumps(SERVER[1:])}\n"
    clients.write(".codex/config.toml", toml + "startup_timeout_sec = 90\n")
    result = run("doctor")
    assert result.code == 0
    cursor, behind, off, codex = result.json["servers"]
    assert cursor == {
        "client": "Cursor",
        "path": str(path),
        "server": "bare",
        "status": "ok",
        "behind_forebay": False,
        "tools": 2,
        "output_tools": False,
        "start_seconds": cursor["start_seconds"],
        "start_limit_seconds": None,
        "result_limit": None,
        "note": None,
        "problems": [],
    }
    assert cursor["start_seconds"] > 0
    assert (behind["behind_forebay"], behind["tools"], behind["output_tools"]) == (True, 5, True)
    assert (off["status"], off["tools"]) == ("disabled", None)
    assert (codex["client"], codex["tools"], codex["start_limit_seconds"]) == ("Codex", 2, 90)
    assert codex["result_limit"] == "12,000 characters"


def test_servers_that_cannot_be_reached(clients: ClientHome) -> None:
    clients.write(
        ".cursor/mcp.json",
        file_of(
            none=entry(["no-such-command"]),
            gone=entry([*WRAP, "--", "no-such-command"]),
            unwrapped=entry(["/no/such/forebay", "wrap", "--", *SERVER]),
            flag=entry([*WRAP, "--no-such-flag", "--", *SERVER]),
            ends=entry(SERVER, env={"COMPLAINT": "wrong token hunter2-hunter2"}),
            url={"url": "http://127.0.0.1:1/mcp?key=hunter2"},
            no_url={"url": "ftp://x"},
        ),
    )
    result, rows = check()
    assert b"hunter2" not in result.out
    problems = {name: " ".join(row["problems"]) for name, row in rows.items()}
    assert problems["none"] == "no-such-command is no command here; install it, or give its path"
    assert "forebay wrap needs no-such-command, which is no command here" in problems["gone"]
    assert "/no/such/forebay is no command here; run `forebay adopt` with --undo" in problems["unwrapped"]
    assert "there is no --no-such-flag here" in problems["flag"]
    assert problems["ends"] == (
        "the server ended before it answered initialize; run it alone to see why; its last words: ***"
    )
    assert problems["url"] == "the server cannot be reached: Connection refused; check the URL"
    assert rows["no_url"]["status"] == "not started"
    assert {name for name, row in rows.items() if row["status"] == "problem"} == rows.keys() - {"no_url"}


@pytest.mark.posix
def test_a_server_that_hangs_is_ended(clients: ClientHome, tmp_path: Path) -> None:
    clients.write(".cursor/mcp.json", file_of(hangs=entry([*SERVER, str(tmp_path)], env={"HANGS": "1"})))
    _, rows = check("--timeout", "5")
    assert rows["hangs"]["problems"] == ["the server did not answer initialize within 5 s"]
    pid = int((tmp_path / "log").read_text().split()[1])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.posix
@pytest.mark.usefixtures("default_interrupts")
def test_interrupted_it_ends_what_it_started(clients: ClientHome, tmp_path: Path) -> None:
    clients.write(".cursor/mcp.json", file_of(hangs=entry([*SERVER, str(tmp_path)], env={"HANGS": "1"})))
    command = [*COMMAND, "doctor", "--timeout", "600"]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    log = tmp_path / "log"
    wait_until(lambda: log.exists() and log.read_text().startswith("start "))
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert (child.returncode, out) == (130, b"")
    with pytest.raises(ProcessLookupError):
        os.kill(int(log.read_text().split()[1]), 0)


def test_four_servers_run_at_a_time(clients: ClientHome, tmp_path: Path) -> None:
    """Each server answers only after four have started, so that fewer than four at a time would not do."""
    server = entry([*SERVER, str(tmp_path)], env={"AWAITED": "4"})
    clients.write(".cursor/mcp.json", file_of(**{f"s{number}": server for number in range(7)}))
    _, rows = check("--timeout", "60")
    assert [row["tools"] for row in rows.values()] == [2] * 7
    running = most = 0
    for line in (tmp_path / "log").read_text().splitlines():
        running += 1 if line.startswith("start") else -1
        most = max(most, running)
    assert (running, most) == (0, 4)


def test_a_server_that_starts_too_slowly_for_its_client(clients: ClientHome) -> None:
    clients.write(".cline/data/settings/cline_mcp_settings.json", file_of(slow=entry(SERVER, timeout=0.0001)))
    _, rows = check()
    (problem,) = rows["slow"]["problems"]
    assert "it starts in " in problem
    assert "Cline waits only 0.0001 s" in problem
    assert rows["slow"]["tools"] == 2
    clients.write(".cline/data/settings/cline_mcp_settings.json", file_of(slow=entry(SERVER)))
    assert check()[1]["slow"]["start_limit_seconds"] == 3


def test_what_only_the_client_knows_is_no_problem(clients: ClientHome) -> None:
    server = entry(SERVER, env={"KEY": "${input:key}"})
    clients.write(".config/Code/User/mcp.json", json.dumps({"servers": {"s": server}}))
    _, rows = check()
    assert rows["s"]["status"] == "not started"
    assert "has ${input:key}, which only its client knows" in rows["s"]["note"]


def test_what_strands_handles(clients: ClientHome, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    behind = [*WRAP, "--", *SERVER]
    clients.write(
        "project/.mcp.json",
        file_of(
            well=entry(behind),
            narrow=entry(behind, includeTools=["one", "output_fetch"]),
            denied=entry(behind, disabledTools=["output_search"]),
            rules=entry(behind),
            twice=entry([*WRAP, "--", *behind]),
            elsewhere=entry([*WRAP, "--store", (tmp_path / "other").as_uri(), "--", *SERVER]),
            unwritable=entry([*WRAP, f"--store={(file / 'store').as_uri()}", "--", *SERVER]),
            home=entry(behind, env={"FOREBAY_HOME": str(tmp_path / "third")}),
        ),
    )
    settings = clients.write(".claude/settings.json", '{"permissions": {"allow": ["mcp__rules__one"]}}')
    _, rows = check("--trust-project")
    problems = {name: row["problems"] for name, row in rows.items()}
    assert problems.pop("well") == []
    assert problems.pop("narrow") == [
        "includeTools lacks output_search, output_query; add them, which `forebay adopt` does"
    ]
    assert problems.pop("denied") == ["disabledTools has output_search; take that out"]
    (rule,) = problems.pop("rules")
    assert rule.startswith(f"{settings} has rules for other tools of it; add mcp__rules__output_fetch, mcp__rules__out")
    advice = "`forebay adopt FILE --undo --server NAME` removes one of them"
    assert problems.pop("twice") == [f"it is behind forebay twice; {advice}"]
    (elsewhere,) = problems.pop("elsewhere")
    assert f"it stores in {tmp_path / 'other'}, and well in {tmp_path / 'home'}" in elsewhere
    assert f"its store {file / 'store'} cannot be written" in problems.pop("unwritable")[0]
    assert f"it stores in {tmp_path / 'third'}, and well in" in problems.pop("home")[0]
    assert problems == {}


@pytest.mark.posix
def test_a_server_whose_tools_lack_those_of_forebay(clients: ClientHome, tmp_path: Path) -> None:
    """An entry that only looks like `forebay wrap`."""
    fake = tmp_path / "bin" / "forebay"
    fake.parent.mkdir()
    fake.write_text(f"#!{sys.executable}\nimport runpy, sys\nsys.argv = sys.argv[:1]\n")
    with fake.open("a") as script:
        script.write(f"runpy.run_path({SERVER[1]!r}, run_name='__main__')\n")
    fake.chmod(0o755)
    clients.write(".cursor/mcp.json", file_of(s=entry([str(fake), "wrap", "--", "x"])))
    _, rows = check()
    assert (rows["s"]["tools"], rows["s"]["output_tools"]) == (2, False)
    assert "output_fetch and output_search are not among its tools" in rows["s"]["problems"][0]


def test_a_project_is_started_only_if_it_is_trusted(clients: ClientHome, tmp_path: Path) -> None:
    path = clients.write("project/.mcp.json", file_of(s=entry([*SERVER, str(tmp_path)])))
    _, rows = check()
    assert rows["s"]["status"] == "not started"
    assert "--trust-project starts it" in rows["s"]["note"]
    assert not (tmp_path / "log").exists()
    assert check("--trust-project")[1]["s"]["tools"] == 2
    (tmp_path / "log").unlink()
    assert check(str(path))[1]["s"]["tools"] == 2


def test_secrets_of_a_command_are_not_in_its_errors(clients: ClientHome) -> None:
    code = "import sys; sys.exit(' and '.join(sys.argv[1:]))"
    words = ["--token", "hunter2hunter2", "--key=swordfish9", "plain"]
    # Of a file that is of no client, the time that a server may take is not known either.
    path = clients.write("other.json", file_of(s=entry([sys.executable, "-c", code, *words])))
    result, rows = check(str(path))
    assert (rows["s"]["client"], rows["s"]["start_limit_seconds"]) == (None, None)
    (problem,) = rows["s"]["problems"]
    assert "--token and *** and *** and plain" in problem
    assert b"hunter2" not in result.out
    assert b"swordfish" not in result.out


REMOTE = "redis://127.0.0.1:1/"


def test_stores_on_other_machines_are_checked(clients: ClientHome, monkeypatch: pytest.MonkeyPatch) -> None:
    row = check(f"{REMOTE}0")[1][None]
    assert (row["path"], row["status"], row["server"]) == (f"{REMOTE}0", "problem", None)
    assert "127.0.0.1:1" in row["problems"][0]
    here = run("doctor", (clients.user / "store").as_uri())
    assert here.code == 2
    assert "is on this machine; forebay checks it when it opens it" in here.error["message"]
    monkeypatch.setenv("REDIS_OTHER", "here")
    one, two, off, theirs = ([*WRAP, f"--store={REMOTE}{number}", "--", *SERVER] for number in range(1, 5))
    env = {"REDIS_OTHER": "there", "AWS_REGION": "x"}
    clients.write(".cursor/mcp.json", file_of(one=entry(one), two=entry(two, env=env), off=entry(off, disabled=True)))
    # Nothing that a project file names is contacted, unless it is trusted.
    clients.write("project/.mcp.json", file_of(theirs=entry(theirs)))
    _, rows = check()
    assert any("127.0.0.1:1" in problem for problem in rows["one"]["problems"])
    # With variables that only the server gets, the store is not opened.
    assert rows["two"]["note"] == (
        f"its store was not checked: set REDIS_OTHER, AWS_REGION, and run `forebay doctor {REMOTE}2`"
    )
    assert rows["off"]["problems"] == rows["theirs"]["problems"] == []
    assert rows["theirs"]["status"] == "not started"


def test_files_that_cannot_be_read(clients: ClientHome) -> None:
    clients.write(".cursor/mcp.json", "{")
    clients.write(".config/Code/User/settings.json", "{}")
    _, rows = check()
    assert rows.keys() == {None}
    assert "mcp.json cannot be read as JSON: line 1" in rows[None]["problems"][0]
    other = clients.write("other.json", "{}")
    assert "has no servers" in check(str(other))[1][None]["problems"][0]
    assert "cannot be read" in check(str(other) + "x")[1][None]["problems"][0]
    for name, text in (("forebay.toml", "ttl = '1h'\n"), ("own.toml", "[upstreams.a]\ncommand = 'x'\n")):
        own = clients.write(name, text)
        (problem,) = check(str(own))[1][None]["problems"]
        assert problem.startswith(f"{own} is a configuration of forebay, not of a client; check it with")
        assert f"`forebay serve --config {own}`" in problem
    clients.write(".claude/settings.json", "[")
    path = clients.write("project/.mcp.json", file_of(s=entry([*WRAP, "--", *SERVER])))
    assert "settings.json cannot be read as JSON" in check(str(path))[1]["s"]["problems"][0]


@pytest.mark.posix
def test_without_files_all_is_well(clients: ClientHome) -> None:
    assert clients.read_all() == {}
    assert run("doctor").json == {"servers": [], "problems": 0}
    shown = run_on_terminal("doctor")
    assert shown.code == 0
    assert " ".join(plain(shown.out).split()) == (
        "no servers in the files of 14 clients, in your home and in this folder; "
        "`forebay doctor PATH` checks another file"
    )
    for timeout in ("0", "-1", "nan", "inf"):
        assert run("doctor", "--timeout", timeout).error["code"] == "invalid_argument"


SCRIPT = "mcp_server.py"


@pytest.mark.parametrize("flags", [(), ("events",), ("stateless",), ("old",)], ids="-".join)
def test_servers_at_a_url(flags: tuple[str, ...], clients: ClientHome, servers: Servers) -> None:
    url = f"http://127.0.0.1:{servers.port(None, *flags)}/{'sse' if 'old' in flags else 'mcp'}"
    clients.write(".cursor/mcp.json", file_of(s={"url": url}))
    _, rows = check()
    assert (rows["s"]["status"], rows["s"]["output_tools"]) == ("ok", False)
    assert rows["s"]["tools"] > 2


def test_a_server_that_wants_a_sign_in(clients: ClientHome, servers: Servers) -> None:
    url = f"http://127.0.0.1:{servers.port(None, 'guarded')}/mcp"
    clients.write(
        ".cursor/mcp.json",
        file_of(
            none={"url": url},
            right={"url": url, "headers": {"Authorization": "Bearer ann"}},
            wrong={"url": url, "headers": {"Authorization": "Basic hunter2"}},
        ),
    )
    result, rows = check()
    assert rows["none"]["status"] == "not checked"
    assert "wants a sign-in" in rows["none"]["note"]
    assert (rows["right"]["status"], rows["wrong"]["status"]) == ("ok", "problem")
    assert rows["wrong"]["problems"] == ["the server answered 401: it wants other credentials"]
    assert b"hunter2" not in result.out


@pytest.mark.posix
def test_on_a_terminal_it_is_a_table(clients: ClientHome) -> None:
    path = clients.write(".cursor/mcp.json", file_of(well=entry(SERVER), none=entry(["no-such-command"])))
    result = run_on_terminal("doctor")
    lines = plain(result.out).splitlines()
    assert result.code == 1
    assert lines[0].split() == ["client", "server", "status", "tools", "start"]
    assert lines[1].split()[:4] == ["Cursor", "well", "ok", "2"]
    assert lines[2].split() == ["Cursor", "none", "problem"]
    assert f"{path}: none: no-such-command is no command here; install it, or give its path" in lines


def test_it_needs_no_sdk(clients: ClientHome) -> None:
    clients.write(".cursor/mcp.json", file_of(s=entry(SERVER), url={"url": "http://127.0.0.1:1"}))
    code = (
        "import sys; sys.modules.update(mcp=None, httpx2=None, fastmcp=None); sys.argv[1:] = ['doctor']\n"
        "from forebay.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    rows = json.loads(done.stdout)["servers"]
    assert [(row["tools"], len(row["problems"])) for row in rows] == [(2, 0), (None, 1)]
