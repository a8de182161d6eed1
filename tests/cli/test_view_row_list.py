"""The list of rows of `forebay view`: rows that are slow to read, and rows that cannot be read."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from forebay.cli.view.row_list import RowList
from forebay.cli.view.rows import Row
from forebay.errors import CorruptIndex
from rich.segment import Segment
from textual.app import App, ComposeResult
from waiting import wait_until_async

pytestmark = pytest.mark.slow


class SlowRows:
    """Rows that are read once the test says so."""

    count = 200

    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.name = name
        self.goes_on = threading.Event()
        self._error = error

    def read(self, first: int, count: int) -> list[Row]:
        assert self.goes_on.wait(60)
        if self._error is not None:
            raise self._error
        return [
            Row(number, f"{self.name} {number}".encode()) for number in range(first, min(first + count, self.count))
        ]


class ListApp(App[None]):
    def __init__(self, rows: SlowRows) -> None:
        super().__init__()
        self.list = RowList(rows, lambda row, _position, _width, _is_cursor: [Segment(row.data.decode())])

    def compose(self) -> ComposeResult:
        yield self.list

    def read_line(self) -> str:
        return self.list.render_line(0).text.rstrip(" \u2588\u2502")


def run(rows: SlowRows, check: Callable[[ListApp], object]) -> None:
    async def steps() -> None:
        app = ListApp(rows)
        async with app.run_test(size=(40, 5)):
            result = check(app)
            assert asyncio.iscoroutine(result)
            await result

    asyncio.run(steps())


def test_rows_that_are_slow_to_read_have_a_placeholder() -> None:
    rows = SlowRows("row")
    rows.goes_on.set()

    async def check(app: ListApp) -> None:
        await wait_until_async(lambda: app.read_line() == "row 0")
        rows.goes_on.clear()
        app.list.move_to(150)
        # What was shown stays for a moment.
        assert app.read_line() == "row 0"
        await wait_until_async(lambda: app.read_line() == " …")
        assert app.list.row is None
        rows.goes_on.set()
        await wait_until_async(lambda: app.read_line() == "row 146")

    run(rows, check)


@pytest.mark.parametrize("error", [None, CorruptIndex("the index of the old rows is damaged")])
def test_rows_that_were_replaced_while_they_were_read_are_dropped(error: Exception | None) -> None:
    old, new = SlowRows("old", error), SlowRows("new")
    new.goes_on.set()

    async def check(app: ListApp) -> None:
        app.list.set_rows(new, 3)
        old.goes_on.set()
        await wait_until_async(lambda: app.read_line() == "new 0")
        assert app.list.row == Row(3, b"new 3")

    run(old, check)


def test_an_error_is_shown_in_place_of_the_rows_until_they_are_read_again() -> None:
    rows = SlowRows("row", OSError(5, "Input/output error"))
    rows.goes_on.set()

    async def check(app: ListApp) -> None:
        await wait_until_async(lambda: "Input/output error" in app.read_line())
        rows._error = None
        app.list.set_rows(rows)
        await wait_until_async(lambda: app.read_line() == "row 0")

    run(rows, check)
