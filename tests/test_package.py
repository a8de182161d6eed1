"""What it takes to import headgate, and what comes with it."""

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import headgate

LIGHT = {"headgate", "headgate._core", "headgate.errors"}

IMPORT = """
import json, sys
before = set(sys.modules)
import headgate
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def run(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603 - our own interpreter


def test_importing_brings_nothing_but_itself() -> None:
    assert set(json.loads(run(IMPORT))) == LIGHT


def test_importing_writes_nothing_to_stdout() -> None:
    assert run("import headgate") == ""


def test_the_version_is_the_one_that_was_installed() -> None:
    assert headgate.__version__ == metadata.version("headgate")
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", headgate.__version__)


def test_type_checkers_are_told_that_the_package_is_typed() -> None:
    package = Path(headgate.__file__).parent
    assert (package / "py.typed").exists()
    assert (package / "_core.pyi").exists()
