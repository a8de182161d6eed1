"""Install a client from npm and run it once, headless, in a home of its own."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from clients.checks import Expectation
from clients.models import ScriptedModel
from clients.script import Conversation
from clients.tools import Toolbox

ROOT = Path(__file__).resolve().parents[2]

SERVER = "browser"
"""The name of the MCP server in the clients' configuration."""

INSTALL_SECONDS = 600
RUN_SECONDS = 120

_DEAD_PROXY = "http://127.0.0.1:9"
"""Nothing listens there: what a client sends to other hosts fails at once."""


class NotAvailable(Exception):
    """The client could not be installed or run."""


@dataclasses.dataclass(frozen=True)
class Setup:
    """What a client is configured with."""

    home: Path
    model_url: str
    gateway: Sequence[str]
    """The command of the gateway."""

    def write(self, path: str, content: str | Mapping[str, object]) -> Path:
        """Write a file below the home folder, and return its path."""
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content, indent=2), encoding="utf-8")
        return file

    def server(self, **options: object) -> dict[str, dict[str, object]]:
        """Return the entry of the gateway that most clients want below `mcpServers`."""
        return {SERVER: {"command": self.gateway[0], "args": list(self.gateway[1:]), **options}}


@dataclasses.dataclass(frozen=True)
class Launch:
    """How a client is started."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Client:
    """A client: its package, how it is configured, and what it shows to the model."""

    name: str
    package: str
    version: str
    program: str
    """The program below `node_modules`, as a pattern: the folders of binaries are named for platforms."""
    toolbox: Toolbox
    configure: Callable[[Setup], Launch]
    expected: Expectation = dataclasses.field(default_factory=Expectation)

    @property
    def id(self) -> str:
        return self.name.lower().replace(" ", "-")


@dataclasses.dataclass(frozen=True)
class Run:
    """The end of a client's run."""

    conversation: Conversation
    problem: str | None
    """Why the conversation did not come to its end."""


class Node:
    """Installs and starts programs with the Node of a folder."""

    def __init__(self, wheel: Path, packages: Path) -> None:
        self._node = wheel / "bin" / "node"
        self._npm = wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        self._packages = packages

    def install(self, client: Client) -> list[str]:
        """Return the command of a client, which is installed if the pinned version is not there."""
        folder = self._packages / client.package.replace("/", "+").lstrip("@")
        manifest = folder / "node_modules" / client.package / "package.json"
        if not manifest.is_file() or json.loads(manifest.read_bytes())["version"] != client.version:
            folder.mkdir(parents=True, exist_ok=True)
            quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
            package = f"{client.package}@{client.version}"
            command = [str(self._node), str(self._npm), "install", "--prefix", str(folder), *quiet, package]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
            except subprocess.TimeoutExpired:
                raise NotAvailable(f"npm did not install it within {INSTALL_SECONDS} s") from None
            if done.returncode:
                raise NotAvailable(f"npm could not install it: {_last_line(done.stderr)}")
        programs = sorted((folder / "node_modules").glob(client.program))
        if not programs:
            raise NotAvailable(f"the package has no {client.program} for this platform")
        is_script = programs[0].suffix in (".js", ".cjs", ".mjs")
        return [str(self._node), str(programs[0])] if is_script else [str(programs[0])]

    @property
    def path(self) -> str:
        """The variable PATH for a client."""
        return os.pathsep.join([str(self._node.parent), os.environ.get("PATH", os.defpath)])


def run(
    client: Client,
    node: Node,
    transcripts: Path,
    conversation: Conversation | None = None,
    server: Sequence[str] | None = None,
) -> Run:
    """Run a client with the scripted model until the conversation ends, and keep every request and the output.

    The conversation is by default the one about the gateway, and the client's MCP server is the gateway.
    """
    transcript = _make_empty(transcripts / client.id)
    command = node.install(client)
    conversation = conversation or Conversation(client.toolbox)
    model = ScriptedModel(conversation.respond)
    with tempfile.TemporaryDirectory(prefix="forebay-client-", ignore_cleanup_errors=True) as folder, model.running():
        home = Path(folder).resolve()
        work = home / "work"
        work.mkdir()
        launch = client.configure(Setup(home, model.url, server or gateway_command(home / "store")))
        environment = {**_environment(home, node.path), **launch.environment}
        problem = _execute([*command, *launch.arguments], environment, work, transcript / "output.txt")
    for number, (_, body) in enumerate(model.requests):
        (transcript / f"{number:03}.json").write_bytes(body)
    if model.failures:
        raise NotAvailable(f"the scripted model failed: {_last_line(model.failures[0])}")
    if conversation.first is None:
        raise NotAvailable(problem or "it sent no request with tools to the model")
    return Run(conversation, None if conversation.is_finished else problem or "it ended before the script did")


def gateway_command(store: Path) -> list[str]:
    """Return the command of the gateway, with the example server behind it."""
    server = [sys.executable, str(ROOT / "examples" / "server.py"), "--plain"]
    return [sys.executable, "-m", "forebay", "wrap", "--store", store.as_uri(), "--", *server]


def _environment(home: Path, path: str) -> dict[str, str]:
    folders = {f"XDG_{kind}_HOME": str(home / f".{kind.lower()}") for kind in ("CONFIG", "DATA", "STATE", "CACHE")}
    return {
        **folders,
        "HOME": str(home),
        "PATH": path,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "DO_NOT_TRACK": "1",
        **dict.fromkeys(["HTTPS_PROXY", "https_proxy"], _DEAD_PROXY),
        **dict.fromkeys(["NO_PROXY", "no_proxy"], "127.0.0.1,localhost"),
    }


def _execute(command: Sequence[str], environment: Mapping[str, str], folder: Path, output: Path) -> str | None:
    """Run a command to its end, write its output to a file, and return what went wrong."""
    with output.open("wb") as stream:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        status = process.wait(RUN_SECONDS)
    except subprocess.TimeoutExpired:
        return f"it did not end within {RUN_SECONDS} s"
    finally:
        _kill_all(process, environment["HOME"])
    return f"it ended with {status}: {_last_line(output.read_text(errors='replace'))}" if status else None


def _kill_all(process: "subprocess.Popen[bytes]", home: str) -> None:
    """Kill a client's process group, and the daemons that it left: they have the home that only this run has."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"HOME={home}".encode() in file.read_bytes().split(b"\0"):
                os.kill(int(file.parent.name), signal.SIGKILL)
        except (PermissionError, FileNotFoundError, ProcessLookupError):
            continue


def _make_empty(folder: Path) -> Path:
    """Return a folder without the files of the last run."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    return folder


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no output"
