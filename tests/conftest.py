import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import forebay
import pytest
from command import ROWS
from hypothesis import settings
from stores import Clock
from wires import ERAS, Servers

# Assertions in these modules show details, as in a test.
pytest.register_assert_rewrite("invariants", "mcp_harness", "fastmcp_harness")

# The tests choose stores by FOREBAY_HOME, and this variable wins over it.
os.environ.pop("FOREBAY_STORE", None)

# No deadline, because shared machines are slow at times. CI must fail for a change, not for a random seed.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


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
