"""Tests of all versions of the SDKs: `make test` runs them here, `make test-versions` in every environment."""

import os
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest
from sdk_versions import HERE, SDKS, Environment, Server, make_environment


def list_names() -> list[str]:
    names = os.environ.get("SDK_VERSIONS")
    return [HERE] if names is None else [*SDKS] if names == "all" else names.split()


KINDS = {
    "server": ("mcp", "lowlevel", "fastmcp"),
    "guarded_server": ("mcp", "fastmcp"),
    "mounted_server": ("fastmcp",),
}
"""The kinds of servers that tests with these fixtures are run with, if the environment has the SDK."""

collect_ignore = [] if "SDK_VERSIONS" in os.environ else ["test_install.py"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "environment" in metafunc.fixturenames:
        metafunc.parametrize("environment", list_names(), indirect=True, scope="session")
    for fixture, kinds in KINDS.items():
        if fixture in metafunc.fixturenames:
            servers = [(name, kind) for name in list_names() for kind in kinds if has_kind(name, kind)]
            metafunc.parametrize(fixture, servers, indirect=True, scope="session", ids="-".join)


def has_kind(name: str, kind: str) -> bool:
    """Return whether an environment has the SDK for a kind of server."""
    return name == HERE or name.startswith("fastmcp-") == (kind == "fastmcp")


@pytest.fixture(scope="session")
def environment(request: pytest.FixtureRequest) -> Environment:
    return make_environment(request.param)


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    name, kind = request.param
    # fastmcp formats the traceback of a long error message for minutes.
    os.environ["FASTMCP_LOG_LEVEL"] = "CRITICAL"
    running = Server(make_environment(name), kind, tmp_path_factory.mktemp(kind))
    yield running
    running.close()


guarded_server = mounted_server = server


_outcomes: dict[str, dict[str, str]] = defaultdict(dict)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    match = re.search(r"versions/\w+\.py::test_(\w+)\[([^\]]+)\]", report.nodeid)
    if match is not None and (report.when == "call" or report.failed or report.skipped):
        _outcomes[match[1]][match[2]] = {"passed": "✓", "failed": "✗"}.get(report.outcome, "–")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which test passed in which environment."""
    if "SDK_VERSIONS" not in os.environ or not _outcomes:
        return
    columns = list(dict.fromkeys(column for row in _outcomes.values() for column in row))
    terminalreporter.write_line("")
    for number, column in enumerate(columns, 1):
        terminalreporter.write_line(f"{number:3} {column}")
    terminalreporter.write_line(" " * 70 + "".join(f"{number:3}" for number in range(1, len(columns) + 1)))
    for test, row in _outcomes.items():
        terminalreporter.write_line(
            f"{test.replace('_', ' '):70}" + "".join(f"  {row.get(name, ' ')}" for name in columns)
        )
