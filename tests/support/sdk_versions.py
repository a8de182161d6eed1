"""Environments with different versions of the SDKs, and servers in them."""

import json
import subprocess
import sys
import venv
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from wires import LEGACY, StdioWire, start_server

ROOT = Path(__file__).resolve().parents[2]

SDKS: dict[str, list[str]] = {
    # These do not start with later versions of pydantic.
    "mcp-1.20": ["mcp==1.20.*", "pydantic<2.12"],
    "fastmcp-2.12": ["fastmcp==2.12.*", "pydantic<2.12"],
    "mcp-1": ["mcp<2"],
    "mcp-2.0": ["mcp==2.0.*"],
    "mcp-2": ["mcp<3"],
    "fastmcp-2": ["fastmcp<3"],
    "fastmcp-3.0": ["fastmcp==3.0.*"],
    "fastmcp-3": ["fastmcp<4"],
    "fastmcp-4": ["fastmcp<5"],
}
"""The environments of `make test-versions`, and what is installed there besides forebay."""

HERE = "here"


@dataclass(frozen=True)
class Environment:
    """A Python environment with an SDK and forebay."""

    name: str
    python: str
    packages_before: dict[str, str]
    """Versions of all packages before forebay was installed."""
    packages_after: dict[str, str]
    """Versions of all packages, and of those that the extra adds, without forebay itself."""


def run_pip(python: str, *arguments: str) -> str:
    command = [python, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


def list_packages(python: str) -> dict[str, str]:
    packages = json.loads(run_pip(python, "list", "--format=json"))
    return {package["name"]: package["version"] for package in packages if package["name"] != "forebay"}


def find_wheel() -> Path:
    """Return the wheel that `make wheel` has built."""
    (wheel,) = (ROOT / "dist").glob("*.whl")
    return wheel


@cache
def make_environment(name: str) -> Environment:
    """Make an environment: first the SDK, then forebay, then its extra for this SDK."""
    if name == HERE:
        return Environment(name, sys.executable, {}, {})
    wheel = find_wheel()
    folder = ROOT / "target" / "versions" / name
    venv.create(folder, clear=True, with_pip=True)
    python = str(folder / "bin" / "python")
    run_pip(python, "install", "--quiet", "--only-binary", ":all:", *SDKS[name])
    before = list_packages(python)
    run_pip(python, "install", "--quiet", "--only-binary", ":all:", str(wheel))
    run_pip(python, "install", "--quiet", "--only-binary", ":all:", f"{wheel}[{name.partition('-')[0]}]")
    return Environment(name, python, before, list_packages(python))


class Server:
    """A server of one kind, in one environment, that is started with different options."""

    def __init__(self, environment: Environment, kind: str, folder: Path) -> None:
        self.environment, self.kind, self.folder = environment, kind, folder
        self._running = ExitStack()
        self._wires: dict[str, StdioWire] = {}

    @property
    def log(self) -> str:
        """What all servers have logged so far."""
        return "".join(path.read_text(encoding="utf-8") for path in sorted(self.folder.glob("*.log")))

    def start(self, options: dict[str, Any] | None, *flags: str) -> "subprocess.Popen[bytes]":
        if options is not None:
            options = {"store": (self.folder / "store").as_uri(), **options}
        number = len([*self.folder.glob("*.log")])
        log = self._running.enter_context((self.folder / f"{number}.log").open("wb"))
        return self._running.enter_context(
            start_server(
                "versions_server.py", self.kind, json.dumps(options), *flags, python=self.environment.python, log=log
            )
        )

    def connect(self, **options: Any) -> StdioWire:
        """Return the connection to a server with these options of forebay, over stdio."""
        return self._connect(options)

    def connect_as(self, client: str, **options: Any) -> StdioWire:
        """Return a new connection of a client with this name."""
        return StdioWire(self.start(options), LEGACY, client)

    def connect_plain(self) -> StdioWire:
        """Return the connection to a server without forebay."""
        return self._connect(None)

    def _connect(self, options: dict[str, Any] | None) -> StdioWire:
        key = json.dumps(options)
        if key not in self._wires:
            self._wires[key] = StdioWire(self.start(options), LEGACY)
        return self._wires[key]

    def close(self) -> None:
        self._running.close()
