"""The import of forebay: its cost, its modules, and the package's metadata."""

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import forebay
import pytest

LIGHT = {"forebay", "forebay._core", "forebay.errors"}

IMPORT = """
import json, sys
before = set(sys.modules)
import forebay
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def run(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_import_loads_no_other_package() -> None:
    assert set(json.loads(run(IMPORT))) == LIGHT


@pytest.mark.slow
def test_modules_are_imported_when_they_are_needed() -> None:
    """A program that only slices bytes does not import the store or the command line."""
    heavy = {"asyncio", "orjson", "platformdirs", "rich", "zstandard"}
    used = IMPORT.replace("import forebay\n", "import forebay\nforebay.truncate(b'[1]')\nforebay.HandleNotFound\n")
    assert heavy.isdisjoint(json.loads(run(used)))
    opened = IMPORT.replace("import forebay\n", "import forebay\nforebay.open_store\n")
    assert {"rich", "platformdirs"}.isdisjoint(json.loads(run(opened)))
    assert {"orjson", "zstandard"} <= set(json.loads(run(opened)))


def test_a_lazy_name_is_imported_once() -> None:
    assert forebay.open_store is forebay.open_store
    assert "open_store" in vars(forebay)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(forebay, "nope")


def test_importing_writes_nothing_to_stdout() -> None:
    assert run("import forebay") == ""


def test_the_version_is_that_of_the_installed_package() -> None:
    assert forebay.__version__ == metadata.version("forebay")
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", forebay.__version__)


def test_the_package_is_marked_as_typed() -> None:
    package = Path(forebay.__file__).parent
    assert (package / "py.typed").exists()
    assert (package / "_core.pyi").exists()
