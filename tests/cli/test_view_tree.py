"""The tree of `forebay view`: its branches, and searches in it."""

import json
from pathlib import Path

import pytest
from forebay.cli.view.tree import decode_key
from textual.pilot import Pilot
from view_pilot import drive, read_screen, wait_for

pytestmark = pytest.mark.slow

VALUE = {"a": {"b": [1, 2, {"deep": "needle"}]}, "c": "text", "e": {}, "f": [], "g": "needle", "last": 3}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "tree.json"
    path.write_text(json.dumps([VALUE]))
    return path


def test_branches_are_closed_and_opened(tree: Path) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        screen = await wait_for(pilot, "{6 members}", 'deep: "needle"')
        assert [line.strip() for line in screen.splitlines()[8:11]] == ['c: "text"', "e: {}", "f: []"]
        await pilot.press("E")
        screen = await wait_for(pilot, "▸ a: {1 member}", "1 of 7")
        assert "deep: " not in screen.replace('{"deep": "needle"}', "")
        await pilot.press("e")
        await wait_for(pilot, 'deep: "needle"', "1 of 12")
        await pilot.press("slash", *"deep", "enter")
        await wait_for(pilot, "1 match in this value")
        # The branch that the cursor is in closes over it.
        await pilot.press("E")
        await wait_for(pilot, "/0/a", "2 of 7")
        await pilot.press("space")
        await wait_for(pilot, "▾ a: {1 member}", "▸ b: [3 items]", "2 of 8")
        await pilot.press("space")
        await wait_for(pilot, "▸ a: {1 member}", "2 of 7")
        await pilot.press("enter")
        await wait_for(pilot, "▾ a: {1 member}")
        # A value that has no branches stays as it is.
        await pilot.press("G", "space", "enter")
        await wait_for(pilot, "/0/last", "8 of 8")
        await pilot.press("left")
        await wait_for(pilot, "1 of 8", " /0 ")
        await pilot.press("left", "left")
        await wait_for(pilot, "▸ {6 members}", "1 of 1")
        await pilot.press("right", "right", "right")
        await wait_for(pilot, "/0/a/b", "3 of 8")

    drive(tree, steps, path="/0")


def test_a_search_goes_both_ways_and_around(tree: Path) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "{6 members}")
        await pilot.press("E", "slash", *"needle", "enter")
        await wait_for(pilot, "2 matches in this value", 'deep: "needle"', "7 of 12")
        await pilot.press("n")
        await wait_for(pilot, "11 of 12")
        await pilot.press("n")
        await wait_for(pilot, "2 matches in this value; continued from the start", "7 of 12")
        await pilot.press("N")
        await wait_for(pilot, "2 matches in this value; continued from the end", "11 of 12")
        await pilot.press("N")
        await wait_for(pilot, "7 of 12")
        assert "continued" not in read_screen(pilot.app)
        await pilot.press("slash", *"absent", "enter", "N")
        await wait_for(pilot, "no match for absent")

    drive(tree, steps, path="/0")


def test_a_search_back_reads_all_pages_of_matches(tmp_path: Path) -> None:
    path = tmp_path / "many.json"
    path.write_text(json.dumps([{"values": [{"x": n} for n in range(2500)]}]))

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "{1 member}")
        await pilot.press("e", "G")
        await wait_for(pilot, "5,002 of 5,002")
        await pilot.press("slash", *"x", "enter")
        await wait_for(pilot, "2,500 matches in this value")
        await pilot.press("N")
        await wait_for(pilot, "5,000 of 5,002")

    drive(path, steps, path="/0")


def test_a_search_in_values_leaves_brackets_out(tree: Path) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "{6 members}")
        await pilot.press("slash", *"{", "enter")
        await wait_for(pilot, "4 matches in this value")
        # The flags of the last search are kept, and an empty text stands for the last one.
        await pilot.press("slash", "ctrl+t", "ctrl+o", "enter")
        await wait_for(pilot, "no match for { (any case, values)")
        await pilot.press("slash", *"NEEDLE", "enter")
        await wait_for(pilot, "2 matches in this value", "7 of 12")

    drive(tree, steps, path="/0")


@pytest.mark.parametrize(
    ("raw", "key"), [(b'"a\\u0062"', "ab"), (b'"a\x01"', "a\x01"), (b'"a\xff"', "a\ufffd"), (b'"\\ud800"', "\ud800")]
)
def test_keys_that_are_not_quite_json_are_shown(raw: bytes, key: str) -> None:
    """Of a large file, only the beginning is validated."""
    assert decode_key(raw) == key
