"""The libraries and commands that forebay is measured beside, if they are installed."""

import importlib
import importlib.metadata
import importlib.util
import platform
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Peer", "find_peers", "load_module"]

_PACKAGES = {
    "orjson": "orjson",
    "msgspec": "msgspec",
    "pysimdjson": "simdjson",
    "ijson": "ijson",
    "duckdb": "duckdb",
    "fastmcp": "fastmcp",
}
"""Modules by the name of their package."""

_EXTRAS = {"duckdb": "pip install 'forebay[sql]'", "fastmcp": "pip install 'forebay[fastmcp]'"}


class Peer(NamedTuple):
    """A library or command. Without a version, it is not installed."""

    name: str
    version: str | None
    install: str
    """The command that installs it."""


def find_peers() -> Mapping[str, Peer]:
    """Return all peers by name, also those that are not installed."""
    peers = [Peer(name, _find_version(name, module), _get_install(name)) for name, module in _PACKAGES.items()]
    peers.append(Peer("jq", _find_jq_version(), "apt install jq, or brew install jq"))
    # These are part of Python and of the C library.
    standard = [Peer(name, platform.python_version(), "") for name in ("json", "csv", "re", "bytes")]
    return {peer.name: peer for peer in [*standard, *peers]}


def load_module(package: str) -> Any:
    """Import the module of a package."""
    return importlib.import_module(_PACKAGES[package])


def _get_install(package: str) -> str:
    return _EXTRAS.get(package, f"pip install {package}")


def _find_version(package: str, module: str) -> str | None:
    if importlib.util.find_spec(module) is None:
        return None
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _find_jq_version() -> str | None:
    path = shutil.which("jq")
    if path is None:
        return None
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip().removeprefix("jq-") or "unknown"
