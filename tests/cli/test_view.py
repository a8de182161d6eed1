"""`forebay view` in a real terminal: keys are pressed, and the screen is read."""

import base64
import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command import COMMAND, run, run_on_terminal
from terminal_screen import TerminalScreen
from waiting import wait_until

pytestmark = [pytest.mark.posix, pytest.mark.slow]

ORDERS = [
    {
        "id": n,
        "status": "failed" if n % 9 == 4 else "paid",
        "total": n / 4,
        "customer": {"name": f"name {n % 50}", "country": "DE" if n % 2 else "FR"},
        "note": "needle in a haystack" if n in (777, 4126) else f"note {n}",
    }
    for n in range(5000)
]

View = Callable[..., contextlib.AbstractContextManager[TerminalScreen]]


@pytest.fixture
def orders(tmp_path: Path) -> str:
    path = tmp_path / "orders.json"
    path.write_text(json.dumps({"page": 1, "orders": ORDERS}))
    return str(path)


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "server.log"
    lines = [f"2026-11-19 INFO request {n} took {n % 77} ms" for n in range(20_000)]
    lines[12_345] = '{"level": "error", "message": "it broke", "frames": [1, 2]}'
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@contextlib.contextmanager
def view(*args: str, ready: str = "? help", **options: object) -> Iterator[TerminalScreen]:
    with TerminalScreen(*COMMAND, "view", *args, **options) as terminal:  # type: ignore[arg-type]
        terminal.wait_for(ready, without=["the first"])
        yield terminal


def assert_ends(terminal: TerminalScreen) -> None:
    terminal.press("Q")
    assert terminal.wait_for_end() == 0


@pytest.mark.usefixtures("home")
def test_items_are_a_table(orders: str) -> None:
    with view(orders) as terminal:
        rows = terminal.wait_for("customer.country", "5,000 items at /orders", "note 0").splitlines()
        assert rows[1].split() == ["id", "status", "total", "customer.name", "customer.country", "note"]
        assert rows[2].split()[:-1] == ["0", "0", "paid", "0.0", "name", "0", "FR", "note", "0"]
        assert "1 of 5,000" in rows[-1]
        terminal.press("G")
        rows = terminal.wait_for("5,000 of 5,000", "note 4999").splitlines()
        assert rows[-2].split()[:4] == ["4,999", "4999", "failed", "1249.75"]
        terminal.press("g", "1234", "enter")
        terminal.wait_for("1,235 of 5,000", "/orders/1234/id")
        terminal.press("page_down", "page_down", "down", "j")
        terminal.wait_for("1,279 of 5,000")
        assert_ends(terminal)


@pytest.mark.usefixtures("home")
def test_an_item_is_a_tree(orders: str) -> None:
    with view(orders) as terminal:
        terminal.press("g", "4", "enter")
        terminal.wait_for("5 of 5,000")
        terminal.press("enter")
        rows = terminal.wait_for("orders.json /orders/4", "{5 members}", "note 4").splitlines()
        assert rows[1:8] == [
            " ▾ {5 members}",
            "     id: 4",
            '     status: "failed"',
            "     total: 1.0",
            "   ▾ customer: {2 members}",
            '       name: "name 4"',
            '       country: "FR"',
        ]
        terminal.press("j", "j", "j", "j", "left")
        terminal.wait_for("▸ customer: {2 members}", "/orders/4/customer", without=['country: "FR"'])
        terminal.press("right", "j", "j")
        terminal.wait_for("/orders/4/customer/country")
        terminal.press("q")
        terminal.wait_for("5 of 5,000", without=["{5 members}"])
        terminal.press("q")
        assert terminal.wait_for_end() == 0


