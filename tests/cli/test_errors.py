"""Failures of the command: an exit code, a line of JSON in a pipe, text on a terminal, and no traceback."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import forebay
import pytest
from command import COMMAND, UNKNOWN, CommandResult, plain, run, run_on_terminal
from forebay.cli.errors import translate_message
from stores import file_of, payload_files, whole

pytestmark = pytest.mark.slow


def corrupt(home: Path, handle: str) -> None:
    path = file_of(home, handle)
    path.write_bytes(path.read_bytes()[:-3])


@pytest.mark.posix
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
        (["ls", "--store", "ftp://host"], 2, "invalid_argument"),
        (["ls", "--store", "OPEN"], 5, "store_unavailable"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_errors_have_codes(args: list[str], code: int, error: str, home: Path, tmp_path: Path) -> None:
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        names = {kind: store.put(payload).output_handle for kind, payload in KINDS.items()}
    corrupt(home, names["CORRUPT"])
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    names["OPEN"] = (tmp_path / "open").as_uri()
    result = run(*(names.get(arg, arg) for arg in args))
    assert result.error["code"] == error
    assert result.error["message"]
    assert result.code == code
    result = run_on_terminal(*(names.get(arg, arg) for arg in args))
    assert result.code == code
    assert f"{error}: " in plain(result.out)


KINDS: dict[str, object] = {"CORRUPT": [1], "TEXT": "text", "JSON": {"a": [1]}}


@pytest.mark.posix
@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    "args",
    [
        [],
        ["nope"],
        ["fetch"],
        ["fetch", UNKNOWN, "--limit", "x"],
        ["fetch", UNKNOWN, "--lim", "1"],
        ["journal", "nope"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_2(args: list[str]) -> None:
    result = run(*args)
    assert (result.code, result.error["code"]) == (2, "invalid_argument")
    assert "--help` shows how" in result.error["message"]
    result = run_on_terminal(*args)
    assert (result.code, plain(result.out).partition(":")[0]) == (2, "invalid_argument")


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("lss", "there is no command lss; the nearest is ls; `forebay --help` shows how"),
        ("zzzz", "there is no command zzzz; `forebay --help` shows how"),
    ],
)
def test_an_unknown_command_is_answered_with_the_nearest(word: str, message: str) -> None:
    failed = run(word, "--json")
    assert (failed.code, failed.error) == (2, {"code": "invalid_argument", "message": message})


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("args", [["fetch"], ["cat"], ["get", "/a"], ["search", "x"]], ids=lambda args: args[0])
def test_a_file_in_place_of_a_handle_must_be_put_first(args: list[str], tmp_path: Path) -> None:
    path = tmp_path / "small orders.json"
    path.write_text('{"a": 1}')
    failed = run(args[0], str(path), *args[1:])
    assert (failed.code, failed.error["code"]) == (3, "output_handle_not_found")
    assert f"{path} is a file, not a handle; `forebay put '{path}'` stores it" in failed.error["message"]
    assert "forebay put" not in run("rm", str(path)).error["message"]
    assert run("fetch", "x" * 300).error["message"].startswith("nothing is stored under")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("use format='bytes'", "use --format bytes"),
        ("use format='items', or 'text', 'lines' or 'bytes'", "use --format items, or text, lines or bytes"),
        ("use format='text' or 'lines', or name an array", "use --format text or lines, or name an array"),
        ("max_bytes=600 is too small; ask for more", "--max-bytes 600 is too small; ask for more"),
        ("max_bytes must be at least 512, not 3", "--max-bytes must be at least 512, not 3"),
        ("ttl is from 0 seconds to 9", "--ttl is from 0 seconds to 9"),
        ('nothing at path "/max_bytes=5"; outline() shows', 'nothing at path "/max_bytes=5"; `forebay outline` shows'),
        (r'at path "/\"limit=1"', r'at path "/\"limit=1"'),
        ("nothing is stored under 'limit=1'", "nothing is stored under 'limit=1'"),
        ("read_text shows what is there", "`forebay fetch --format text` shows what is there"),
        ("tools_only names 'ttl', but no tool has it", "--tools-only names 'ttl', but no tool has it"),
        ("file_roots: 'file_roots:' is no folder", "--file-root: 'file_roots:' is no folder"),
        ("has expired; call the tool again for a new handle", "has expired; `forebay ls` lists the handles"),
        ("the file is damaged; call the tool again", "the file is damaged; `forebay rm` removes it"),
        ("mend it, or search for it as a literal", "mend it, or leave --regex out"),
    ],
)
def test_errors_speak_the_language_of_the_command(message: str, expected: str) -> None:
    assert translate_message(message) == expected


@pytest.mark.posix
def test_a_format_is_named_as_it_is_typed(handle: str) -> None:
    binary = run("put", "-", stdin=b"\xff").json["output_handle"]
    assert "--format bytes" in run("fetch", binary, "--format", "lines").error["message"]
    assert "--format items" in run("fetch", handle, "--format", "text", "--fields", "id").error["message"]
    assert "--format items" in plain(run_on_terminal("fetch", handle, "--format", "text", "--fields", "id").out)


@pytest.mark.posix
@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("missing", ["missing.json", "a [folder]", "w\udcffeird", "/proc/self/mem"])
def test_a_file_that_cannot_be_read(missing: str, tmp_path: Path) -> None:
    if "folder" in missing:
        (tmp_path / missing).mkdir()
    result = run("put", str(tmp_path / missing))
    assert (result.code, result.error["code"]) == (1, "input_unreadable")
    assert "nothing was stored" in result.error["message"]
    result = run_on_terminal("put", str(tmp_path / missing))
    assert (result.code, plain(result.out).partition(":")[0]) == (1, "input_unreadable")
    assert run("ls").json == []


def shell(script: str, *args: str, stdout: int = subprocess.PIPE) -> CommandResult:
    """Run the command as `$@` of a shell script, which redirects its files."""
    command = ["sh", "-c", script, "sh", *COMMAND, *args]
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, check=False)
    return CommandResult(done.returncode, done.stdout or b"", done.stderr)


@pytest.mark.posix
@pytest.mark.usefixtures("home")
def test_a_closed_standard_input() -> None:
    result = shell('"$@" <&-', "put", "-")
    assert (result.code, result.error["code"]) == (1, "input_unreadable")


@pytest.mark.posix
@pytest.mark.parametrize("script", ['"$@" >/dev/full', '"$@" >&-'])
@pytest.mark.parametrize("command", ["ls", "journal", "stat", "cat", "fetch", "fetch --raw"])
def test_an_output_that_cannot_be_written(script: str, command: str, handle: str) -> None:
    takes_handle = command not in ("ls", "journal")
    result = shell(script, *command.split(), *[handle] * takes_handle)
    assert (result.code, result.error["code"]) == (1, "output_unwritable")


@pytest.mark.posix
def test_help_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    result = shell('"$@" >/dev/full', "--help")
    assert (result.code, result.error["code"]) == (1, "output_unwritable")


@pytest.mark.posix
@pytest.mark.parametrize("script", ['"$@" >/dev/full', '"$@" >&-', '"$@"'], ids=["full", "closed", "broken"])
def test_what_is_stored_is_not_lost_for_want_of_an_output(
    script: str, home: Path, tmp_path: Path, broken_pipe: int
) -> None:
    (tmp_path / "payload").write_bytes(b"kept")
    result = shell(script, "put", str(tmp_path / "payload"), stdout=broken_pipe)
    assert (result.code, result.error["code"]) == (1, "output_unwritable")
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        (stored,) = store.list()
        assert f"the payload is stored under {stored.output_handle}" in result.error["message"]
        assert whole(store, stored.output_handle) == b"kept"


@pytest.fixture
def broken_pipe() -> Iterator[int]:
    """A pipe whose reading end is closed."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.mark.parametrize("args", [["fetch"], ["fetch", "--raw"], ["cat"], ["stat"]], ids=" ".join)
