"""The examples of docs/gateway.md that call `forebay serve --http`."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from serve_harness import write_config
from serve_http_harness import TIMEOUT_SECONDS, serving_config, token, write_tokens

pytestmark = pytest.mark.slow

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "gateway.md").read_text(encoding="utf-8")
ADDRESS = "127.0.0.1:8000"


def find_blocks(heading: str, language: str) -> list[str]:
    """Return the code blocks of a section."""
    section = re.split(r"^#+ ", GUIDE.partition(f"### {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The configuration of the module in the guide."""
    (module,) = re.findall(r"```python\n(# words.py.*?)```", GUIDE, re.DOTALL)
    (tmp_path / "words.py").write_text(module)
    return write_config(tmp_path, {"words": {"python": "words"}})


@pytest.mark.posix
def test_calls_with_curl(config: Path) -> None:
    blocks = find_blocks("Calling it", "sh")
    assert len(blocks) == 2
    with serving_config(config) as listening:
        for block in blocks:
            script = block.replace(ADDRESS, f"127.0.0.1:{listening.port}")
            done = subprocess.run(["sh", "-euc", script], capture_output=True, check=True, timeout=TIMEOUT_SECONDS)
            assert json.loads(done.stdout)["result"]["content"] == [{"type": "text", "text": "2"}]


def test_a_call_with_the_sdk_and_a_token(config: Path, tmp_path: Path) -> None:
    (block,) = find_blocks("Calling it", "python")
    write_tokens(tmp_path / "tokens", ["ann"])
    with serving_config(config, "--token-file", str(tmp_path / "tokens")) as listening:
        script = block.replace(ADDRESS, f"127.0.0.1:{listening.port}")
        environ = {**os.environ, "TOKEN": token("ann")}
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, check=True, timeout=TIMEOUT_SECONDS, env=environ
        )
    assert done.stdout.strip() == b"2"
