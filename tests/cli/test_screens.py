"""`ls`, `stats` and `journal` on terminals of several widths, as an emulator shows them."""

import json
import re
from datetime import date
from pathlib import Path

import forebay
import pytest
from command import run
from eventful_store import DAYS, fill_store
from screens import ShownScreen, show
from stores import Clock

pytestmark = [pytest.mark.posix, pytest.mark.slow]

WIDTHS = [60, 80, 120]
BLOCKS = "▁▂▃▄▅▆▇█▏▎▍▌▋▊▉░→✗−▲·…×"


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("busy")
    fill_store(folder / "store")
    return folder / "store"


@pytest.fixture(autouse=True)
def terminal(busy: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal tells its width, and the store is the busy one."""
    assert not home.exists()
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FOREBAY_STORE", busy.as_uri())


def assert_fits(shown: ShownScreen, columns: int) -> None:
    """Check that no line was folded by the terminal: what was printed has as many lines as the screen."""
    printed = re.sub(rb"\x1b\[[0-9;]*m", b"", shown.output).decode().replace("\r\n", "\n").splitlines()
    assert max(map(len, printed)) <= columns
    assert [line.rstrip() for line in printed] == shown.lines


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("args", [["ls"], ["stats"], ["journal"], ["journal", "summary"]], ids=" ".join)
def test_it_fits_with_and_without_colours(args: list[str], columns: int) -> None:
    coloured, plain = show(*args, columns=columns), show(*args, columns=columns, NO_COLOR="1")
    for shown in (coloured, plain):
        assert_fits(shown, columns)
    assert len(coloured.colours) > 1
    assert plain.colours <= {"default"}
    # Ages may have grown by a minute between the two.
    assert re.sub(r"\d+", "0", coloured.text).split() == re.sub(r"\d+", "0", plain.text).split()


@pytest.mark.parametrize(
    "environment", [{"PYTHONIOENCODING": "ascii"}, {"TERM": "linux"}], ids=lambda given: "".join(given)
)
@pytest.mark.parametrize("args", [["ls"], ["stats"], ["journal"], ["journal", "summary"]], ids=" ".join)
def test_a_terminal_without_blocks_gets_ascii(args: list[str], environment: dict[str, str]) -> None:
    shown = show(*args, columns=120, **environment)
    assert_fits(shown, 120)
    assert not set(shown.text) & set(BLOCKS)
    assert "\\u" not in shown.text
    if args != ["journal"]:
        assert "#" in shown.text


@pytest.mark.parametrize("columns", WIDTHS)
def test_ls_drops_columns_by_importance(columns: int) -> None:
    stored = run("ls").json
    shown = show("ls", columns=columns)
    head, *rows = shown.lines[: 1 + len(stored)]
    total = " ".join(shown.lines[1 + len(stored) :])
    for row, entry in zip(rows, stored, strict=True):
        assert row.startswith(entry["output_handle"])
        assert re.search(r"in \d+ (h|min|d)\b", row)
        assert entry["item_count"] is None or f"{entry['item_count']:,}" in row
    assert {"handle", "size", "items", "expires", "principal"} <= {*head.split()}
    assert ("tool" in head, "type" in head, "outline" in head) == {
        60: (False, False, False),
        80: (False, False, False),
        120: (True, False, True),
    }[columns]
    size = sum(entry["size_bytes"] for entry in stored)
    assert re.fullmatch(rf"{len(stored)} payloads, {size / 1e6:.1f} MB, [\d.]+ [kM]B on disk(; .*)?", total)


def test_a_principal_is_not_cut_at_80_columns() -> None:
    shown = show("ls", columns=80)
    principals = {entry["principal"] for entry in run("ls").json}
    assert {"ann", "bob"} < principals
    # Of a long name, what tells who it is.
    for name in ("ann", "bob", "…carol.o'neill@example.org"):
        assert any(line.endswith(f"  {name}") for line in shown.lines)


def test_what_expires_soon_stands_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with forebay.open_store(tmp_path / "soon", sweep_interval=0) as store:
        for ttl in (600, 7000, 400_000):
            store.put("x" * ttl, ttl=ttl)
    monkeypatch.setenv("FOREBAY_STORE", (tmp_path / "soon").as_uri())
    shown = show("ls", columns=80)
    assert {cell.colour for cell in shown.cells("in 10 min")} == {"brown"}
    assert {cell.colour for cell in shown.cells("in 2 h")} == {"default"}
    assert "in 5 d" in shown.text
    # The journal's word for a payload that no tool returned.
    assert shown.text.count("unknown") == 3
    assert shown.lines[-1].endswith("; 1 expires within an hour")
    assert shown.find("400.0 kB").count("█") == 6


@pytest.mark.parametrize("columns", WIDTHS)
def test_stats_lead_with_what_was_saved(columns: int) -> None:
    usage = run("stats").json["usage"]
    shown = show("stats", columns=columns)
    saved, calls, days, most, *_ = shown.lines
    assert saved == f"saved   {usage['saved_bytes'] / 1e6:.1f} MB   about {usage['saved_tokens']:,} tokens"
    assert all(cell.is_bold for cell in shown.cells(f"{usage['saved_tokens']:,}"))
    assert f"{usage['calls']:,}" in calls
    assert f"{usage['handles']} stored ({usage['handles'] / usage['calls']:.0%})" in calls
    first, last = min(usage["by_day"]), max(usage["by_day"])
    label, start, columns_by_day, end = days.rsplit(maxsplit=3)
    assert (label, start, end) == ("by day", first, last)
    # A column for each day, also for those without calls.
    day_count = (date.fromisoformat(last) - date.fromisoformat(first)).days + 1
    assert len(columns_by_day) == day_count
    # Soon after midnight, today has no call yet.
    assert DAYS - 1 <= day_count <= DAYS
    assert [column == "▁" for column in columns_by_day].count(True) >= 2
    best = max(usage["by_day"], key=lambda day: usage["by_day"][day]["saved_bytes"])
    assert f"most on {best}" in most
    bars = [line.count("█") for line in shown.lines if line.split()[:1] and line.split()[0] in usage["by_tool"]]
    assert bars[0] == max(bars) > 0
    read_back = [tool for tool, sums in usage["by_tool"].items() if sums["saved_bytes"] < 0]
    assert read_back
    assert not any(set(shown.find(tool)) & set("▏▎▍▌▋▊▉█") for tool in read_back)


def test_refusals_stand_out_in_the_journal() -> None:
    events = run("journal", "--count", "300").json
    shown = show("journal", "--count", "300", columns=120)
    headings = [line for line in shown.lines if re.fullmatch(r"\w+, \d{4}-\d\d-\d\d", line)]
    assert len(headings) == len({event["ts"][:10] for event in events})
    assert headings[0].startswith(("today", "yesterday"))
    refused = [event for event in events if event["event"] == "output_handle_refused"]
    assert refused
    lines = [line for line in shown.lines if " ✗ " in line]
    denied = [event for event in events if event["event"].endswith("_denied")]
    assert len(lines) == len(refused) + len(denied)
    assert all(cell == (cell.text, "red", True) for cell in shown.cells("✗"))
    assert {cell.colour for cell in shown.cells("created")} == {"green"}
    assert len(shown.lines) == 1 + len(headings) + len(events)


def test_recent_events_have_ages_and_older_ones_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(0.0)
    with forebay.open_store(tmp_path / "ages", sweep_interval=0) as store:
        store.journal.record("store_warning")
    with forebay.open_store(tmp_path / "ages", sweep_interval=0, clock=clock) as store:
        clock.now = 1_794_096_000.0
        store.journal.record("output_handle_deleted")
    monkeypatch.setenv("FOREBAY_STORE", (tmp_path / "ages").as_uri())
    lines = show("journal", columns=80).lines
    assert lines[0].split() == ["time", "(UTC)", "event"]
    assert re.fullmatch(r" *00:00:00  −  deleted", lines[2] if "deleted" in lines[2] else lines[4])
    assert any(re.fullmatch(r" *\d+ s ago  ▲  store_warning", line) for line in lines)


def test_the_summary_has_bars_by_tool() -> None:
    summary = run("journal", "summary").json
    shown = show("journal", "summary", columns=80)
    assert shown.lines[0].startswith(f"kept out of context  {summary['bytes_kept_out'] / 1e6:.1f} MB")
    largest = max(summary["by_tool"], key=lambda tool: summary["by_tool"][tool]["bytes"])
    assert shown.find(largest).count("█") == 24
    assert f"{summary['events']['tool_called']:,}" in shown.find("tool_called")
    assert json.loads(show("journal", "summary", "--json", columns=200).text) == summary


def test_a_pipe_gets_the_same_json_as_before() -> None:
    for args in (["ls"], ["stats"], ["journal"], ["journal", "summary"]):
        result = run(*args)
        assert result.out.count(b"\n") == 1
        assert result.out.isascii() or b"\x1b" not in result.out
        assert result.out == json.dumps(result.json, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
