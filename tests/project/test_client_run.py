"""The run of real clients: installation, processes, configuration, and the table. No Node is needed."""

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from clients import launch, run
from clients.checks import CHECKS
from clients.known import CLIENTS
from clients.launch import Client, Launch, Node, NotAvailable, Setup
from clients.script import PROMPT
from clients.tools import ListedTools
from gateway_harness import connect
from waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]


def start_bare(setup: Setup) -> Launch:
    """Return the launch of a client that needs no configuration."""
    return Launch([PROMPT, setup.model_url])


CLIENT = Client("A Client", "a-client", "1.0.0", "a-client/main.py", ListedTools("s_{tool}"), start_bare)


def make_node(folder: Path, npm: str) -> Node:
    """Return a Node whose npm is a script."""
    binary = folder / "wheel" / "bin" / "node"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\n{npm}\n", encoding="utf-8")
    binary.chmod(0o755)
    return Node(folder / "wheel", folder / "packages")


def install(folder: Path, program: str) -> Node:
    """Install a client that is a Python program, and return a Node that cannot install anything."""
    package = folder / "packages" / "a-client" / "node_modules" / "a-client"
    package.mkdir(parents=True)
    (package / "package.json").write_text('{"version": "1.0.0"}', encoding="utf-8")
    main = package / "main.py"
    main.write_text(f"#!{sys.executable}\n{program}", encoding="utf-8")
    main.chmod(0o755)
    return make_node(folder, "exit 3")


def test_a_client_that_npm_cannot_install_is_shown_as_not_run(tmp_path: Path) -> None:
    node = make_node(tmp_path, 'echo "E404 no such version" >&2; exit 1')
    row = run.run_client(CLIENT, node, tmp_path, "")
    assert row.reasons == ["not run: npm could not install it: E404 no such version"]
    table = run.format_table([row])
    assert table.count("not run |") + table.count("not run  ") == len(CHECKS)


def test_a_client_without_a_program_for_the_platform_is_not_available(tmp_path: Path) -> None:
    node = make_node(tmp_path, "exit 0")
    with pytest.raises(NotAvailable, match=r"no a-client/main\.py for this platform"):
        node.install(CLIENT)


def test_a_client_that_ends_without_a_request_is_shown_with_its_last_words(tmp_path: Path) -> None:
    node = install(tmp_path, "import sys; print('wrong key'); sys.exit(7)")
    row = run.run_client(CLIENT, node, tmp_path / "transcripts", "")
    assert row.reasons == ["not run: it ended with 7: wrong key"]
    assert (tmp_path / "transcripts" / "a-client" / "output.txt").read_text(encoding="utf-8") == "wrong key\n"


ASK_ONCE = """
import json, os, sys, urllib.request
body = {"messages": [{"role": "user", "content": sys.argv[1]}], "stream": True,
        "tools": [{"type": "function", "function": {"name": "other"}}]}
request = urllib.request.Request(sys.argv[2] + "/v1/chat/completions", json.dumps(body).encode())
urllib.request.urlopen(request, timeout=30).read()
print(os.environ["HOME"], os.getcwd(), sep="\\n")
"""


def test_a_client_runs_in_a_home_of_its_own_and_its_requests_are_kept(tmp_path: Path) -> None:
    node = install(tmp_path, ASK_ONCE)
    ended = launch.run(CLIENT, node, tmp_path / "transcripts")
    assert ended.problem is None
    folder = tmp_path / "transcripts" / "a-client"
    assert json.loads((folder / "000.json").read_bytes())["messages"][0]["content"] == PROMPT
    home, work = (folder / "output.txt").read_text(encoding="utf-8").splitlines()
    assert home != os.environ.get("HOME")
    assert Path(work) == Path(home) / "work"
    assert not Path(home).exists()


LEAVE_A_DAEMON = """
import subprocess, sys
daemon = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(daemon.pid)
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="daemons are found through /proc")
def test_a_daemon_that_a_client_leaves_is_killed(tmp_path: Path) -> None:
    node = install(tmp_path, LEAVE_A_DAEMON)
    row = run.run_client(CLIENT, node, tmp_path / "transcripts", "")
    assert row.reasons == ["not run: it sent no request with tools to the model"]
    pid = int((tmp_path / "transcripts" / "a-client" / "output.txt").read_text(encoding="utf-8"))
    wait_until(lambda: not is_running(pid))


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_client_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "RUN_SECONDS", 1)
    node = install(tmp_path, "import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    row = run.run_client(CLIENT, node, tmp_path / "transcripts", "")
    assert row.reasons == ["not run: it did not end within 1 s"]
    pid = int((tmp_path / "transcripts" / "a-client" / "output.txt").read_text(encoding="utf-8"))
    assert not is_running(pid)


@pytest.mark.parametrize("client", CLIENTS, ids=[client.id for client in CLIENTS])
def test_a_client_is_configured_with_the_gateway_and_the_model(client: Client, tmp_path: Path) -> None:
    setup = Setup(tmp_path, "http://127.0.0.1:12345", ["gateway", "--option", "value"])
    launched = client.configure(setup)
    files = "".join(path.read_text(encoding="utf-8") for path in tmp_path.rglob("*") if path.is_file())
    assert PROMPT in launched.arguments
    assert "gateway" in files
    assert "--option" in files
    assert "http://127.0.0.1:12345" in files + "".join(launched.environment.values())


def test_the_run_ends_with_an_error_if_a_client_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "read_instructions", str)
    make_node(tmp_path, 'echo "no network" >&2; exit 1')
    document = tmp_path / "clients.md"
    document.write_text(f"# Clients\n\nWritten by hand.\n\n{run.MARKER}\n\nan old table\n", encoding="utf-8")
    arguments = ["--node", str(tmp_path / "wheel"), "--packages", str(tmp_path / "packages")]
    assert run.main([*arguments, "--write", str(document), "codex", "cline"]) == 1
    output = capsys.readouterr().out
    assert "- Cline, not run: npm could not install it: no network" in output
    written = document.read_text(encoding="utf-8")
    assert written.startswith("# Clients\n\nWritten by hand.\n")
    assert written.endswith(output)
    assert "an old table" not in written
    assert datetime.date.today().isoformat() in written


@pytest.mark.slow
def test_the_instructions_are_those_of_the_gateway(tmp_path: Path) -> None:
    with connect(*launch.gateway_command(tmp_path), handshake=False) as server:
        assert server.initialize()["result"].get("instructions", "") == run.read_instructions()


def test_the_table_in_the_docs_has_a_row_for_each_client() -> None:
    text = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
    _, marker, table = text.partition(run.MARKER)
    assert marker
    assert [f"| {client.name} {client.version} " in table for client in CLIENTS] == [True] * len(CLIENTS)


def test_the_run_needs_no_package_to_be_imported() -> None:
    code = "import sys, clients.run; print([name for name in ('mcp', 'pydantic', 'forebay') if name in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr
