import ast
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import forebay
import pytest
from command import ROWS
from hypothesis import settings
from on_wine import IS_WINE
from stores import Clock
from wires import ERAS, Servers

# Assertions in these modules show details, as in a test.
pytest.register_assert_rewrite("invariants", "mcp_harness", "fastmcp_harness")

# The tests choose stores by FOREBAY_HOME, and this variable wins over it.
os.environ.pop("FOREBAY_STORE", None)

# No deadline, because shared machines are slow at times. CI must fail for a change, not for a random seed.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
# Wine opens files slowly, and few examples are enough to find what differs on Windows. Other systems try more.
settings.register_profile("wine", deadline=None, max_examples=20)
settings.load_profile("ci" if os.environ.get("CI") else "wine" if IS_WINE else "local")


if "COVERAGE_PROCESS_CONFIG" in os.environ:
    # The client of the SDK passes few variables on, so that the servers that it starts would not be measured.
    from mcp.client import stdio

    stdio.DEFAULT_INHERITED_ENV_VARS += ["COVERAGE_PROCESS_CONFIG", "LLVM_PROFILE_FILE", "PYTHONPATH"]

_posix_tests: dict[Path, int] = {}
"""On Windows, how many tests of each file are left out because they need POSIX. Of a whole file, functions count."""


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """On Windows, leave out files that are marked `posix` as a whole: they may import what only POSIX has."""
    if sys.platform != "win32" or collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    tree = ast.parse(collection_path.read_text(encoding="utf-8"))
    marks = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign)]
    if not any(mark.startswith("pytestmark = ") and "pytest.mark.posix" in mark for mark in marks):
        return None
    names = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    _posix_tests[collection_path] = sum(name.startswith("test_") for name in names)
    return True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On Windows, leave out the tests that are marked `posix`. In parallel, run files with slow tests first.

    A slow file that began last would leave the other workers idle.
    """
    if sys.platform == "win32":
        left_out = [item for item in items if item.get_closest_marker("posix")]
        for item in left_out:
            _posix_tests[item.path] = _posix_tests.get(item.path, 0) + 1
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("posix")]
    if hasattr(config, "workerinput"):
        slow_files = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: item.path not in slow_files)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell how many tests were left out for want of POSIX."""
    if _posix_tests:
        terminalreporter.write_line(f"{sum(_posix_tests.values())} tests in {len(_posix_tests)} files need POSIX")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command's home folder, with the environment variables unset that change its output."""
    for name in ("FOREBAY_STORE", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FOREBAY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path / "home"


@pytest.fixture
def handle(home: Path) -> str:
    """A handle of rows that the library stored, for the command to read."""
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        return store.put({"rows": ROWS}, source_tool="list_rows").output_handle


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    """An era of the protocol."""
    return str(request.param)


@pytest.fixture(scope="module")
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    """Servers of the test module's `SCRIPT`, each in its own process."""
    with closing(Servers(request.module.SCRIPT)) as servers:
        yield servers


@pytest.fixture
def default_interrupts() -> Iterator[None]:
    """A program that was started in the background ignores them, and so would those that it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
