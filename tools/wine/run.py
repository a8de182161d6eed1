"""Build the package for Windows, and run tests of it under Wine: python -m wine.run [PYTEST ARGUMENTS]."""

import os
import shutil
import subprocess
import sys

from wine.environment import PROJECT, Environment

__all__ = ["main"]

_TARGET = "x86_64-pc-windows-gnu"
_LINKER = "x86_64-w64-mingw32-gcc"

_OPTIONS = (
    *("-q", "--tb=short", "-p", "no:cacheprovider"),
    # Two workers for each processor, because most tests wait for processes to start. A worker whose test hangs is ended
    # and replaced, after it has printed where. `worksteal` does not repeat that test; the distribution by files of
    # `make test` would, without end.
    *("-n", str(2 * (os.cpu_count() or 1)), "--dist", "worksteal"),
    *("--timeout", "180", "-o", "faulthandler_timeout=170"),
)

_FOLDERS = (
    *("core", "system", "store", "query", "wire", "config", "envelope", "outputs", "operations", "proxy", "http"),
    *("hub", "dashboard", "cli"),
)

_EXCLUDED = (
    # Thousands of hard links, for each of which Wine takes milliseconds.
    "--ignore=tests/store/test_many.py",
    # Hundreds of examples of files each.
    "--ignore=tests/query/test_feed.py",
    # Wine lacks functions that NumPy calls.
    "--ignore=tests/operations/openapi/test_arrays.py",
    # The package is copied, not installed.
    "--deselect=tests/cli/test_cli.py::test_the_command_is_installed",
)
"""Tests that fail under Wine, or take too long."""


def main(arguments: list[str]) -> int:
    """Install, build and test; return an exit code of pytest, 0 if all tests pass."""
    environment = Environment(PROJECT / "target" / "windows")
    environment.install()
    _build(environment)
    return _test(environment, arguments or [*_OPTIONS, *_EXCLUDED, *(f"tests/{folder}" for folder in _FOLDERS)])


def _test(environment: Environment, arguments: list[str]) -> int:
    return environment.run(
        *("wine", str(environment.python / "python.exe"), "-m", "pytest", *arguments),
        # Processes that tests start use UTF-8, too.
        environment={"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1"},
    )


def _build(environment: Environment) -> None:
    """Build the extension module, and copy the package to the Windows Python."""
    print("windows: forebay", flush=True)
    variables = {
        **os.environ,
        "CARGO_TARGET_DIR": str(environment.folder / "cargo"),
        f"CARGO_TARGET_{_TARGET.upper().replace('-', '_')}_LINKER": _LINKER,
        "PYO3_CROSS": "1",
    }
    # Otherwise PyO3 would take its configuration from this machine's interpreter.
    variables.pop("PYO3_PYTHON", None)
    subprocess.run(
        [
            *("cargo", "build", "--quiet", "--release", "--package", "forebay-python", "--target", _TARGET),
            *("--features", "pyo3/generate-import-lib"),
        ],
        cwd=PROJECT,
        env=variables,
        check=True,
    )
    package = environment.site_packages / "forebay"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(PROJECT / "python" / "forebay", package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copy2(environment.folder / "cargo" / _TARGET / "release" / "_core.dll", package / "_core.pyd")
    environment.compile(package)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
