"""The clients of the SDKs accept what servers with and without forebay answer."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from sdk_versions import HERE, ROOT, Environment
from versions_server import TOOLS

pytestmark = pytest.mark.slow

CLIENT = ROOT / "tests" / "support" / "versions_client.py"


def call_with_clients(environment: Environment, options: dict[str, Any] | None) -> list[Any]:
    """Return the large results of each SDK's client. Servers have forebay unless the options are `None`."""
    kinds = ("mcp", "fastmcp") if environment.name == HERE else (environment.name.partition("-")[0],)
    large_results = []
    for kind in kinds:
        command = [environment.python, str(CLIENT), kind, json.dumps(options)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        assert "Error parsing structured content" not in done.stderr
        small, large = json.loads(done.stdout)
        assert small == {"result": TOOLS["rows"](3)}
        large_results.append(large)
    return large_results


def test_a_server_without_forebay_still_works(environment: Environment) -> None:
    for large in call_with_clients(environment, None):
        assert large == {"result": TOOLS["rows"](5000)}


def test_a_client_accepts_handles(environment: Environment, tmp_path: Path) -> None:
    for large in call_with_clients(environment, {"store": tmp_path.as_uri(), "output_mode": "auto"}):
        assert large["output_handle"].startswith("oh_")
