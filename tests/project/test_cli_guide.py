"""The commands of docs/cli.md run, and its exit codes are those of the program."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from forebay.cli import errors

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"


def test_every_command_runs(tmp_path: Path) -> None:
    block = re.findall(r"```sh\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)[0]
    orders = [
        {"id": n, "status": "failed" if n % 9 == 4 else "paid", "total": n, "customer": {"name": f"Nr {n}"}}
        for n in range(2000)
    ]
    orders[17]["note"] = "a timeout"
    (tmp_path / "orders.json").write_text(json.dumps({"orders": orders}), encoding="utf-8")
    environment = {**os.environ, "FOREBAY_HOME": str(tmp_path / "home")}
    outputs: dict[str, str] = {}
    handle = ""
    for line in block.splitlines():
        command = line.replace("oh_7QWJ2M4XKZ5A", handle)
        shell = f'forebay() {{ "{sys.executable}" -m forebay "$@"; }}\n{command}'
        done = subprocess.run(
            ["bash", "-c", shell], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, ""), line
        outputs[line.split()[1]] = done.stdout
        handle = handle or json.loads(done.stdout)["output_handle"]
    assert json.loads(outputs["get"]) == orders[17]
    assert json.loads(outputs["search"])["matches"][0]["item"] == 17
    assert dict(json.loads(outputs["query"])["rows"]) == {"failed": 222, "paid": 1778}
    assert (tmp_path / "copy.json").read_bytes() == (tmp_path / "orders.json").read_bytes()
    assert len((tmp_path / "failed.csv").read_text(encoding="utf-8").splitlines()) == 223


def test_the_exit_codes_are_those_of_the_program() -> None:
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)}
    assert codes == {0, 1, *errors._EXIT_CODES.values()}