@pytest.mark.parametrize("columns", [80, 60])
@pytest.mark.usefixtures("home")
def test_a_search_goes_to_the_rows_with_matches(orders: str, columns: int) -> None:
    with view(orders, columns=columns, lines=20) as terminal:
        terminal.press("/", "needle", "enter")
        terminal.wait_for("778 of 5,000", "2 matches in 2 items")
        terminal.press("n")
        terminal.wait_for("4,127 of 5,000")
        terminal.press("N")
        terminal.wait_for("778 of 5,000")
        terminal.press("enter")
        terminal.wait_for('note: "needle in a haystack"')
        terminal.press("escape")
        terminal.wait_for("778 of 5,000")
        terminal.press("/", "ctrl+r", "^absent$", "enter")
        terminal.wait_for("no match for ^absent$ (regex)")
        terminal.press("/", "(", "enter")
        terminal.wait_for("unclosed")
        assert_ends(terminal)


@pytest.mark.usefixtures("home")
def test_a_filter_leaves_the_items_that_match(orders: str) -> None:
    with view(orders) as terminal:
        terminal.press("f", "status = failed and total >= 1000", "enter")
        rows = terminal.wait_for("112 of 5,000 items", "note 4000").splitlines()
        assert rows[2].split()[:4] == ["4,000", "4000", "failed", "1000.0"]
        terminal.press("/", "needle", "enter")
        terminal.wait_for("4,126", "1 match in 1 item")
        terminal.press("escape")
        terminal.wait_for("4,127 of 5,000")
        terminal.press("f", "stauts = failed", "enter")
        terminal.wait_for("no item has the field 'stauts'")
        assert_ends(terminal)


@pytest.mark.usefixtures("home")
def test_sql_over_a_file(orders: str) -> None:
    with view(orders) as terminal:
        terminal.press(":", "SELECT status, count(*) AS n FROM items GROUP BY 1 ORDER BY 2", "enter")
        rows = terminal.wait_for("2 rows", "4444").splitlines()
        assert [row.split()[:3] for row in rows[1:4]] == [
            ["status", "n"],
            ["0", "failed", "556"],
            ["1", "paid", "4444"],
        ]
        terminal.press("escape")
        terminal.wait_for("5,000 items")
        terminal.press(":", "SELECT stauts FROM items", "enter")
        terminal.wait_for('column "stauts" not found', "5,000")
        assert_ends(terminal)


@pytest.mark.usefixtures("home")
def test_lines_of_a_log(log: str) -> None:
    with view(log) as terminal:
        rows = terminal.wait_for("20,000 lines", "request 19").splitlines()
        assert rows[1].split()[:5] == ["0", "2026-11-19", "INFO", "request", "0"]
        terminal.press("/", "broke", "enter")
        terminal.wait_for("12,346 of 20,000", "1 match")
        terminal.press("enter")
        terminal.wait_for('message: "it broke"', "frames: [2 items]")
        terminal.press("escape")
        terminal.wait_for("12,346 of 20,000")
        terminal.press("end", "enter")
        terminal.wait_for("line 19,999", "request 19999 took 56 ms")
        assert_ends(terminal)


def copied(terminal: TerminalScreen) -> list[str]:
    """Return what was copied: the terminal receives it as OSC 52."""
    return [base64.b64decode(text).decode() for text in re.findall(rb"\x1b\]52;c;([^\x07]*)\x07", terminal.output)]


def test_what_is_copied_reads_the_same(handle: str, home: Path) -> None:
    with view(handle, "--store", home.as_uri()) as terminal:
        terminal.press("g", "7", "enter", "right")
        terminal.wait_for("/rows/7/name")
        for key in "ypct":
            terminal.press("y", key)
            wait_until(lambda key=key: len(copied(terminal)) == "ypct".index(key) + 1)  # type: ignore[misc]
        assert_ends(terminal)
        value, pointer, command, call = copied(terminal)
    assert (value, pointer) == ("name [7]", "/rows/7/name")
    assert command.startswith(f"forebay get {handle} /rows/7/name --store file://")
    assert run(*command.split()[1:]).json == "name [7]"
    assert json.loads(call) == {"tool": "output_fetch", "arguments": {"output_handle": handle, "path": pointer}}


