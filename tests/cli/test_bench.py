"""`forebay bench` as a command: JSON in a pipe, bars and progress on a terminal, charts and comparisons."""

import json
import re
import sys
from pathlib import Path

import pytest
from command import run, run_on_terminal
from screens import show

pytestmark = [pytest.mark.posix, pytest.mark.slow, pytest.mark.usefixtures("home")]

QUICK = ["--size", "200KB", "--time", "0.1s"]


def test_json_in_a_pipe() -> None:
    report = run("bench", *QUICK, "--only", "index,truncate").json
    assert report["payload"]["name"] == "generated orders, seed 1"
    assert [row["group"] for row in report["benchmarks"]] == ["truncate", "index", "index"]
    assert report["left_out"] == []


@pytest.mark.parametrize(
    ("columns", "environment"),
    [(60, {}), (80, {}), (80, {"NO_COLOR": "1"}), (80, {"PYTHONIOENCODING": "ascii"}), (120, {})],
    ids=str,
)
def test_a_table_with_bars_on_a_terminal(
    columns: int, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    shown = show("bench", *QUICK, "--only", "index", columns=columns, **environment)
    assert shown.lines[0].startswith("generated orders, seed 1  199.")
    heading = next(
        number for number, line in enumerate(shown.lines) if line == "index: items found, every byte checked"
    )
    ours, *peers = (line.split() for line in shown.lines[heading + 1 : heading + 4])
    assert ours[0] == "forebay"
    assert {row[0] for row in peers} <= {"memcpy", "orjson", "json", "pysimdjson", "jq", "ijson"}
    assert ("#" if "PYTHONIOENCODING" in environment else "█") in shown.text
    if "PYTHONIOENCODING" in environment:
        assert shown.text.isascii()
        assert "\\x" not in shown.text
    assert len(shown.colours) > 1 or "NO_COLOR" in environment


def test_progress_is_on_standard_error() -> None:
    result = run_on_terminal("bench", *QUICK, "--only", "index", only="err")
    assert json.loads(result.out)["benchmarks"]
    assert re.search(rb"index, \w+", result.err)


@pytest.mark.parametrize("name", ["orders.json", "-"])
def test_a_file_of_the_user(name: str, tmp_path: Path) -> None:
    data = json.dumps({"rows": [{"kind": "ab"[number % 2]} for number in range(500)]}).encode()
    path = tmp_path / "orders.json"
    path.write_bytes(data)
    source = name if name == "-" else str(path)
    report = run("bench", source, "--only", "page", "--time", "0.05s", stdin=data).json
    assert (report["payload"]["name"], report["payload"]["items"]) == (source, 500)
    assert report["payload"]["memory"] == ("in memory" if name == "-" else "read once into memory, not memory-mapped")


def test_it_leaves_nothing_behind(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    assert run("bench", *QUICK, "--only", "where,query,index").json["left_out"] == []
    assert [*temporary.iterdir()] == []
    assert not home.exists()


def test_a_chart_is_written(tmp_path: Path) -> None:
    chart = tmp_path / "chart.svg"
    run("bench", *QUICK, "--only", "index", "--svg", str(chart))
    assert chart.read_text().startswith("<svg")
    failed = run("bench", *QUICK, "--only", "index", "--svg", str(tmp_path))
    assert (failed.code, json.loads(failed.err)["error"]["code"]) == (1, "output_unwritable")


def test_reports_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    report = run("bench", *QUICK, "--only", "index").json
    for row in report["benchmarks"]:
        row["forebay"].update(best_seconds=1e-9, median_seconds=1e-9)
    path = tmp_path / "old.json"
    path.write_text(json.dumps(report))
    options = ["bench", *QUICK, "--only", "index", "--compare", str(path)]
    changes = run(*options).json["changes"]
    assert [change["verdict"] for change in changes] == ["worse", "worse"]
    assert show(*options, columns=100).text.count("worse") == 2
    failed = run(*options, "--fail-below", "0.5")
    assert failed.code == 1
    assert json.loads(failed.err)["error"]["code"] == "slower_than_before"
    assert "index: items found" in json.loads(failed.err)["error"]["message"]
    assert json.loads(failed.out)["changes"]
    assert run(*options, "--fail-below", "0").code == 0
    other = run("bench", "--size", "300KB", "--compare", str(path))
    assert other.code == 2
    assert "measured another payload" in other.error["message"]


def test_what_was_not_measured_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    broken, numbers, old = tmp_path / "broken.json", tmp_path / "numbers.json", tmp_path / "old.json"
    broken.write_text('{"a": [1, 2\n')
    text = show("bench", str(broken), "--only", "where,page", "--time", "0.05s", columns=160, PATH="/nowhere").text
    assert re.search(r"broken\.json  12 B, text, 1 line, sha256 [0-9a-f]{12}", text)
    assert "measured as text: " in text
    assert "where does not apply: the payload has no items" in text
    assert "jq is not installed: " in text
    # A peer that changes a number has a reason, and no time.
    numbers.write_text(f"[{','.join(['123456789012345678901234567890'] * 50)}]")
    options = ["bench", str(numbers), "--time", "0.05s"]
    text = show(*options, "--only", "index", columns=160).text
    assert "changes the value of the first or the last item" in text
    # Nothing is measured, and so nothing compared.
    report = run(*options, "--only", "index").json
    old.write_text(json.dumps({**report, "benchmarks": []}))
    text = show(*options, "--only", "where", "--compare", str(old), columns=160).text
    assert "no benchmark is in both reports" in text
    assert "Bars show" not in text


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["no/such/file"], 1, "cannot be read"),
        (["--only", "indx"], 2, "it is one or more of truncate, index"),
        (["--only", ","], 2, "it is one or more of truncate, index"),
        (["--size", "big"], 2, "such as 100MB"),
        (["--size", "0"], 2, "--size"),
        (["--shape", "cube"], 2, "--shape"),
        (["--time", "0"], 2, "--time must be more than 0"),
        (["--fail-below", "0.5"], 2, "--compare"),
        (["--compare", sys.executable], 1, "is not JSON"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_options_name_the_right_ones(args: list[str], code: int, words: str) -> None:
    failed = run("bench", *args)
    assert failed.code == code
    assert words in failed.error["message"]
