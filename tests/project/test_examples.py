"""The examples run and their scenarios hold."""

import subprocess
import sys
from pathlib import Path

import capabilities
import conformance
import pages
import pytest
import scenarios
from running import command

REPORT = """
=== SUMMARY ===
✓ ping: 1 passed, 0 failed
{mark} tools-list: {passed} passed, {failed} failed
✗ tasks-lifecycle: 2 passed, 7 failed

Not scored for 2026-07-28: 1 scenario(s) run, 1 failing.
  ✗ tasks-lifecycle (extension)
"""


@pytest.mark.slow
def test_all_scenarios_pass(tmp_path: Path) -> None:
    record = tmp_path / "out" / "bytes.txt"
    done = subprocess.run(command("scenarios.py", "--record", str(record)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    assert [line[:4] for line in lines] == ["OK  "] * 21
    assert last.startswith("21 of 21 scenarios hold")
    recorded = record.read_text(encoding="utf-8").splitlines()
    assert [line.split(":")[0] for line in recorded] == ["bare", "handshake", "2026-07-28"]


@pytest.mark.slow
def test_a_failing_scenario_is_reported(tmp_path: Path) -> None:
    """The same with a limit that no descriptor can meet."""
    code = "import scenarios, sys; scenarios.MAX_RESPONSE_BYTES = 100; sys.exit(scenarios.main())"
    arguments = ["--record", str(tmp_path / "bytes.txt")]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=Path(scenarios.__file__).parent,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert [line[:6] for line in done.stdout.splitlines() if line.startswith("FAIL")] == ["FAIL 5"] * 3
    assert "18 of 21 scenarios hold" in done.stdout


@pytest.mark.slow
def test_all_scenarios_of_the_capability_filter_pass() -> None:
    done = subprocess.run(command("capabilities.py"), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    assert [line[:6] for line in lines] == [f"OK   {number}" for number in range(1, 7)] * 2
    assert last == "12 of 12 scenarios hold"


def test_an_addition_at_one_place_is_an_insertion() -> None:
    assert capabilities.is_insertion(b"[1,2]", b"[1,2,3]")
    for after in (b"[1,2", b"[1,9,3]", b"[0,1,2,3]", b"[1,2,3}"):
        assert not capabilities.is_insertion(b"[1,2]", after)


def test_the_browser_returns_the_same_every_time() -> None:
    code = "import pages, zlib; print(zlib.crc32(pages.bundle('https://example.com/')))"
    folder = Path(pages.__file__).parent
    once, again = (subprocess.check_output([sys.executable, "-c", code], cwd=folder) for _ in range(2))
    assert once == again


def test_a_crawl_is_a_tree() -> None:
    found = pages.crawl("https://example.com/", 40)["pages"]
    assert found[0]["parent"] is None
    for page in found[1:]:
        parent = found[page["parent"]]
        assert page["depth"] == parent["depth"] + 1
        assert page["url"] in parent["links"]


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["--output-mode", "both"], ["--http", "port"], ["--output-handle-ttl-hours", "-1"]])
def test_a_wrong_flag_is_refused(flags: list[str], tmp_path: Path) -> None:
    store = (tmp_path / "store").as_uri()
    server = command("server.py", "--store", store, *flags)
    done = subprocess.run(server, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    assert done.returncode != 0
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("without", "gated", "verdict"),
    [
        ((3, 0), (3, 0), []),
        ((3, 0), (2, 1), ["tools-list of 2026-07-28, with forebay: WORSE"]),
        ((3, 0), (2, 0), ["tools-list of 2026-07-28, with forebay: WORSE"]),
        ((2, 1), (2, 1), ["tools-list of 2026-07-28, with forebay: FAILS"]),
        ((2, 1), (3, 0), []),
    ],
)
def test_results_that_are_worse_with_forebay_are_reported(
    without: tuple[int, int], gated: tuple[int, int], verdict: list[str]
) -> None:
    reports = [
        REPORT.format(mark="✓✗"[failed > 0], passed=passed, failed=failed) for passed, failed in (without, gated)
    ]
    assert conformance.compare("2026-07-28", "with forebay", *reports) == verdict


def test_a_suite_without_output_is_a_failure() -> None:
    report = REPORT.format(mark="✓", passed=3, failed=0)
    with pytest.raises(ValueError, match="the suite reports nothing: fetch failed"):
        conformance.compare("2026-07-28", "with forebay", report, "fetch failed")
    less = report.replace("✓ ping: 1 passed, 0 failed\n", "")
    assert conformance.compare("2026-07-28", "with forebay", report, less) == ["ping ran only once"]