def test_what_is_copied_of_a_line_reads_the_same(log: str, home: Path) -> None:
    handle = run("put", log).json["output_handle"]
    found = run("search", handle, "it broke").json["matches"][0]["line"]
    with view(log) as terminal:
        terminal.press("g", str(found), "enter")
        terminal.wait_for("12,346 of 20,000")
        terminal.press("y", "c")
        wait_until(lambda: len(copied(terminal)) == 1)
        assert_ends(terminal)
        (of_file,) = copied(terminal)
    with view(handle, "--store", home.as_uri()) as terminal:
        terminal.press("g", str(found), "enter")
        terminal.wait_for("12,346 of 20,000")
        for count, key in enumerate("yct", 1):
            terminal.press("y", key)
            wait_until(lambda count=count: len(copied(terminal)) == count)  # type: ignore[misc]
        assert_ends(terminal)
        line, command, call = copied(terminal)
    assert "it broke" in line
    assert subprocess.run(shlex.split(of_file), capture_output=True, check=True).stdout.decode() == f"{line}\n"
    assert run(*shlex.split(command)[1:]).json["content"].splitlines() == [line]
    # Only the screen counts lines from 1.
    arguments = {"output_handle": handle, "format": "lines", "offset": found, "limit": 1}
    assert json.loads(call) == {"tool": "output_fetch", "arguments": arguments}
    assert found == 12_345


def test_a_handle_is_viewed_like_a_file(handle: str) -> None:
    with view(handle) as terminal:
        terminal.wait_for("300 items at /rows")
        terminal.press("/", "[299]", "enter")
        terminal.wait_for("300 of 300", "1 match in 1 item")
        terminal.press("o")
        terminal.wait_for("rows: [{", "name: str")
        terminal.press("escape")
        terminal.wait_for("300 items at /rows")
        terminal.press("t")
        terminal.wait_for('{"rows":', "1 line")
        assert_ends(terminal)


@pytest.mark.usefixtures("home")
def test_standard_input_is_read_and_keys_come_from_the_terminal() -> None:
    payload = json.dumps(ORDERS).encode()
    with view("-", stdin=payload) as terminal:
        terminal.wait_for("standard input", "5,000 items")
        terminal.press("G")
        terminal.wait_for("5,000 of 5,000")
        assert_ends(terminal)


def test_a_payload_opens_at_a_path_or_filtered(orders: str, handle: str) -> None:
    with view(orders, "--path", "/orders/17/customer") as terminal:
        terminal.wait_for('name: "name 17"', "/orders/17/customer")
        assert_ends(terminal)
    with view(handle, "--where", '{"id": {">=": 290}}') as terminal:
        terminal.wait_for("10 of 300 items")
        terminal.press("p", "ctrl+u", "/rows/5/name", "enter")
        terminal.wait_for("name [5]", "/rows/5/name")
        assert_ends(terminal)


