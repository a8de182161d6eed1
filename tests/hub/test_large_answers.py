"""Large responses that are not tool results pass unchanged, with little more memory than their size."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gateway_harness import script, wrap
from large_server import text
from peak import get_peak_bytes
from serve_harness import EraClient, serving, upstream_command, write_config
from wires import ERAS, LEGACY

pytestmark = pytest.mark.slow

SIZE = 2_000_000
SERVER = [*script("large_server.py"), "stdio"]


def make_calls(size: int) -> dict[str, dict[str, Any]]:
    ref = {"type": "ref/prompt", "name": "any"}
    return {
        "resources/read": {"uri": f"test://sized/{size}"},
        "prompts/get": {"name": "any", "arguments": {"size": str(size)}},
        "completion/complete": {"ref": ref, "argument": {"name": "any", "value": str(size)}},
    }


@contextmanager
def open_gateway(command: str, folder: Path, era: str) -> Iterator[EraClient]:
    if command == "serve":
        with serving(write_config(folder, {"large": upstream_command("large_server.py", "stdio")}), era) as talk:
            yield talk
        return
    talk = EraClient(wrap(folder / "store", server=SERVER), era, {})
    try:
        talk.initialize()
        yield talk
    finally:
        talk.kill()


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("command", ["wrap", "serve"])
def test_they_pass_unchanged(command: str, era: str, tmp_path: Path) -> None:
    with open_gateway(command, tmp_path, era) as talk:
        for method, params in make_calls(SIZE).items():
            result = talk.request(method, params)["result"]
            assert text(SIZE) in _collect_strings(result), method


def _collect_strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for member in inner for text in _collect_strings(member)]


def test_a_resource_of_20_mb_is_in_memory_three_times_at_most(tmp_path: Path) -> None:
    with open_gateway("serve", tmp_path, LEGACY) as talk:
        talk.request("resources/read", {"uri": "test://sized/100000"})
        before = get_peak_bytes(talk.process.pid)
        number = talk.send_request("resources/read", {"uri": "test://sized/20000000"})
        line = talk.read_line()
        assert json.loads(line)["id"] == number
        assert get_peak_bytes(talk.process.pid) - before < 3.5 * len(line)
