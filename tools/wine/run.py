"""Build the package for Windows, and run tests of it under Wine: python -m wine.run [PYTEST ARGUMENTS]."""

import os
import shutil
import subprocess
import sys

from wine.environment import PROJECT, Environment

__all__ = ["main"]

_TARGET = "x86_64-pc-windows-gnu"
_LINKER = "x86_64-w64-mingw32-gcc"

_OPTIONS = ("-q", "--tb=short", "-p", "no:cacheprovider")

_RUNS = (
    (
        *("-m", "not slow"),
        # Thousands of hard links, for each of which Wine takes milliseconds.
        "--ignore=tests/store/test_many.py",
        # Hundreds of examples of files each.
        "--ignore=tests/query/test_feed.py",
        *("tests/system", "tests/store", "tests/wire", "tests/proxy"),
        *("tests/core", "tests/query", "tests/config", "tests/http", "tests/outputs", "tests/envelope"),
    ),
    (
        *("-m", "slow"),
        *("tests/system", "tests/query/test_workers.py", "tests/query/test_rows.py", "tests/query/test_query.py"),
        "tests/http/test_listening.py",
    ),
)
"""What runs without arguments: the folders and files whose tests all pass, or are marked."""


def main(arguments: list[str]) -> int:
    """Install, build and test; return an exit code of pytest, 0 if all tests pass."""
    environment = Environment(PROJECT / "target" / "windows")
    environment.install()
    _build(environment)
    runs = [arguments] if arguments else [[*_OPTIONS, *run] for run in _RUNS]
    return max(_test(environment, run) for run in runs)


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
