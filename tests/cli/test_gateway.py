"""The commands of the gateway: wrap, serve, config and adopt."""

import json
import os
import re
import stat
import subprocess
import sys
import types
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from client_files import CLAUDE_CODE_USER, CLAUDE_DESKTOP, CURSOR, FILES
from command import COMMAND, plain, run, run_on_terminal
from forebay import InvalidArgument
from forebay.cli.parser import parse_arguments
from forebay.config.files import FileNotChanged, replace_file
from forebay.config.options import OPTIONS

pytestmark = pytest.mark.usefixtures("home")

INSTALLED = "cmd" if sys.platform == "win32" else "cat"
"""A command that is installed on every system."""


def parse(*words: str, monkeypatch: pytest.MonkeyPatch) -> Namespace:
    monkeypatch.setattr(sys, "argv", ["forebay", *words])
    return parse_arguments("")


@pytest.fixture
def run_calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Replace the functions that run the gateway, and return the list of their arguments."""
    calls: list[Any] = []
    for name in ("forebay.proxy.wrap", "forebay.hub.run"):
        module = types.ModuleType(name)
        module.run = lambda *arguments: calls.append(arguments) or 0  # type: ignore[attr-defined, func-returns-value]
        module.run_url = module.run  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)
    return calls


def test_everything_behind_the_dashes_is_the_commands_own(
    run_calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [INSTALLED, "--output-mode", "x", "--", "--help"]
    args = parse("wrap", "--output-mode", "handle", "--contract", "--", *words, monkeypatch=monkeypatch)
    with pytest.raises(SystemExit):
        args.run(args)
    ((settings, command),) = run_calls
    assert command == words
    assert (settings.output_mode, settings.contract) == ("handle", True)


def test_a_url_is_wrapped_without_a_command(run_calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "t")
    words = ["--url", "https://x/mcp", "--header", "A: ${TOKEN}", "--header", "B: c", "--no-journal"]
    args = parse("wrap", *words, monkeypatch=monkeypatch)
    with pytest.raises(SystemExit):
        args.run(args)
    ((settings, url, headers),) = run_calls
    assert (url, headers) == ("https://x/mcp", ["A: t", "B: c"])
    assert settings.headers == {"A": "t", "B": "c"}


def test_serve_takes_a_configuration(
    run_calls: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "forebay.toml"
    path.write_text(f'[upstreams.a]\ncommand = "{INSTALLED}"\n')
    args = parse("serve", "--config", str(path), "--http", "127.0.0.1:0", monkeypatch=monkeypatch)
    with pytest.raises(SystemExit):
        args.run(args)
    ((settings,),) = run_calls
    assert (settings.http, list(settings.upstreams)) == (("127.0.0.1", 0), ["a"])
    # Commands that cannot be run are only reported: other upstreams are served.
    for command, warning in (
        ("no-such-command", "the upstream a needs no-such-command"),
        (f"{INSTALLED} -n x", f"no command here; {INSTALLED} alone is the command; -n x goes into args"),
    ):
        path.write_text(f'[upstreams.a]\ncommand = "{command}"\n')
        with pytest.raises(SystemExit):
            args.run(args)
        assert warning in caplog.text
    assert len(run_calls) == 3


def test_serve_warns_of_tokens_without_http(
    run_calls: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "forebay.toml"
    path.write_text('token_file = "tokens"\n[upstreams.a]\ncommand = "cat"\n')
    for words, warnings in (([], 1), (["--http", "127.0.0.1:0"], 0)):
        caplog.clear()
        args = parse("serve", "--config", str(path), *words, monkeypatch=monkeypatch)
        with pytest.raises(SystemExit):
            args.run(args)
        assert (
            sum("tokens have no effect without --http" in record.getMessage() for record in caplog.records) == warnings
        )
    assert len(run_calls) == 2


def test_serve_names_what_is_to_be_installed_for_it(tmp_path: Path) -> None:
    path = tmp_path / "forebay.toml"
    path.write_text(f'[upstreams.a]\ncommand = "{INSTALLED}"\n')
    # In another process, because other tests need the modules that this one lacks.
    code = (
        f"import sys; sys.modules['jsonschema_rs'] = None; sys.argv[1:] = ['serve', '--config', {str(path)!r}]\n"
        "from forebay.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 2
    error = json.loads(done.stderr)["error"]
    assert error["code"] == "missing_extra"
    assert re.match(r"forebay serve .* jsonschema_rs .*: pip install 'forebay\[serve\]'", error["message"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["wrap"], "there is nothing to wrap"),
        (["wrap", "--"], "there is nothing to wrap"),
        (["wrap", "--url", "http://x", "--", "cat"], "a command and a url (from --url)"),
        (["wrap", "--", "no-such-command"], "needs no-such-command, which is no command here"),
        (["wrap", "cat"], "cat is not understood here; if it is a command, put -- before it"),
        (["wrap", "--output-mod", "auto", "--", "cat"], "there is no --output-mod here; the nearest is --output-mode"),
        (["wrap", "--output-mod=auto", "--", "cat"], "the nearest is --output-mode"),
        (["wrap", "--output-mode", "all", "--", "cat"], "--output-mode is one of inline, handle, auto, not 'all'"),
        (["wrap", "--redact", "(", "--", "cat"], "--redact: '(' cannot be redacted"),
        (["wrap", "--redact", "sk-(", "--", "cat"], "mend it, or put a backslash before what is no operator: \\("),
        (["wrap", "--http", "x:1", "--", "cat"], "there is no --http here: it is an option of `forebay serve`;"),
        (["wrap", "--tool-prefix", "a_", "--", "cat"], "there is no --tool-prefix here: use prefix;"),
        (["serve", "--max-sessions", "9"], "there is no --max-sessions here: raise max_connections;"),
        (["wrap", "--output-handle-ttl-hours", "x", "--", "cat"], "--output-handle-ttl-hours is a number of hours"),
        (["wrap", "--", "/"], "forebay wrap needs /, which is a folder; name a command in it"),
        pytest.param(
            ["wrap", "--", __file__],
            f"{__file__}, which is not executable; run chmod +x",
            marks=pytest.mark.posix,
        ),
        (["wrap", "--", f"{INSTALLED} -n"], f"{INSTALLED} -n, which is no command here; leave out the quotes"),
        (
            ["wrap", "--file-root", "/", "--", "cat"],
            "--file-root has no effect without references to files; give --file-refs too",
        ),
        (["serve", "--url", "http://x"], "of `forebay wrap`, and the key url of an upstream;"),
        (["serve", "--header", "A: b"], "of `forebay wrap`, and the key headers of an upstream;"),
        (["serve"], "there is nothing to serve"),
        (["serve", "--config", "/none/forebay.toml"], "cannot be read"),
        (["adopt"], "PATH"),
        (["adopt", "/none/x.json"], "cannot be read"),
        (
            ["adopt", "/none/x.json", "--url", "http://x"],
            "--url here: each server of the file has its own;",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_2(words: list[str], expected: str) -> None:
    result = run(*words)
    assert (result.code, result.error["code"]) == (2, "invalid_argument")
    assert expected in result.error["message"]


def test_what_is_logged_names_forebay_once() -> None:
    script = "import logging; from forebay.cli import gateway; gateway._configure_logging('warning')\n"
    script += "for text in ('forebay: one', 'two'): logging.getLogger('forebay').warning(text)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stderr == "forebay: WARNING: one\nforebay: WARNING: two\n"


@pytest.mark.slow
def test_every_option_has_its_flag() -> None:
    help_words = {
        command: run(command, "--help").out.decode().split() for command in ("wrap", "serve", "config", "adopt")
    }
    for option in OPTIONS.values():
        for command in ("wrap", "serve"):
            assert any(word.rstrip(",") == option.flag for word in help_words[command]) is (command in option.commands)
        assert option.flag in help_words["config"] or f"{option.flag}," in help_words["config"]
    assert "--adopted" not in help_words["wrap"]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["wrap", "serve", "config", "adopt", "doctor"])
def test_help_fits_on_80_columns(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, run(command, "--help").out.decode().splitlines())) <= 80


def test_help_imports_no_table_of_options() -> None:
    result = subprocess.run(
        [sys.executable, "-X", "importtime", *COMMAND[1:], "--help"], capture_output=True, check=True
    )
    assert b"forebay.cli.gateway" in result.stderr
    assert b"forebay.proxy" not in result.stderr
    assert b"dataclasses" not in result.stderr


NOT_NEEDED_AT_START = {
    *("asyncio", "difflib", "hashlib", "http.client", "importlib.resources", "secrets", "ssl", "tomllib"),
    *("forebay.cli.bench", "forebay.cli.commands", "forebay.cli.doctor", "forebay.cli.view", "forebay.hub", "mcp"),
    *("forebay.outputs.contract.decorator", "forebay.proxy.http", "forebay.query.process", "pydantic"),
}


def test_wrap_answers_without_modules_that_it_does_not_need_yet(tmp_path: Path) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": "2025-11-25", "capabilities": {}}}
    server = [sys.executable, "-S", "-c", f"input(); print({json.dumps(answer)!r}, flush=True)"]
    command = [sys.executable, "-X", "importtime", *COMMAND[1:], "wrap", "--store", tmp_path.as_uri(), "--", *server]
    done = subprocess.run(command, input=json.dumps(request).encode() + b"\n", capture_output=True, check=True)
    assert json.loads(done.stdout)["id"] == 1
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}
    assert "forebay.outputs.policy" in imported
    assert imported & NOT_NEEDED_AT_START == set()


@pytest.mark.posix
@pytest.mark.slow
def test_config_explains_in_a_pipe_and_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_OUTPUT_MODE", "handle")
    rows = {row["name"]: row for row in run("config", "--explain", "--journal").json["options"]}
    assert rows.keys() == OPTIONS.keys()
    assert (rows["output_mode"]["value"], rows["output_mode"]["source"]) == ("handle", "FOREBAY_OUTPUT_MODE")
    assert (rows["journal"]["value"], rows["journal"]["source"]) == (True, "--journal")
    assert [row["name"] for row in run("config", "--journal").json["options"]] == ["output_mode", "journal"]
    screen = plain(run_on_terminal("config", "--explain").out)
    assert '--output-mode  "handle"' in screen
    assert "None" not in screen
    assert "()" not in screen
    assert "FOREBAY_OUTPUT_MODE" in screen
    for option in OPTIONS.values():
        assert option.flag in screen


@pytest.mark.posix
def test_config_names_the_folder_of_the_store(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    linked = (tmp_path / "link" / "store").as_uri()
    for words, path in ((["--explain"], home), (["--store", linked], tmp_path / "store")):
        rows = {row["name"]: row for row in run("config", *words).json["options"]}
        assert rows["store"]["path"] == str(path)
        assert f"the folder is {path}" in plain(run_on_terminal("config", *words).out)
    monkeypatch.setenv("FOREBAY_HOME", "relative")
    monkeypatch.chdir(tmp_path)
    assert f"the folder is {tmp_path / 'relative'}" in plain(run_on_terminal("config", "--explain").out)
    assert run("config", "--store", "ftp://host").error["code"] == "invalid_argument"


@pytest.mark.posix
@pytest.mark.usefixtures("home")
def test_config_shows_upstreams_without_secrets(tmp_path: Path) -> None:
    path = tmp_path / "forebay.toml"
    path.write_text(
        '[upstreams.files]\ncommand = "npx"\nargs = ["--token", "hunter2"]\n[upstreams.files.env]\n"A B" = "hunter2"\n'
        '[upstreams.web]\nurl = "https://example.com/mcp"\n'
    )
    lines = plain(run_on_terminal("config", "--config", str(path)).out).splitlines()
    shown = lines[lines.index("[upstreams.files]") :]
    assert [line.strip() for line in shown] == [
        "[upstreams.files]",
        'command = "npx"',
        'args = ["--token", "***"]',
        'env = { "A B" = "***" }',
        "[upstreams.web]",
        'url = "https://example.com/mcp"',
    ]


@pytest.mark.posix
@pytest.mark.usefixtures("home")
def test_config_says_that_nothing_is_set() -> None:
    screen = plain(run_on_terminal("config").out)
    assert "no option is set; `forebay config --explain` prints all options and their defaults" in screen
    assert "no option is set" not in plain(run_on_terminal("config", "--journal").out)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--http", "0.0.0.0:8000"], "other machines can reach 0.0.0.0; give --token-file"),
        (["--file-root", "/srv"], "give --file-refs"),
    ],
)
def test_config_refuses_what_the_others_would(words: list[str], expected: str) -> None:
    result = run("config", *words)
    assert (result.code, result.error["code"]) == (2, "invalid_argument")
    assert expected in result.error["message"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "claude_desktop_config.json"
    path.write_bytes(CLAUDE_DESKTOP.encode())
    path.chmod(0o640)
    return path


def test_adopt_shows_before_it_writes(file: Path) -> None:
    result = run("adopt", str(file), "--forebay", "uvx forebay", "--server", "plain", "--journal")
    assert result.code == 0
    assert b'+      "command": "uvx",\n' in result.out
    assert b'-      "command": "my-server"\n' in result.out
    assert b"--write changes plain" in result.err
    assert b"hunter2" not in result.out + result.err
    assert file.read_text() == CLAUDE_DESKTOP
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_what_adopt_shows_has_no_secrets(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(FILES[name].encode())
    for words in ([], ["--write"], ["--undo"]):
        result = run("adopt", str(path), *words)
        assert result.code == 0
        assert b"@@" in result.out
        assert b"hunter2" not in result.out + result.err


@pytest.mark.slow
def test_adopt_says_which_project_and_that_nobody_signs_in(file: Path) -> None:
    file.write_text(CLAUDE_CODE_USER)
    result = run("adopt", str(file))
    assert b"--write changes db, db of /home/ann/shop, github of /home/ann/shop, db of /home/ann/notes" in result.err
    note = b"github of /home/ann/shop: if the client signs in to this server with OAuth, forebay cannot do that; "
    assert note in result.err
    assert result.err.count(b"OAuth") == 1
    assert b"OAuth" not in run("adopt", str(file), "--server", "db").err


@pytest.mark.posix
@pytest.mark.slow
def test_adopt_writes_keeps_a_backup_and_undoes(file: Path) -> None:
    backup = file.with_name(file.name + ".forebay-backup")
    assert run("adopt", str(file), "--write", "--tool", "a=auto", "--file-refs", "--file-root", ".").code == 0
    adopted = json.loads(file.read_text())["mcpServers"]["plain"]
    args = ["wrap", "--tool=a=auto", "--file-refs", f"--file-root={Path.cwd()}", "--adopted=no-args", "--", "my-server"]
    assert [adopted["command"], *adopted["args"]] == [*COMMAND, *args]
    assert backup.read_text() == CLAUDE_DESKTOP
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, backup)] == [0o640, 0o640]
    again = run("adopt", str(file), "--write")
    assert (again.code, again.out) == (0, b"")
    assert b"there is nothing to change" in again.err
    assert run("adopt", str(file), "--write", "--undo").code == 0
    assert file.read_text() == CLAUDE_DESKTOP
    assert backup.read_text() == CLAUDE_DESKTOP
    assert sorted(path.name for path in file.parent.iterdir() if path.is_file()) == [
        file.name,
        backup.name,
        f"{backup.name}-2",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_client_is_adopted_and_undone(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(FILES[name].encode())
    assert run("adopt", str(path), "--write").code == 0
    assert path.read_bytes() != FILES[name].encode()
    assert run("adopt", str(path), "--write", "--undo").code == 0
    assert path.read_bytes() == FILES[name].encode()


def test_what_an_adopted_file_runs_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(CURSOR)
    run("adopt", str(path), "--write", "--forebay", "forebay", "--output-mode", "handle", "--contract")
    servers = json.loads(path.read_text())["mcpServers"]
    args = parse(*servers["local"]["args"], monkeypatch=monkeypatch)
    assert (args.wrapped_command, args.output_mode) == (["python", "server.py", "--", "-v"], "handle")
    args = parse(*servers["remote"]["args"], monkeypatch=monkeypatch)
    assert (args.wrapped_command, args.url, args.contract) == ([], "http://localhost:3000/mcp", ["true"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--forebay", "uvx something"], "ends with forebay"),
        (["--forebay", "'"], "cannot be read"),
        (["--undo", "--journal"], "leave them out"),
        (["--output-mode", "x"], "one of inline, handle, auto"),
        (["--server", "plan"], "did you mean plain?"),
    ],
)
def test_what_adopt_refuses(words: list[str], expected: str, file: Path) -> None:
    result = run("adopt", str(file), "--write", *words)
    assert (result.code, file.read_text()) == (2, CLAUDE_DESKTOP)
    assert expected in result.error["message"]


@pytest.mark.posix
def test_the_running_forebay_goes_in_by_its_own_path(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "bin" / "forebay"
    installed.parent.mkdir()
    installed.symlink_to(tmp_path / "versions" / "1" / "forebay")
    args = parse("adopt", str(file), "--write", monkeypatch=monkeypatch)
    monkeypatch.setattr(sys, "argv", [str(installed)])
    args.run(args)
    assert json.loads(file.read_text())["mcpServers"]["plain"]["command"] == str(installed)


@pytest.mark.posix
@pytest.mark.slow
def test_a_link_stays_a_link(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(file)
    assert run("adopt", str(link), "--write").code == 0
    assert link.is_symlink()
    assert "forebay" in file.read_text()


def test_backups_are_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"1")
    assert replace_file(str(path), b"1", b"2").name == "f.forebay-backup"
    assert replace_file(str(path), b"2", b"1").name == "f.forebay-backup-2"
    assert replace_file(str(path), b"1", b"3").name == "f.forebay-backup"
    assert [(tmp_path / f"f.forebay-backup{end}").read_bytes() for end in ("", "-2")] == [b"1", b"2"]


def test_what_was_changed_meanwhile_is_left(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"theirs")
    with pytest.raises(InvalidArgument, match="changed meanwhile"):
        replace_file(str(path), b"old", b"new")
    assert path.read_bytes() == b"theirs"
    assert not list(tmp_path.glob(".f.*"))


@pytest.mark.parametrize("names", [["f"], ["f", "f.forebay-backup"]], ids=len)
@pytest.mark.parametrize("step", ["fsync", pytest.param("fchmod", marks=pytest.mark.posix)])
def test_what_cannot_be_written_is_as_it_was(
    step: str, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    for name in names:
        (tmp_path / name).write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(FileNotChanged, match="cannot be changed: No space left on device; it is as it was"):
        replace_file(str(path), b"old", b"new")
    assert path.read_bytes() == b"old"
    assert sorted(file.name for file in tmp_path.iterdir()) == names
