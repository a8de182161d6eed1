"""Run `forebay serve` in front of test servers, with a client without an SDK for both protocol eras."""

import dataclasses
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forebay.config.options import Settings
from gateway_harness import StdioClient
from wires import INITIALIZE_PARAMS, LEGACY, MODERN_META

__all__ = ["LEGACY", "EraClient", "serve_command", "serving", "tool_names", "upstream_command", "write_config"]


def _toml(value: Any) -> str:
    # Apart from tables, the JSON values used here are valid TOML.
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value)


LIMITS = {field.name for field in dataclasses.fields(Settings) if not field.metadata} - {"upstreams", "sources"}
"""Settings that are not options."""


def write_config(folder: Path, upstreams: dict[str, dict[str, Any]], **options: Any) -> Path:
    """Write a forebay.toml with a store beside it, and limits that are not options into limits.json."""
    limits = {name: options.pop(name) for name in LIMITS & options.keys()}
    (folder / "limits.json").write_text(json.dumps(limits))
    options.setdefault("store", (folder / "store").as_uri())
    lines = [f"{key} = {_toml(value)}" for key, value in options.items()]
    for name, upstream in upstreams.items():
        lines += [f"[upstreams.{name}]", *(f"{key} = {_toml(value)}" for key, value in upstream.items())]
    path = folder / "forebay.toml"
    path.write_text("\n".join(lines))
    return path


def upstream_command(script: str, *arguments: str) -> dict[str, Any]:
    """Return the configuration of an upstream that runs a server script of this folder."""
    return {"command": sys.executable, "args": [str(Path(__file__).with_name(script)), *arguments]}


def serve_command(path: Path) -> list[str]:
    """Return the command that serves a forebay.toml of `write_config`."""
    script = str(Path(__file__).with_name("limited_forebay.py"))
    limits = path.with_name("limits.json").read_text()
    start = ["-m", "forebay"] if limits == "{}" and sys.platform != "win32" else [script, limits]
    return [sys.executable, *start, "serve", "--config", str(path)]


class EraClient(StdioClient):
    def __init__(self, command: list[str], era: str, capabilities: dict[str, Any]) -> None:
        self.era = era
        self.upstreams: list[str] = []
        self._capabilities = capabilities
        self.server_info: dict[str, Any] = {}
        super().__init__(command)

    def initialize(self) -> dict[str, Any]:
        if self.era != LEGACY:
            return self.request("server/discover")
        response = self.request("initialize", {**INITIALIZE_PARAMS, "capabilities": self._capabilities})
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return response

    def send_request(self, method: str, params: dict[str, Any] | None = None) -> int:
        params = params or {}
        if self.era != LEGACY:
            meta = {**MODERN_META, "io.modelcontextprotocol/clientCapabilities": self._capabilities}
            params = {**params, "_meta": {**meta, **params.get("_meta", {})}}
        return super().send_request(method, params)


@contextmanager
def serving(
    path: Path, era: str = LEGACY, *options: str, capabilities: dict[str, Any] | None = None
) -> Iterator[EraClient]:
    """Run `forebay serve` with a forebay.toml and yield an initialized client."""
    client = EraClient([*serve_command(path), *options], era, capabilities or {})
    try:
        client.server_info = client.initialize()["result"]
        yield client
    finally:
        client.kill()


def tool_names(client: StdioClient) -> list[str]:
    return [tool["name"] for tool in client.request("tools/list")["result"]["tools"]]
