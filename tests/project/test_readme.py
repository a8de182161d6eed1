"""The README is true: its examples run, and its table and pictures are those of the last runs."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import headline
import pytest
from alternatives import picture, report
from peer import Peer, connect

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")

SERVER = """
import json
from mcp.server import MCPServer
server = MCPServer("files")
@server.tool(structured_output=False)
def list_orders() -> str:
    return json.dumps([{"id": n, "status": "failed" if n % 9 == 4 else "paid"} for n in range(60_000)])
server.run()
"""


def find_blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def find_picture_text(name: str) -> str:
    (text,) = re.findall(rf"^!\[(.*?)\]\(docs/images/{re.escape(name)}\)", README, re.MULTILINE)
    return str(text)


def check_handle(peer: Peer) -> None:
    """Call the tool of an example, and with the handle the tools that the README shows."""
    tool_calls = [json.loads(line) for line in find_blocks("json")[1].splitlines()]
    descriptor = peer.call("list_orders")
    assert descriptor["item_count"] == 60_000
    assert len(json.dumps(descriptor)) < 4096
    results: dict[str, Any] = {}
    for call in tool_calls:
        results[call["name"]] = peer.call(
            call["name"], **{**call["arguments"], "output_handle": descriptor["output_handle"]}
        )
    assert dict(results["output_query"]["rows"]) == {"failed": 6667, "paid": 53_333}
    assert results["output_fetch"]["content"] == [
        {"id": n, "status": "failed" if n % 9 == 4 else "paid"} for n in range(41_234, 41_239)
    ]
    assert results["output_search"]["total_matches"] == 6667
    assert [match["value"] for match in results["output_search"]["matches"]] == [{"id": 4}, {"id": 13}, {"id": 22}]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FOREBAY_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.mark.slow
def test_the_entry_of_a_client_wraps_a_server(home: Path) -> None:
    (entry,) = json.loads(find_blocks("json")[0])["mcpServers"].values()
    assert entry["command"] == "forebay"
    options = entry["args"][: entry["args"].index("--") + 1]
    server = home / "server.py"
    server.write_text(SERVER, encoding="utf-8")
    with connect([sys.executable, "-m", "forebay", *options, sys.executable, str(server)]) as peer:
        check_handle(peer)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1], ids=["mcp", "fastmcp"])
def test_the_example_of_a_server_runs(number: int, home: Path) -> None:
    example = find_blocks("python")[number]
    assert len([line for line in example.splitlines() if line]) <= 10
    server = home / "server.py"
    server.write_text(example, encoding="utf-8")
    with connect([sys.executable, str(server)]) as peer:
        check_handle(peer)


def test_the_tables_are_those_of_the_last_runs() -> None:
    for document in report.DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        assert report.replace_tables(text) == text
    for name, table in report.iter_tables():
        assert any(table in document.read_text(encoding="utf-8") for document in report.DOCUMENTS), name


def test_the_pictures_are_those_of_the_last_runs() -> None:
    assert report.PICTURE.read_text(encoding="utf-8") == picture.draw(*report.read_results())
    results = json.loads(headline.RESULTS.read_bytes())
    assert headline.PICTURE.read_text(encoding="utf-8") == headline.draw(results["rows"])


def test_the_text_of_a_picture_has_its_numbers() -> None:
    results, _ = report.read_results()
    for way in (0, -1):
        assert picture.format_bytes(results["ways"][way]["first"]["bytes"]) in find_picture_text("before-after.svg")
    speed = json.loads(headline.RESULTS.read_bytes())
    for document in headline.DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        assert headline.replace_figures(text, speed) == text
    for row in speed["rows"]:
        assert headline.format_ratio(row["ratio"]) in find_picture_text("speed.svg")
    assert f"`make speed` on {speed['date']}" in README


def test_every_link_leads_to_a_file() -> None:
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)]+)\)", README)]
    files = [target for target in targets if not target.startswith("http")]
    assert len(files) > 20
    commented = set(re.findall(r"\]\(([^)]+)\)", "".join(re.findall(r"<!--.*?-->", README, re.DOTALL))))
    assert [file for file in files if file not in commented and not (ROOT / file).exists()] == []


def test_every_command_of_make_exists() -> None:
    named = set(re.findall(r"\bmake ([a-z-]+)", README))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {"demo", "test", "alternatives", "speed"} <= named <= targets


def test_ci_runs_the_command_for_tests() -> None:
    commands = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(r"\bmake test$", commands, re.MULTILINE)
    assert re.search(r"^make test\b", README, re.MULTILINE)


def test_it_takes_three_screens() -> None:
    assert len(README.splitlines()) <= 150
    assert len(README.split()) <= 1100
