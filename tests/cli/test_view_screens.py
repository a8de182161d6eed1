"""The screens of `forebay view`, driven by Textual's pilot."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest
from forebay.cli.view.app import ViewApp
from forebay.cli.view.screen import PagerScreen
from forebay.cli.view.source import FileSource
from textual.pilot import Pilot
from waiting import wait_until_async

pytestmark = pytest.mark.slow

Steps = Callable[[Pilot[None]], Awaitable[None]]


def read_screen(app: ViewApp) -> str:
    """Return the text that the widgets of a screen draw."""
    screen = app.screen
    if not isinstance(screen, PagerScreen):
        return ""
    widgets = [screen.title_line, screen.list, screen.prompt if screen.prompt.display else screen.status]
    return "\n".join(widget.render_line(line).text.rstrip() for widget in widgets for line in range(widget.size.height))


async def wait_for(pilot: Pilot[None], *texts: str) -> str:
    app = pilot.app
    assert isinstance(app, ViewApp)
    try:
        await wait_until_async(lambda: all(text in read_screen(app) for text in texts), seconds=20)
    except AssertionError:
        raise AssertionError(f"{texts} are not on the screen:\n{read_screen(app)}") from None
    return read_screen(app)


def drive(path: Path, steps: Steps, size: tuple[int, int] = (80, 24)) -> None:
    """View a file, and run steps on its screen."""

    async def run(source: FileSource) -> None:
        app = ViewApp(source)
        async with app.run_test(size=size) as pilot:
            await steps(pilot)

    with closing(FileSource(str(path))) as source:
        asyncio.run(run(source))


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("empty", b"", ["0 lines", "nothing here"]),
        ("empty.json", b"[]", ["0 items", "nothing here"]),
        ("scalar.json", b"[1]", ["[1 item]", "[0]: 1"]),
        ("binary", bytes(range(256)), ["binary", "0000000000  00 01 02"]),
        ("table.csv", b"a.b,b\n1,two\n3,four\n", ["2 rows", "a.b", "two"]),
        ("some.ndjson", b'{"a": 1}\n{"a": 2}\n', ["2 items", "a"]),
        ("marked.json", b'\xef\xbb\xbf[{"a": 1}, {"a": "last"}]', ["2 items", "last"]),
        ("broken.json", b'{"a": [1, 2', ["1 line", '{"a": [1, 2']),
        ("log", b"[info] one\n[info] two\n", ["2 lines", "[info] two"]),
        ("object.json", b'{"a": {"b": [1]}, "c": "d"}', ["{2 members}", 'c: "d"']),
        ("map.json", json.dumps({f"k{n}": {"x": n} for n in range(9)}).encode(), ["9 entries", "_key", "x"]),
        ("utf16.txt", "wide text".encode("utf-16"), ["1 line", "wide text"]),
    ],
)
def test_first_screens(tmp_path: Path, name: str, content: bytes, expected: list[str]) -> None:
    path = tmp_path / name
    path.write_bytes(content)

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, *expected)

    drive(path, steps)


@pytest.mark.parametrize("size", [(80, 24), (60, 20), (20, 5), (200, 60)])
def test_rows_are_as_wide_as_the_screen(tmp_path: Path, size: tuple[int, int]) -> None:
    path = tmp_path / "wide.json"
    path.write_text(json.dumps([{"漢字": "漢" * n, "n": n, "e": "👩\u200d👩\u200d👧é\t"} for n in range(100)]))

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "100 items")
        for keys in (("G",), ("l", "l"), ("enter",), ("escape", "question_mark"), ("slash",)):
            await pilot.press(*keys)
            await pilot.pause()
            screen = pilot.app.screen
            assert isinstance(screen, PagerScreen)
            for widget in (screen.title_line, screen.list, screen.prompt if screen.prompt.display else screen.status):
                assert widget.size.width == size[0]
                for line in range(widget.size.height):
                    assert widget.render_line(line).cell_length == size[0]

    drive(path, steps, size)


def test_the_prompt_edits_a_line_and_repeats_what_was_typed(tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    path.write_text("one\ntwo\nthree\n")

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "3 lines")
        await pilot.press("slash", *"thxe", "left", "left", "delete", *"r", "end", "backspace", *"ee", "enter")
        await wait_for(pilot, "1 match", "3 of 3")
        await pilot.press("slash", *"tw", "ctrl+u", *"a b", "ctrl+w", "home", *"z", "ctrl+k", "up")
        await wait_for(pilot, "/ three")
        await pilot.press("down", *"two", "enter")
        await wait_for(pilot, "1 match", "2 of 3")
        await pilot.press("slash", "x", "escape")
        await wait_for(pilot, "2 of 3")

    drive(path, steps)


def test_columns_can_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text(json.dumps([{"a": n, "b": {"c": f"text {n}"}} for n in range(9)]))

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "b.c", "text 8")
        await pilot.press("c", "ctrl+u", *"b.c", "enter")
        screen = await wait_for(pilot, "/0/b/c")
        assert screen.splitlines()[1].split() == ["b.c"]
        await pilot.press("c", "ctrl+u", "enter")
        await wait_for(pilot, "/0/a")

    drive(path, steps)


def test_a_column_that_no_item_has_is_named(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text(json.dumps([{"a": n, **({"b": None} if n == 5 else {})} for n in range(9)]))

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "9 items")
        await pilot.press("c", *"notenope", "enter")
        await wait_for(pilot, "no item here has bnotenope; o shows the outline")
        await pilot.press("c", "ctrl+u", *"b,a", "enter")
        screen = await wait_for(pilot, "1 of 9")
        assert screen.splitlines()[1].split() == ["b", "a"]
        assert "no item here" not in screen

    drive(path, steps)


def test_a_log_has_no_conditions_and_no_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "server.log"
    path.write_text("one\ntwo\n")

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "2 lines")
        await pilot.press("f")
        await wait_for(pilot, "only a table of items has conditions; / searches here")
        await pilot.press(*"x = 1.5", "enter")
        await wait_for(pilot, "the file name = 1.5 has no ending; add one, such as .txt")
        assert [each.name for each in tmp_path.iterdir()] == ["server.log"]
        await pilot.press("x", *"copy.log", "enter")
        await wait_for(pilot, "wrote 8 B to copy.log")
        await pilot.press("colon", *"SELECT 1", "enter")
        screen = await wait_for(pilot, "server.log has no items to query", "/ searches it")
        assert "oh_" not in screen

    drive(path, steps)
    assert (tmp_path / "copy.log").read_text() == "one\ntwo\n"


def test_an_export_needs_an_ending_that_says_the_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "some.tsv"
    path.write_text("a\tb\n1\t2\n3\t4\n")

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "2 rows")
        await pilot.press("x", *"copy", "enter")
        await wait_for(pilot, "copy does not say the format; end it in one of .json .ndjson", ".csv .parquet")
        await pilot.press("x", *"copy.tsv", "enter")
        await wait_for(pilot, "wrote ", " to copy.tsv")

    drive(path, steps)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["copy.tsv", "some.tsv"]


@pytest.mark.parametrize("size", [(80, 24), (40, 30)])
def test_a_long_error_takes_several_lines_until_the_next_key(tmp_path: Path, size: tuple[int, int]) -> None:
    path = tmp_path / "orders.json"
    path.write_text(json.dumps([{"name": n, "customer": f"customer {n}", "amount": n} for n in range(34)]))

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "34 items")
        await pilot.press("colon", *"SELECT nam FROM items", "enter")
        screen = await wait_for(pilot, "Binder Error", "LINE 1: SELECT nam FROM items", "example: SELECT")
        lines = screen.splitlines()
        start = next(number for number, line in enumerate(lines) if "Binder Error" in line)
        assert len(lines) == size[1]
        assert 1 < len(lines) - start <= size[1] // 3
        assert max(map(len, lines[start:])) < size[0]
        await pilot.press("j")
        screen = await wait_for(pilot, "2 of 34   5 %")
        assert "Error" not in screen
        assert len(screen.splitlines()) == size[1]
        await pilot.press("G")
        await wait_for(pilot, "34 of 34   end")

    drive(path, steps, size)


def test_a_long_text_in_a_value_is_wrapped(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text(json.dumps([{"id": 1, "text": "first line\nsecond " + "word " * 100 + "end"}, {}]))

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "2 items")
        await pilot.press("enter")
        await wait_for(pilot, "{2 members}")
        await pilot.press("G", "enter")
        screen = await wait_for(pilot, "first line", "second word", "end")
        assert len(screen.splitlines()) > 8

    drive(path, steps)


def test_g_goes_to_the_number_that_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text(json.dumps([{"n": n, "odd": n % 2 == 1} for n in range(1000)]))

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "1,000 items")
        await pilot.press("g", *"500", "enter")
        await wait_for(pilot, "/500/n", "501 of 1,000")
        await pilot.press("g", *"50%", "enter")
        await wait_for(pilot, "501 of 1,000")
        await pilot.press("f", *"odd = true", "enter")
        await wait_for(pilot, "500 of 1,000 items")
        await pilot.press("g", *"700", "enter")
        await wait_for(pilot, "/701/n", "351 of 500")
        await pilot.press("g", *"abc", "enter")
        await wait_for(pilot, "abc is no number; type one from 0 to 499, or a share such as 50%")

    drive(path, steps)


def test_items_that_are_not_json_are_an_error_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "some.ndjson"
    lines = [json.dumps({"n": n, "text": "x" * 100}) for n in range(40_000)]
    # Beyond what is validated when a file is opened.
    lines[39_000] = "this is not JSON"
    path.write_text("\n".join(lines))

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "40,000 items")
        await pilot.press("g", *"39000", "enter")
        await wait_for(pilot, "not valid JSON", "39,001 of 40,000")
        await pilot.press("g", *"38000", "enter")
        await wait_for(pilot, "/38000/n")
        await pilot.press("t")
        await wait_for(pilot, "40,000 lines")

    drive(path, steps)


def test_escape_ends_a_job_then_a_filter_then_a_search(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text(json.dumps([{"n": n} for n in range(50)]))

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "50 items")
        await pilot.press("f", *"n < 10", "enter")
        await wait_for(pilot, "10 of 50 items", "where n < 10")
        await pilot.press("slash", *"7", "enter")
        await wait_for(pilot, "1 match in 1 item", "8 of 10")
        await pilot.press("escape")
        await wait_for(pilot, "8 of 50")
        app = pilot.app
        assert isinstance(app, ViewApp)
        assert app.pattern is not None
        await pilot.press("escape")
        await wait_until_async(lambda: app.pattern is None)

    drive(path, steps)


@pytest.mark.parametrize(("value", "pointer"), [({"x": 5}, "/k5/x"), ([5], "/k5/0")])
def test_pointers_into_entries_of_a_map(tmp_path: Path, value: object, pointer: str) -> None:
    path = tmp_path / "map.json"
    path.write_text(json.dumps({f"k{n}": value for n in range(40)}))

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "40 entries")
        await pilot.press("g", *"5", "enter", "l")
        await wait_for(pilot, pointer.rpartition("/")[0] if "0" in pointer else pointer)
        await pilot.press("enter")
        await wait_for(pilot, "map.json /k5", "1 of 2")
        await pilot.press("j")
        await wait_for(pilot, pointer, "2 of 2")

    drive(path, steps)


def test_halves_of_surrogate_pairs_are_shown_and_copied(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text('[{"\\ud800": "a\\udfff"}, {"\\ud800": 2}]')

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "2 items", '{"\\ud800": "a\\udfff"}')
        for keys in ("yy", "yp", "yc"):
            await pilot.press(*keys)
            await wait_for(pilot, "copied: ")
            await pilot.press("h")
        await pilot.press("enter")
        await wait_for(pilot, "{1 member}")
        await pilot.press("j", "y", "p")
        await wait_for(pilot, "no JSON Pointer leads here")
        await pilot.press("p", "ctrl+u", *"/0/none", "enter")
        await wait_for(pilot, "nothing at /0/none; o shows the outline")

    drive(path, steps)
