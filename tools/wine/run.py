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
    # Most tests wait for processes that start: one worker does not keep a processor busy.
    *("-n", str(2 * (os.cpu_count() or 1))),
    # A worker whose test hangs prints where, and is ended and replaced. The distribution by files, which `make test`
    # uses, would run that test again and again.
    *("--timeout", "180", "-o", "faulthandler_timeout=170", "--dist", "worksteal"),
)

_TESTS = (
    *("core", "system", "store", "query", "wire", "config", "envelope", "outputs", "operations", "proxy", "http"),
    *("hub", "dashboard", "cli"),
)

_LEFT_OUT = (
    # Thousands of hard links, for each of which Wine takes milliseconds.
    "--ignore=tests/store/test_many.py",
    # Hundreds of examples of files each.
    "--ignore=tests/query/test_feed.py",
    # Wine lacks functions that NumPy calls.
    "--ignore=tests/operations/openapi/test_arrays.py",
    # The package is copied, not installed.
    "--deselect=tests/cli/test_cli.py::test_the_command_is_installed",
)
"""What Wine cannot run, or not in time."""


def main(arguments: list[str]) -> int:
    """Install, build and test; return an exit code of pytest, 0 if all tests pass."""
    environment = Environment(PROJECT / "target" / "windows")
    environment.install()
    _build(environment)
    return _test(environment, arguments or [*_OPTIONS, *_LEFT_OUT, *(f"tests/{folder}" for folder in _TESTS)])


def _test(environment: Environment, arguments: list[str]) -> int:
    return environment.run(
        *("wine", str(environment.python / "python.exe"), "-m", "pytest", *arguments),
        # Processes that tests start speak UTF-8, too.
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
    # Otherwise the interpreter of this machine would be asked for its library.
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
