"""The MCP bundle holds a manifest, the wheel, and a script that wraps what the user entered."""

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import forebay
import pytest
from build_mcpb import build
from faulty_server import faulty_server

SERVER = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    answer = {"content": [{"type": "text", "text": "x" * int(sys.argv[1])}]}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer}), flush=True)
"""


def build_in(folder: Path, platform: str = "manylinux_2_34_x86_64") -> zipfile.ZipFile:
    wheel = folder / f"forebay-{forebay.__version__}-cp311-abi3-{platform}.whl"
    wheel.write_bytes(b"the wheel")
    return zipfile.ZipFile(build(wheel))


@pytest.mark.parametrize(
    ("platform", "system"),
    [("manylinux_2_34_x86_64", "linux"), ("macosx_11_0_arm64", "darwin"), ("win_amd64", "win32")],
)
def test_a_bundle_is_complete(platform: str, system: str, tmp_path: Path) -> None:
    with build_in(tmp_path, platform) as bundle:
        manifest = json.loads(bundle.read("manifest.json"))
        project = tomllib.loads(bundle.read("pyproject.toml").decode())
        wheel = project["tool"]["uv"]["sources"]["forebay"]["path"]
        assert bundle.read(wheel) == b"the wheel"
        assert manifest["server"]["entry_point"] in bundle.namelist()
    assert manifest["version"] == forebay.__version__
    assert manifest["compatibility"]["platforms"] == [system]
    # Every value that the configuration uses is one that the user is asked for.
    used = {value[len("${user_config.") : -1] for value in manifest["server"]["mcp_config"]["env"].values()}
    assert used == manifest["user_config"].keys()


@pytest.mark.slow
def test_the_script_wraps_a_command(tmp_path: Path) -> None:
    (tmp_path / "a server.py").write_text(SERVER, encoding="utf-8")
    result = run_script(tmp_path, f"{sys.executable} '{tmp_path / 'a server.py'}' 100000")
    assert json.loads(result["content"][0]["text"])["size_bytes"] == 100_000


@pytest.mark.slow
def test_the_script_wraps_a_url(tmp_path: Path) -> None:
    with faulty_server() as server:
        run_script(tmp_path, server.url, "Bearer s3cr3t", "tools/list")
        assert [headers["authorization"] for headers in server.headers_of("tools/list")] == ["Bearer s3cr3t"]


def run_script(folder: Path, server: str, authorization: str = "", method: str = "tools/call") -> dict[str, Any]:
    """Send a request to a server behind the bundle's script, and return the result."""
    with build_in(folder) as bundle:
        script = bundle.extract("server.py", folder)
    environment = {
        **os.environ,
        "FOREBAY_STORE": (folder / "store").as_uri(),
        "WRAPPED_SERVER": server,
        "WRAPPED_SERVER_AUTHORIZATION": authorization,
    }
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"name": "x"} if method == "tools/call" else {}}
    command = [sys.executable, script]
    done = subprocess.run(
        command, input=json.dumps(request), env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)["result"]
    return result