@pytest.mark.parametrize("name", ["out.json", "out.ndjson", "out.csv"])
@pytest.mark.usefixtures("home")
def test_what_is_shown_is_exported(orders: str, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with view(orders) as terminal:
        terminal.press("f", "note contains needle", "enter")
        terminal.wait_for("2 of 5,000 items")
        terminal.press("x", str(path), "enter")
        terminal.wait_for("wrote 2 rows")
        terminal.press("x", str(path), "enter")
        terminal.wait_for("there is a file")
        assert_ends(terminal)
    text = path.read_text()
    assert text.count("needle") == 2
    if name == "out.json":
        assert json.loads(text) == [ORDERS[777], ORDERS[4126]]


HOSTILE = "\x1b]0;title\x07\x1b[2J\x1b[31mred\x9b5m\u202e\r\nnext \x7f"


@pytest.mark.parametrize("kind", ["items", "keys", "lines", "text"])
@pytest.mark.usefixtures("home")
def test_a_payload_has_no_power_over_the_terminal(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "\x1b[2Jname"
    values = {"items": [{"a": HOSTILE}] * 3, "keys": [{HOSTILE: 1}] * 3, "lines": HOSTILE, "text": {"a": [HOSTILE]}}
    content = values[kind]
    path.write_bytes(content.encode() if isinstance(content, str) else json.dumps(content).encode())
    with view(str(path)) as terminal:
        terminal.wait_for("red")
        before = terminal.output.count(b"\x1b[2J")
        terminal.press("j", "y", "y")
        terminal.wait_for("copied", "red")
        terminal.press("/", "red", "enter")
        terminal.wait_for("match")
        terminal.press("enter", "o", "p", "/0", "enter")
        terminal.press("?")
        terminal.wait_for("Moving")
        assert terminal.output.count(b"\x1b[2J") == before
        for sequence in (b"\x1b]0;", b"\x1b[31mred", "\x9b".encode(), "\u202e".encode(), b"\x7f"):
            assert sequence not in terminal.output
        terminal.press("Q")
        assert terminal.wait_for_end() == 0


@pytest.mark.usefixtures("home")
def test_without_colours(orders: str) -> None:
    with view(orders, env={"NO_COLOR": "1"}) as terminal:
        terminal.press("/", "needle", "enter")
        terminal.wait_for("2 matches")
        assert_ends(terminal)
        colours = {code for codes in re.findall(rb"\x1b\[([0-9;]*)m", terminal.output) for code in codes.split(b";")}
    assert colours & {str(code).encode() for code in [*range(30, 39), *range(40, 49), *range(90, 108)]} == set()


@pytest.mark.usefixtures("home")
def test_a_size_is_the_one_of_ls(tmp_path: Path) -> None:
    path = tmp_path / "small.log"
    path.write_text("one line\n" * 4)
    with view(str(path)) as terminal:
        terminal.wait_for("one line", "36 B", without=["36 bytes"])
        assert_ends(terminal)


@pytest.mark.usefixtures("home")
def test_a_terminal_without_unicode(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text(json.dumps([{"id": n, "text": "漢字 " * 40} for n in range(100)], ensure_ascii=False))
    with view(str(path), env={"PYTHONIOENCODING": "ascii"}) as terminal:
        terminal.wait_for("???? ", "100 items")
        assert terminal.output.isascii()
        assert_ends(terminal)


@pytest.mark.usefixtures("home")
def test_the_screen_follows_the_size_of_the_terminal(orders: str) -> None:
    with view(orders) as terminal:
        terminal.press("G")
        terminal.wait_for("5,000 of 5,000")
        terminal.resize(60, 12)
        rows = terminal.wait_for("5,000 of 5,000", without=["4,980"]).splitlines()
        assert max(map(len, rows)) <= 60
        terminal.resize(120, 40)
        terminal.wait_for("4,970")
        assert_ends(terminal)


@pytest.mark.usefixtures("home")
def test_the_mouse_and_a_paste(orders: str) -> None:
    with view(orders) as terminal:
        terminal.press("click 9,4")
        terminal.wait_for("2 of 5,000", "/orders/1/id")
        terminal.press("wheel down", "wheel down")
        terminal.wait_for("7 of 5,000", "note 25")
        terminal.press("wheel up", "wheel up")
        terminal.wait_for("note 0")
        # Only the first line of what is pasted is typed; without a prompt, nothing is.
        terminal.press("\x1b[200~Q\x1b[201~", "/", "\x1b[200~needle\nQ\x1b[201~", "enter")
        terminal.wait_for("2 matches in 2 items", "778 of 5,000")
        terminal.press("enter")
        terminal.wait_for("▾ {5 members}")
        terminal.press("click 3,3")
        terminal.wait_for("/orders/777/id")
        terminal.press("click 3,2")
        terminal.wait_for("▸ {5 members}", "1 of 1")
        terminal.press("ctrl+c")
        assert terminal.wait_for_end() == 0


@pytest.mark.usefixtures("home")
def test_standard_error_may_be_a_file(orders: str, tmp_path: Path) -> None:
    command = shlex.join([*COMMAND, "view", orders])
    with TerminalScreen("sh", "-c", f"exec {command} 2>{tmp_path / 'errors'}") as terminal:
        terminal.wait_for("? help", "5,000 items")
        assert_ends(terminal)
    assert (tmp_path / "errors").read_bytes() == b""


@pytest.mark.usefixtures("home")
def test_standard_input_needs_a_terminal_for_keys() -> None:
    with TerminalScreen(*COMMAND, "view", "-", columns=200, stdin=b"[1, 2]", is_controlling=False) as terminal:
        assert terminal.wait_for_end() == 2
        assert "there is no terminal to read keys from" in terminal.text
        assert "`forebay fetch` or `forebay cat`" in terminal.text


@pytest.mark.usefixtures("home")
def test_a_pipe_with_a_name_is_no_file_to_map() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"[1, 2]")
    os.close(writing)
    result = run_on_terminal("view", f"/proc/self/fd/{reading}", pass_fds=[reading])
    os.close(reading)
    assert result.code == 1
    assert b"cannot be mapped; pipe it into `forebay view -`" in result.out


@pytest.mark.usefixtures("home")
def test_what_takes_long_can_be_cancelled(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    # Each of the matches takes time in proportion to the length of the line.
    path.write_bytes(b"a" * 400_000)
    with view(str(path)) as terminal:
        terminal.press("/", "ctrl+r", ".*x|a", "enter")
        terminal.wait_for("Esc cancels")
        terminal.press("?")
        terminal.wait_for("Moving")
        terminal.press("escape")
        terminal.wait_for("Esc cancels")
        terminal.press("escape")
        terminal.wait_for("cancelled")
        assert_ends(terminal)


@pytest.mark.usefixtures("home")
def test_a_large_value_is_a_table_of_its_entries(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    small = {f"key {n}": {f"field{n}": n} for n in range(50)}
    path.write_text(json.dumps([{"big": {**small, "text": "w " * 700_000}}, {"big": 1}, {"big": 2}]))
    with view(str(path)) as terminal:
        terminal.wait_for("3 items")
        terminal.press("enter")
        terminal.wait_for("1 entry at /0", "_key")
        terminal.press("enter")
        terminal.wait_for("51 entries at /0/big", "key 0")
        terminal.press("/", "field49", "enter")
        terminal.wait_for("50 of 51", "1 match in 1 item")
        terminal.press("G", "enter")
        terminal.wait_for("w w w", "the first 1.0 MB")
        assert_ends(terminal)


def test_without_a_terminal_the_error_says_what_to_use(orders: str) -> None:
    result = run("view", orders)
    assert result.code == 2
    assert result.error["code"] == "invalid_argument"
    assert "standard output is no terminal" in result.error["message"]
    assert "`forebay fetch` or `forebay cat`" in result.error["message"]


@pytest.mark.usefixtures("home")
def test_a_file_that_is_not_there() -> None:
    result = run_on_terminal("view", "no/such/file")
    assert result.code == 1
    assert b"no/such/file cannot be read" in result.out


def test_the_extra_is_named_if_it_is_missing(orders: str, tmp_path: Path) -> None:
    (tmp_path / "textual.py").write_text("raise ModuleNotFoundError('no', name='textual')")
    command = [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from forebay.cli import main; main()",
    ]
    with TerminalScreen(*command, "view", orders, columns=120) as terminal:
        assert terminal.wait_for_end() == 2
        assert "pip install 'forebay[view]'" in terminal.text


def test_other_commands_do_not_import_textual() -> None:
    code = "import sys, forebay.cli.parser; sys.exit('textual' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
