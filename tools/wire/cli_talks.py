"""Conversations with the command line: stdout, stderr and exit code of every command."""

import json
import os
import pty
import re
import select
import subprocess
import time
from typing import Any

from wire.talk import TIMEOUT_SECONDS, Talk, handle_of
from wire.upstream import PACKAGE, TOOLS, make_rows, make_text

COMMANDS = (
    *("put", "ls", "stat", "fetch", "cat", "get", "search", "outline", "rm", "sweep", "stats", "journal"),
    *("wrap", "serve", "config", "adopt", "token", "lint-tools"),
)

CLIENT_FILE = """{
  // Comments stay.
  "mcpServers": {
    "files": {"command": "npx", "args": ["-y", "some-server", "/data"], "env": {"TOKEN": "t0ken"}},
    "remote": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer s3cret"}},
    "open": {"type": "http", "url": "https://example.com/open"},
    "odd": {"args": []},
  },
  "other": [1.50, "kept"]
}
"""


def record(talk: Talk, name: str, *arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> Any:
    """Run a command, record its exit code and output, and return stdout if it is JSON."""
    output = talk.run(*arguments, stdin=stdin, env=env)
    talk.record(name, output)
    line = output.partition(b"\n")[2].partition(b"\n--- stderr\n")[0]
    try:
        return json.loads(line)
    except ValueError:
        return None


def cli_help(talk: Talk) -> None:
    """Help, versions and wrong usage. Columns depend on the length of the name: runs of spaces count as one."""
    for arguments in (("--help",), (), ("--version",), *((command, "--help") for command in COMMANDS)):
        output = talk.run(*arguments)
        talk.record(f"{' '.join(arguments) or 'no command'}", re.sub(rb" {2,}", b"  ", output))
    for arguments in (
        ("nonsense",),
        ("ls", "--nonsense"),
        ("fetch",),
        ("fetch", "oh_AAAAAAAAAAAA", "--formt", "text"),
        ("fetch", "oh_AAAAAAAAAAAA", "--offset", "x"),
        ("put",),
        ("wrap",),
        ("wrap", "npx"),
        ("wrap", "--http", "127.0.0.1:0", "--", "x"),
        ("wrap", "--output-mode", "sometimes", "--", "cat"),
        ("wrap", "--output-inline-limit-bytes", "much", "--", "cat"),
        ("wrap", "--tool", "x", "--", "cat"),
        ("wrap", "--redact", "(", "--", "cat"),
        ("wrap", "--header", "nonsense", "--url", "http://127.0.0.1:1"),
        ("wrap", "--url", "ftp://x"),
        ("wrap", "--url", "http://127.0.0.1:1", "--", "cat"),
        ("wrap", "--config", "none.toml", "--", "cat"),
        ("wrap", "--", "a command"),
        ("serve",),
        ("serve", "--url", "http://x"),
        ("serve", "--http", "nowhere"),
        ("serve", "--mcp-servers", "none.json"),
        ("journal", "erase"),
        ("token",),
        ("lint-tools",),
        ("adopt",),
        ("adopt", "none.json"),
        ("config", "--nonsense"),
    ):
        record(talk, f"wrong usage: {' '.join(arguments)}", *arguments)


def put_all(talk: Talk) -> dict[str, str]:
    """Store payloads of every kind, and return their handles."""
    store = ("--store", talk.store)
    payloads = {
        "rows.json": json.dumps(make_rows(400)).encode(),
        "wrapped.json": json.dumps({"total": 400, "items": make_rows(400)}).encode(),
        "lines.txt": make_text(40_000).encode(),
        "rows.ndjson": b"".join(json.dumps(row).encode() + b"\n" for row in make_rows(400)),
        "pixels.png": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 100,
        "note.md": b"# Title\n\n- one\n- two\n",
        "empty.txt": b"",
        "small.json": b'{"a": [1, 2.50, null], "b": {"c": "\xc3\xa9"}}',
        "broken.json": b'{"a": [1, 2',
    }
    handles = {}
    for name, data in payloads.items():
        path = talk.file(name, data)
        handles[name] = record(talk, f"put {name}", "put", str(path), *store)["output_handle"]
    typed = ("put", "-", "--mime-type", "text/csv", "--principal", "ann", *store)
    handles["ann"] = record(talk, "put from stdin", *typed, stdin=b"a,b\n1,2\n")["output_handle"]
    record(talk, "put what is not there", "put", str(talk.folder / "none"), *store)
    record(talk, "put a folder", "put", str(talk.folder), *store)
    record(talk, "put with a wrong life", "put", str(talk.folder / "note.md"), "--ttl", "-1", *store)
    return handles


def record_list(talk: Talk, name: str, *arguments: str) -> None:
    """Record a list of payloads. Those of one second come in any order."""
    match = re.fullmatch(rb"(.*?\[\{)(.*)(\}\].*)", talk.run(*arguments), re.DOTALL)
    start, entries, end = match.groups() if match else (b"", b"", b"no list")
    ordered = sorted(map(talk.normalise, entries.split(b"},{")))
    talk.record(name, start + b"},{".join(ordered) + end)


def cli_store(talk: Talk) -> None:
    """Commands on stored payloads."""
    store = ("--store", talk.store)
    record(talk, "ls without a store", "ls", *store)
    handles = put_all(talk)
    unknown = "oh_AAAAAAAAAAAA"
    runs: dict[str, tuple[str, ...]] = {
        "ls of a principal": ("ls", "--principal", "ann"),
        "ls of nobody": ("ls", "--principal", "none"),
        "fetch as another principal": ("fetch", handles["ann"], "--principal", "bob"),
        "fetch as a principal": ("fetch", handles["ann"], "--principal", "ann"),
    }
    for name in handles:
        runs[f"stat {name}"] = ("stat", handles[name])
        runs[f"fetch {name}"] = ("fetch", handles[name])
        runs[f"outline {name}"] = ("outline", handles[name])
        runs[f"cat {name}"] = ("cat", handles[name])
    rows, lines, pixels = handles["rows.json"], handles["lines.txt"], handles["pixels.png"]
    fetches: list[tuple[str, ...]] = [
        (rows, "--limit", "2"),
        (rows, "--offset", "398"),
        (rows, "--offset", "1000"),
        (rows, "--fields", "id,user.city", "--limit", "3"),
        (rows, "--path", "/7"),
        (rows, "--path", "/7/tags"),
        (rows, "--path", "/none"),
        (rows, "--path", "7"),
        (rows, "--format", "text", "--limit", "50"),
        (rows, "--format", "lines"),
        (rows, "--format", "bytes", "--limit", "12"),
        (rows, "--format", "xml"),
        (rows, "--max-bytes", "2000"),
        (rows, "--max-bytes", "100"),
        (rows, "--limit", "2", "--raw"),
        (rows, "--limit", "0"),
        (rows, "--offset", "-1"),
        (lines, "--format", "lines", "--offset", "2", "--limit", "2"),
        (lines, "--format", "lines", "--limit", "2", "--raw"),
        (lines, "--format", "items"),
        (lines, "--max-bytes", "700"),
        (pixels, "--limit", "12"),
        (pixels, "--limit", "12", "--raw"),
        (pixels, "--format", "text"),
        (handles["wrapped.json"], "--limit", "1"),
        (handles["wrapped.json"], "--path", "/items", "--limit", "1"),
        (handles["rows.ndjson"], "--offset", "399"),
        (f"ax://bugs/run~{rows}", "--limit", "1"),
        (unknown,),
        ("nonsense",),
    ]
    for number, arguments in enumerate(fetches):
        runs[f"fetch {number}"] = ("fetch", *arguments)
    searches: list[tuple[str, ...]] = [
        (rows, "naïve 7", "--limit", "2"),
        (rows, r"\u00efve 7", "--limit", "2"),
        (rows, "CITY 3", "-i", "--limit", "1", "--context", "10"),
        (rows, r'"id": 1\d\d', "--regex", "--limit", "2"),
        (rows, "(", "--regex"),
        (rows, "nothing like it"),
        (lines, "timeout", "--limit", "2", "--start", "3000"),
        (lines, "timeout", "--max-bytes", "1000"),
        (pixels, "PNG"),
        (unknown, "x"),
    ]
    for number, arguments in enumerate(searches):
        runs[f"search {number}"] = ("search", *arguments)
    runs |= {
        "get": ("get", rows, "/3"),
        "get all": ("get", handles["small.json"], ""),
        "get what is missing": ("get", rows, "/none"),
        "get in text": ("get", lines, "/a"),
        "get wrongly": ("get", rows, "none"),
        "outline in few bytes": ("outline", handles["wrapped.json"], "--max-bytes", "40"),
        "cat unknown": ("cat", unknown),
        "stat unknown": ("stat", unknown),
        "journal": ("journal", "--count", "3"),
        "journal summary": ("journal", "summary"),
        "journal of a principal": ("journal", "--principal", "ann"),
        "stats": ("stats",),
        "rm": ("rm", handles["note.md"], unknown, handles["empty.txt"]),
        "rm again": ("rm", handles["note.md"]),
    }
    record_list(talk, "ls", "ls", *store)
    for name, arguments in runs.items():
        record(talk, name, *arguments, *store)
    variable = {talk.build.variable("STORE"): talk.store}
    record(talk, "store from a variable", "get", rows, "/0/id", env=variable)
    record(talk, "put into the user's own store", "put", str(talk.folder / "small.json"))
    # Times are listed by the second.
    time.sleep(1.1)
    record(talk, "put another", "put", str(talk.folder / "note.md"))
    record(talk, "ls of the user's own store", "ls")
    record(talk, "wrong store", "ls", "--store", "ftp://x")
    brief = record(talk, "put for a short time", "put", str(talk.folder / "small.json"), "--ttl", "0.2", *store)
    time.sleep(0.5)
    record(talk, "fetch what has expired", "fetch", brief["output_handle"], *store)
    record(talk, "sweep", "sweep", *store)
    record(talk, "sweep again", "sweep", *store)
    (file,) = (talk.folder / "store").rglob(f"{rows}*")
    file.chmod(0o600)
    file.write_bytes(file.read_bytes()[:200])
    record(talk, "fetch what is damaged", "fetch", rows, *store)
    record(talk, "cat what is damaged", "cat", rows, *store)


def cli_stats(talk: Talk) -> None:
    """Sizes of responses that servers have noted; none of them names the package."""
    with talk.wrap("--journal", "--contract", "wrapped") as client:
        client.initialize()
        client.call("text")
        client.call("text", "inline", size=20_000)
        client.call("wrapped", "contract", count=900)
        handle = handle_of(client.call("blob", "handle", size=60_000))
        client.call("output_fetch", "page", output_handle=handle, limit=10)
    # The response with a handle has the name of the package in its address, and is one byte longer or shorter.
    record_list(talk, "ls after calls", "ls", "--store", talk.store)
    output = talk.run("stats", "--store", talk.store)
    blob = re.compile(rb'"blob":\{[^}]*\}')
    talk.record("stats", blob.sub(b'"blob":{}', output))
    output = talk.run("journal", "--store", talk.store, "--count", "20")
    talk.record("journal", re.sub(rb'("tool":"blob","response_bytes":)\d+', rb"\1<bytes>", output))


def cli_config(talk: Talk) -> None:
    """`config`: options from flags, variables and a file, with secrets masked."""
    record(talk, "config", "config")
    record(talk, "config --explain", "config", "--explain")
    path = talk.file(
        "set.toml",
        'output_mode = "handle"\noutput_inline_limit_bytes = "64KiB"\noutput_handle_ttl_hours = 2\n'
        'redact = ["sk-[a-z]+"]\n[tools]\n"crawl*" = "inline"\n'
        '[upstreams.crm]\nurl = "https://crm.example.com/mcp"\nheaders = { Authorization = "Bearer ${CRM}" }\n'
        '[upstreams.files]\ncommand = "npx"\nargs = ["-y", "x"]\nenv = { KEY = "secret" }\n',
    )
    env = {"CRM": "s3cret", talk.build.variable("JOURNAL"): "true", talk.build.variable("HEADER_X_Key"): "k"}
    flags = ("--config", str(path), "--quota-bytes", "1GiB", "--contract", "a*=list")
    record(talk, "config of everything", "config", *flags, env=env)
    record(talk, "config --explain of everything", "config", "--explain", *flags, env=env)
    record(talk, "config without a variable of the file", "config", "--config", str(path))
    record(talk, "unknown variable", "config", env={talk.build.variable("OUTPT_MODE"): "auto"})
    record(talk, "wrong variable", "config", env={talk.build.variable("OUTPUT_MODE"): "x"})
    for name, text in {
        "unknown key": "output_mod = 'auto'\n",
        "unknown table": "[upstream.x]\ncommand = 'a'\n",
        "wrong type": "journal = 'perhaps'\n",
        "wrong size": "quota_bytes = '1 ton'\n",
        "unknown variable": "store = '${NO_SUCH_VARIABLE}'\n",
        "not TOML": "a = = b\n",
    }.items():
        record(talk, f"file: {name}", "config", "--config", str(talk.file("wrong.toml", text)))


def cli_adopt(talk: Talk) -> None:
    """`adopt`: the change to a client's file, made and undone."""
    path = talk.file("client.json", CLIENT_FILE)
    file = str(path)
    own = ("--" + talk.build.name, talk.build.name)
    record(talk, "adopt", "adopt", file)
    record(talk, "adopt one", "adopt", file, "--server", "files", *own)
    record(talk, "adopt an unknown one", "adopt", file, "--server", "none")
    record(talk, "adopt with options", "adopt", file, "--output-mode", "handle", "--journal", "--redact", "a b", *own)
    record(talk, "adopt with a wrong option", "adopt", file, "--output-mode", "x")
    record(talk, "adopt with a url", "adopt", file, "--url", "http://x")
    record(talk, "adopt with another command", "adopt", file, own[0], "npx")
    record(talk, "undo what was not done", "adopt", file, "--undo")
    record(talk, "write", "adopt", file, "--write", "--quota-bytes", "1GiB", *own)
    talk.record("the file", path.read_bytes())
    record(talk, "adopt again", "adopt", file, *own)
    record(talk, "show the undoing", "adopt", file, "--undo")
    record(talk, "undo", "adopt", file, "--undo", "--write")
    talk.record("the file after undoing", path.read_bytes())
    record(talk, "adopt what is no JSON", "adopt", str(talk.file("wrong.json", "{")))
    record(talk, "adopt without servers", "adopt", str(talk.file("none.json", "{}")))
    vscode = '{"servers": {"a": {"type": "stdio", "command": "uvx", "args": ["x"]}}, "inputs": []}'
    record(talk, "adopt a file of VS Code", "adopt", str(talk.file("mcp.json", vscode)), *own)


def cli_tokens(talk: Talk) -> None:
    """`token` and `lint-tools`."""
    secret = re.compile(rb"[\w-]{40,}")
    for arguments in (("token", "ann"), ("token", "ann", "--hashed"), ("token", "a:b"), ("token", "")):
        output = secret.sub(lambda match: b"<%d characters>" % len(match[0]), talk.run(*arguments))
        talk.record(" ".join(arguments), output)
    tools = json.dumps({"result": {"tools": TOOLS}}).replace(f"{PACKAGE}/", f"{talk.build.name}/")
    saved = talk.file("tools.json", tools)
    server = ("--", *talk.upstream())
    every = ("--capability", "*=core")
    record(talk, "lint-tools", "lint-tools", *server)
    record(talk, "lint-tools with capabilities", "lint-tools", *every, *server)
    record(talk, "lint-tools of a saved list", "lint-tools", "--saved", str(saved))
    record(talk, "lint-tools of a saved list with capabilities", "lint-tools", "--saved", str(saved), *every)
    record(talk, "lint-tools of both", "lint-tools", "--saved", str(saved), *server)
    record(talk, "lint-tools of no list", "lint-tools", "--saved", str(talk.file("none.json", "7")))
    record(talk, "lint-tools of no JSON", "lint-tools", "--saved", str(talk.file("none.json", "{")))
    record(talk, "lint-tools of nothing", "lint-tools", "--saved", str(talk.folder / "gone"))
    record(talk, "lint-tools of a wrong pattern", "lint-tools", "--capability", "x", *server)
    record(talk, "lint-tools of a server that ends", "lint-tools", "--", "false")
    record(talk, "lint-tools of no server", "lint-tools", "--", "no-such-command-here")


def run_on_terminal(talk: Talk, *arguments: str) -> bytes:
    """Run a command on a terminal, and return its exit code and output."""
    parent, child = pty.openpty()
    env = {**talk.env, "COLUMNS": "160", "TERM": "xterm"}
    process = subprocess.Popen(
        talk.build.command(*arguments), stdin=child, stdout=child, stderr=child, env=env, cwd=talk.folder
    )
    os.close(child)
    screen = b""
    try:
        while select.select([parent], [], [], TIMEOUT_SECONDS)[0]:
            try:
                data = os.read(parent, 65536)
            except OSError:
                break
            if not data:
                break
            screen += data
        code = process.wait(TIMEOUT_SECONDS)
    finally:
        process.kill()
        os.close(parent)
    return b"exit code %d\n" % code + screen


def cli_terminal(talk: Talk) -> None:
    """Answers on a terminal, as tables and colours. Columns depend on the length of the name."""
    store = ("--store", talk.store)
    handles = put_all(talk)
    rows, lines = handles["rows.json"], handles["lines.txt"]
    for name, arguments in {
        "ls": ("ls", *store),
        "ls of nobody": ("ls", "--principal", "none", *store),
        "stat": ("stat", handles["small.json"], *store),
        "fetch": ("fetch", rows, "--limit", "2", *store),
        "fetch lines": ("fetch", lines, "--format", "lines", "--limit", "2", *store),
        "fetch raw": ("fetch", lines, "--limit", "30", "--raw", *store),
        "cat": ("cat", handles["small.json"], *store),
        "cat of bytes": ("cat", handles["pixels.png"], *store),
        "get": ("get", rows, "/3", *store),
        "search": ("search", lines, "after 59 s", "--limit", "2", *store),
        "outline": ("outline", rows, *store),
        "journal": ("journal", "--count", "4", *store),
        "stats": ("stats", *store),
        "unknown handle": ("fetch", "oh_AAAAAAAAAAAA", *store),
        "config": ("config", "--output-mode", "handle"),
    }.items():
        screen = run_on_terminal(talk, *arguments)
        # Dates without a year and sizes on disk are of the day; a column is as wide as its widest cell.
        screen = re.sub(rb"\b\d\d-\d\d \d\d:\d\d\b", b"00-00 00:00", screen)
        screen = re.sub(rb"[\d.]+ k?B on disk", b"<bytes> on disk", screen)
        screen = re.sub(rb'("stored_bytes".*?: .*?)\d+(?=\x1b\[0m,)', rb"\1<bytes>", screen)
        screen = re.sub(rb" {2,}", b"  ", screen)
        if name == "ls":
            screen = b"".join(sorted(map(talk.normalise, screen.splitlines(keepends=True))))
        talk.record(name, screen)


CLI: dict[str, Any] = {
    "cli help": cli_help,
    "cli store": cli_store,
    "cli stats": cli_stats,
    "cli config": cli_config,
    "cli adopt": cli_adopt,
    "cli tokens": cli_tokens,
    "cli terminal": cli_terminal,
}