def test_whoever_has_seen_enough_may_leave(args: list[str], handle: str, broken_pipe: int) -> None:
    done = subprocess.run([*COMMAND, *args, handle], stdout=broken_pipe, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.posix
@pytest.mark.parametrize(
    "args",
    [
        ["\udcff"],
        ["fetch", "\udcff"],
        ["fetch", "HANDLE", "--path", "/\udcff"],
        ["fetch", "HANDLE", "--fields", "\udcff"],
        ["fetch", "HANDLE", "--format", "\udcff"],
        ["get", "HANDLE", "/\udcff"],
        ["search", "HANDLE", "\udcff"],
        ["stat", "HANDLE", "--principal", "\udcff"],
        ["put", "-", "--principal", "\udcff"],
        ["rm", "\udcff"],
        ["ls", "--store", "\udcff"],
        ["ls", "--\udcff"],
    ],
    ids=ascii,
)
def test_arguments_that_are_no_text(args: list[str], handle: str) -> None:
    args = [arg.replace("HANDLE", handle) for arg in args]
    result = run(*args)
    assert (result.code, result.error["code"]) in [
        (2, "invalid_argument"),
        (3, "output_handle_not_found"),
        (6, "path_not_found"),
    ]
    result.error["message"].encode()
    assert run_on_terminal(*args).code == result.code


@pytest.mark.posix
@pytest.mark.usefixtures("default_interrupts")
def test_an_interrupted_put_stores_nothing(home: Path) -> None:
    child = subprocess.Popen([*COMMAND, "put", "-"], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdin is not None
    # A pipe holds less than that, so the command has begun to read.
    child.stdin.write(b"text " * (1 << 20))
    child.send_signal(signal.SIGINT)
    _, err = child.communicate()
    assert child.returncode == 130
    assert json.loads(err)["error"]["code"] == "interrupted"
    assert payload_files(home) == []


@pytest.mark.usefixtures("home")
def test_a_large_put_warns_of_nothing(tmp_path: Path) -> None:
    with (tmp_path / "payload").open("wb") as file:
        file.truncate(101_000_000)
    assert run("put", str(tmp_path / "payload")).json["size_bytes"] == 101_000_000


@pytest.mark.posix
@pytest.mark.usefixtures("home")
def test_without_a_standard_error_the_exit_code_is_left() -> None:
    assert shell('"$@" 2>&-', "stat", UNKNOWN) == (3, b"", b"")


def test_a_very_long_message_is_cut_in_the_middle() -> None:
    message = translate_message("limit must be a number, not " + "x" * 100_000 + " in all")
    assert message.startswith("--limit must be a number, not xxx")
    assert message.endswith("xxx in all")
    assert " … " in message
    assert len(message) < 2100


def test_the_extra_of_the_dashboard_is_named(tmp_path: Path) -> None:
    code = "import sys; sys.modules['uvicorn'] = None; from forebay.cli import main; main()"
    command = [sys.executable, "-c", code, "dashboard", "--store", tmp_path.as_uri()]
    finished = subprocess.run(command, capture_output=True, check=False)
    assert finished.returncode == 2
    assert "pip install 'forebay[serve]'" in json.loads(finished.stderr)["error"]["message"]


def test_an_option_that_is_already_a_flag_is_not_translated_again() -> None:
    assert translate_message("--ttl is a number of seconds") == "--ttl is a number of seconds"
    assert translate_message("FOREBAY_TTL: ttl is a number of seconds") == "FOREBAY_TTL: ttl is a number of seconds"
    assert translate_message("ttl is from 0 seconds") == "--ttl is from 0 seconds"
