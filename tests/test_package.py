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
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_importing_brings_nothing_but_itself() -> None:
    assert set(json.loads(run(IMPORT))) == LIGHT


def test_what_a_verb_needs_is_imported_when_it_is_used() -> None:
    """A byte relay, or a program that only slices, pays for neither the store nor the command."""
    heavy = {"asyncio", "orjson", "platformdirs", "rich", "zstandard"}
    used = IMPORT.replace("import headgate\n", "import headgate\nheadgate.truncate(b'[1]')\nheadgate.HandleNotFound\n")
    assert heavy.isdisjoint(json.loads(run(used)))
    opened = IMPORT.replace("import headgate\n", "import headgate\nheadgate.open_store\n")
    assert {"rich", "platformdirs"}.isdisjoint(json.loads(run(opened)))
    assert {"orjson", "zstandard"} <= set(json.loads(run(opened)))


def test_a_name_that_is_imported_when_it_is_used_is_imported_once() -> None:
    assert headgate.open_store is headgate.open_store
    assert "open_store" in vars(headgate)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    assert not hasattr(headgate, "nope")


def test_importing_writes_nothing_to_stdout() -> None:
    assert run("import headgate") == ""


def test_the_version_is_the_one_that_was_installed() -> None:
    assert headgate.__version__ == metadata.version("headgate")
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", headgate.__version__)


def test_type_checkers_are_told_that_the_package_is_typed() -> None:
    package = Path(headgate.__file__).parent
    assert (package / "py.typed").exists()
    assert (package / "_core.pyi").exists()
