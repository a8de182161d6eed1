"""The screens of `forebay view`, driven by Textual's pilot."""

import gc
import json
import threading
from contextlib import closing
from pathlib import Path

import pytest
from forebay.cli.view.app import ViewApp
from forebay.cli.view.items_screen import ItemsScreen
from forebay.cli.view.jobs import Job
from forebay.cli.view.row_list import RowList
from forebay.cli.view.screen import PagerScreen
from forebay.cli.view.source import FileSource, Stored, StoredSource
from forebay.store import open_store
from textual.pilot import Pilot
from view_pilot import drive, drive_source, read_screen, wait_for
from waiting import wait_until_async

pytestmark = pytest.mark.slow


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
    path.write_bytes(b"one\ntwo\n")

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
    assert (tmp_path / "copy.log").read_bytes() == b"one\ntwo\n"


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
        await pilot.press("colon", *"SELECT 1", "enter")
        await wait_for(pilot, "some.ndjson has no items to query", "/ searches it")
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


class SlowSource(FileSource):
    """A file whose index takes as long as the test wants."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.goes_on = threading.Event()
        self.was_cancelled = threading.Event()

    def load(self, job: Job) -> None:
        job.start("index", 100)
        while not self.goes_on.wait(0.01):
            try:
                job.advance(50)
            except Exception:
                self.was_cancelled.set()
                raise
        super().load(job)


@pytest.fixture
def slow_log(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_bytes(b"".join(b"line %d %s\n" % (n, b"x" * 100) for n in range(20_000)))
    return path


def test_the_beginning_is_shown_until_all_is_indexed(slow_log: Path) -> None:
    with closing(SlowSource(str(slow_log))) as source:

        async def steps(pilot: Pilot[None]) -> None:
            await wait_for(pilot, "the first 1.0 MB", "line 0 ", "index ", "50%  Esc cancels")
            await pilot.press("j", "j", "pagedown")
            source.goes_on.set()
            # The cursor stays in its line.
            screen = await wait_for(pilot, "20,000 lines", "25 of 20,000")
            assert "the first" not in screen

        drive_source(source, steps)


def test_the_beginning_gives_way_to_a_table(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text(json.dumps([{"id": n, "text": "x" * 100} for n in range(20_000)]))
    with closing(SlowSource(str(path))) as source:

        async def steps(pilot: Pilot[None]) -> None:
            await wait_for(pilot, "the first 1.0 MB", "Esc cancels")
            source.goes_on.set()
            await wait_for(pilot, "20,000 items", "1 of 20,000")

        drive_source(source, steps)


def test_the_beginning_stays_if_the_rest_is_not_wanted(slow_log: Path, caplog: pytest.LogCaptureFixture) -> None:
    with closing(SlowSource(str(slow_log))) as source:

        async def steps(pilot: Pilot[None]) -> None:
            await wait_for(pilot, "the first 1.0 MB", "Esc cancels")
            await pilot.press("escape")
            await wait_for(pilot, "cancelled", "the first 1.0 MB")
            await wait_until_async(source.was_cancelled.is_set)
            await pilot.press("G")
            await wait_for(pilot, "the first 1.0 MB", "end")

        drive_source(source, steps)
    # Not even that the error of a future was not looked at, which would be written onto the screen.
    gc.collect()
    assert caplog.records == []


def test_an_interrupt_ends_the_job_and_the_next_one_the_app(slow_log: Path) -> None:
    with closing(SlowSource(str(slow_log))) as source:

        async def steps(pilot: Pilot[None]) -> None:
            await wait_for(pilot, "the first 1.0 MB", "Esc cancels")
            await pilot.press("ctrl+c")
            await wait_for(pilot, "cancelled")
            assert pilot.app.is_running
            await pilot.press("ctrl+c")
            await wait_until_async(lambda: pilot.app._exit)

        drive_source(source, steps)


def test_the_app_ends_while_a_job_runs(slow_log: Path) -> None:
    with closing(SlowSource(str(slow_log))) as source:

        async def steps(pilot: Pilot[None]) -> None:
            await wait_for(pilot, "the first 1.0 MB", "Esc cancels")
            await pilot.press("Q")

        drive_source(source, steps)
        assert source.was_cancelled.wait(30)


def test_paths_lead_to_items_and_collections(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    items = [{"id": n, "big": {f"k{k}": "v" * 100 for k in range(200)} if n == 3 else None} for n in range(50)]
    path.write_text(json.dumps({"page": {"next": 2}, "rows": items}))

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "50 items at /rows")
        await pilot.press("p", "ctrl+u", *"rows/50", "enter")
        await wait_for(pilot, "nothing at /rows/50; there are 50 items")
        await pilot.press("p", "ctrl+u", *"/rows/49/id", "enter")
        await wait_for(pilot, "some.json /rows/49/id", "49", "1 of 1")
        # Outside of the items, and in an item of which only an overview was read.
        await pilot.press("p", "ctrl+u", *"/page/next", "enter")
        await wait_for(pilot, "some.json /page/next")
        await pilot.press("p", "ctrl+u", *"/rows/3/big/k199", "enter")
        await wait_for(pilot, "some.json /rows/3/big/k199", "vvvv")
        await pilot.press("p", "ctrl+u", *"/rows", "enter")
        await wait_for(pilot, "50 items at /rows")
        await pilot.press("p", "ctrl+u", "slash", "enter")
        await wait_for(pilot, "{2 members}", "page: {1 member}", "rows: [50 items]")
        for _ in range(5):
            await pilot.press("backspace")
        await wait_for(pilot, "50 items at /rows", "1 of 50")
        # There is nothing behind the first screen.
        await pilot.press("backspace", "j")
        await wait_for(pilot, "2 of 50")

    drive(path, steps)


def test_a_text_has_no_paths_and_no_outline(tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    path.write_text("one\ntwo\nthree\n")

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "3 lines")
        await pilot.press("p", *"/a", "enter")
        await wait_for(pilot, "a path leads into JSON, and this is not")
        await pilot.press("o")
        await wait_for(pilot, "only JSON, CSV and TSV have an outline; this is text")
        # No text was searched for yet, and nothing was typed.
        await pilot.press("slash", "enter", "colon", "enter", "N")
        await wait_for(pilot, "nothing to search for yet; / starts a search")
        # Values are only in JSON.
        await pilot.press("slash", "ctrl+t", *"t", "enter")
        await wait_for(pilot, "2 matches", "2 of 3")
        await pilot.press("N")
        await wait_for(pilot, "2 matches; continued from the end", "3 of 3")
        await pilot.press("n")
        await wait_for(pilot, "2 matches; continued from the start", "2 of 3")
        await pilot.press("home")
        await wait_for(pilot, "1 of 3")
        await pilot.press("space")
        await wait_for(pilot, "3 of 3")
        # Other keys do nothing in the prompt; up and down stop at the ends of the history.
        await pilot.press("slash", "up", "up", "up", "f5", "left", "right", *"h", "enter")
        await wait_for(pilot, "1 match", "3 of 3")

    drive(path, steps)


def test_the_outline_of_a_table_is_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "some.csv"
    path.write_text("id,full name\n1,one\n2,two\n")

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "2 rows")
        await pilot.press("o")
        screen = await wait_for(pilot, "outline of some.csv")
        assert [line.strip() for line in screen.splitlines()[1:3]] == ["id", "full name"]
        # Back by the key of the lines, too.
        await pilot.press("t")
        await wait_for(pilot, "2 rows")

    drive(path, steps)


def test_long_lines_are_read_when_they_are_opened(tmp_path: Path) -> None:
    path = tmp_path / "some.log"
    value = json.dumps({"values": ["x" * 100] * 3000})
    path.write_text(f"first\n{value}\n{'y' * (3 << 20)}END\n{{not JSON\nlast\n")

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "5 lines")
        await pilot.press("j", "enter")
        await wait_for(pilot, "{1 member}", "values: [3,000 items]")
        await pilot.press("escape", "j", "enter")
        screen = await wait_for(pilot, "line 2   3.1 MB; the first 1.0 MB")
        assert "END" not in screen
        await pilot.press("escape", "j", "enter")
        await wait_for(pilot, "line 3   9 B", "{not JSON")
        # It is wrapped already.
        await pilot.press("enter", "j")
        await wait_for(pilot, "line 3   9 B")

    drive(path, steps)


def test_values_inside_of_large_values_are_tables_and_searched(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    entries = {f"key {n}": {"n": n, "text": "x" * 100} for n in range(30_000)}
    path.write_text(json.dumps([{"one": {"two": entries, "small": 1}, "other": 2}, {}, {}]))

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "3 items")
        await pilot.press("enter")
        await wait_for(pilot, "2 entries at /0")
        await pilot.press("slash", "ctrl+r", *"oth[e]r", "enter")
        await wait_for(pilot, "1 match in 1 item", "2 of 2")
        await pilot.press("up")
        await wait_for(pilot, "1 of 2")
        await pilot.press("enter")
        await wait_for(pilot, "2 entries at /0/one")
        await pilot.press("enter")
        await wait_for(pilot, "30,000 entries at /0/one/two")
        # A regular expression needs all bytes of the value, which is inside of two others.
        await pilot.press("slash", *"key 2999[89]", "enter")
        await wait_for(pilot, "2 matches in 2 items", "29,999 of 30,000")
        await pilot.press("N")
        await wait_for(pilot, "continued from the end", "30,000 of 30,000")
        await pilot.press("enter")
        await wait_for(pilot, "n: 29999", "/0/one/two/key 29999")

    drive(path, steps)
    with open_store((tmp_path / "store").as_uri(), sweep_interval=0) as store, path.open("rb") as file:
        handle = store.put(file).output_handle
        with closing(StoredSource(Stored(store, handle, None))) as stored:
            drive_source(stored, steps)


def test_a_large_value_of_a_query_has_no_pointer(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text(json.dumps([{"id": n, "big": ["x" * 100] * 15_000 if n == 3 else []} for n in range(9)]))

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "9 items")
        await pilot.press("colon", *"SELECT big, id FROM items WHERE id = 3", "enter")
        await wait_for(pilot, "1 row", "ms")
        await pilot.press("enter")
        await wait_for(pilot, "2 entries", "_key")
        await pilot.press("slash", "ctrl+r", *"i[d]", "enter")
        await wait_for(pilot, "1 match in 1 item", "2 of 2")
        await pilot.press("y", "p")
        await wait_for(pilot, "no JSON Pointer leads here")

    drive(path, steps)


def test_an_entry_with_a_very_long_key_has_no_pointer(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text(json.dumps({**{f"k{n}": {"x": n} for n in range(30)}, "k" * 3_000_000: {"x": 1, "y": 2}}))

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "31 entries")
        await pilot.press("G")
        await wait_for(pilot, "31 of 31")
        await pilot.press("y", "p")
        await wait_for(pilot, "no JSON Pointer leads here")
        # Of so large an item, not all fields are looked at: none of them is said to be missing.
        await pilot.press("c", "ctrl+u", *"nope", "enter")
        await wait_for(pilot, "nope")
        assert "no item here" not in read_screen(pilot.app)

    drive(path, steps)


def test_columns_and_the_filter_are_chosen_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text(json.dumps([{"a": n, "b": n} for n in range(9)]))

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "9 items")
        for x, y, place in ((9, 3, "/2/b"), (70, 4, "/3/b"), (4, 1, "/0/a"), (4, 15, "/0/a")):
            await pilot.click(RowList, offset=(x, y))
            await wait_for(pilot, place)
        await pilot.press("f", *"a > 6", "enter")
        await wait_for(pilot, "2 of 9 items")
        await pilot.press("f", "ctrl+u", "enter")
        await wait_for(pilot, "9 items", "8 of 9")

    drive(path, steps)


def test_numbers_of_any_length_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text('[{"a": ' + "7" * 5000 + ', "b": 1}, {"a": 2, "b": 3}]')

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "2 items", "7777")

    drive(path, steps)


def test_lines_are_scrolled_sideways_and_searched_by_words(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    text = "one\ntwo\n" + "x" * 30 + "END\nlast"
    path.write_text(json.dumps([{"text": text}]))

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "{1 member}")
        await pilot.press("slash", "ctrl+t", *"one", "enter")
        await wait_for(pilot, "1 match in this value")
        await pilot.press("enter")
        await wait_for(pilot, "/0/text", "1 of 4")
        # The search in values of JSON goes on as one in text.
        await pilot.press("n")
        await wait_for(pilot, "1 match in 1 line")
        await pilot.press("right")
        screen = await wait_for(pilot, "xxEND")
        assert "xxxxxxxxxxxx" not in screen
        await pilot.press("left", "left")
        await wait_for(pilot, "xxxxxxxxxxxx")
        # Nothing in one line has it, only the end of a line and the start of the next one.
        await pilot.press("slash", "ctrl+r", *"e[^n]t", "enter")
        await wait_for(pilot, "no match for e[^n]t (regex)")
        await pilot.press("slash", *r"^t\w+$", "enter")
        await wait_for(pilot, "1 match in 1 line", "2 of 4")
        await pilot.press("ctrl+c")

    drive(path, steps, path="/0")


def test_a_long_error_has_a_third_of_a_small_screen(tmp_path: Path) -> None:
    path = tmp_path / "orders.json"
    path.write_text(json.dumps([{"name": n} for n in range(34)]))

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "34 items")
        await pilot.press("colon", *"SELECT nam FROM items", "enter")
        screen = await wait_for(pilot, "Binder Error", "…")
        assert len(screen.splitlines()) == 9
        # What waits can be given up by the key that ends the app.
        await pilot.press("j")
        await wait_for(pilot, "2 of 34")

    drive(path, steps, (40, 9))


def test_rows_that_are_no_objects_are_shown_in_one_piece(tmp_path: Path) -> None:
    path = tmp_path / "mixed.json"
    deep = "[" * 400 + "]" * 400
    path.write_text(
        '[{"a": 1, "b": 2}, "text", {"a": ' + deep + ', "b": 3}, [5, 6], {"b": {"c": 1}}, {"a": 9, "b": 4}]'
    )

    async def steps(pilot: Pilot[None]) -> None:
        screen = await wait_for(pilot, "6 items", "[5, 6]")
        assert screen.splitlines()[3].split() == ["1", "text"]
        await pilot.press("dollar_sign")
        await wait_for(pilot, "/0/b")
        await pilot.press("0")
        await wait_for(pilot, "/0/a")
        items = pilot.app.screen
        assert isinstance(items, ItemsScreen)
        items.set_filter("b >")
        await wait_for(pilot, "a value is missing; write ")
        await pilot.press("f", *"b in 4", "enter")
        await wait_for(pilot, "1 of 6 items", "where b in 4")

    drive(path, steps)


def test_a_query_shows_the_first_of_many_rows(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text(json.dumps([{"id": n, "text": "x" * 200} for n in range(30_000)]))

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "30,000 items")
        await pilot.press("colon", *"SELECT id, text FROM items ORDER BY id", "enter")
        await wait_for(pilot, "first ", " rows of 30,000", "text")
        await pilot.press("x", *"no/such/folder.csv", "enter")
        await wait_for(pilot, "folder.csv cannot be written: ")

    drive(path, steps)


def test_a_disk_that_fails_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    path.write_text("one\ntwo\n")

    class BadDisk(FileSource):
        def map(self, job: Job) -> bytes:
            del job
            raise OSError(5, "Input/output error")

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "2 lines")
        await pilot.press("slash", "ctrl+r", *"t", "enter")
        await wait_for(pilot, "Input/output error", "1 of 2")

    with closing(BadDisk(str(path))) as source:
        drive_source(source, steps)
