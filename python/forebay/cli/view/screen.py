"""What all screens share: rows with a cursor, a prompt, search, copying, and work in threads."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from forebay.cli.errors import translate_message
from forebay.cli.view.bars import Prompt, StatusLine, TitleLine
from forebay.cli.view.cells import cut, decode_value, make_safe
from forebay.cli.view.copies import MAX_COPIED_BYTES, Place, format_call, format_command
from forebay.cli.view.find import Finder, Pattern, find_spans
from forebay.cli.view.jobs import Cancelled, Job
from forebay.cli.view.row_list import RowList
from forebay.cli.view.rows import Row, Rows
from forebay.errors import ForebayError, InvalidArgument, QueryFailed
from forebay.store.threads import run_in_thread

if TYPE_CHECKING:
    from forebay.cli.view.app import ViewApp

__all__ = ["MATCH", "PagerScreen", "bind", "highlight"]

MATCH = Style(color="black", bgcolor="yellow", bold=True, underline=True)
"""A match of the search. The underline shows it where there are no colours."""

_MAX_SHOWN_CHARS = 500
"""Characters of what was copied that the status line may need."""

_FLAG_KEYS = {"ctrl+r": "regex", "ctrl+o": "ignore_case", "ctrl+t": "values"}
"""Keys that change how a search is done, while its text is typed."""

_T = TypeVar("_T")


def bind(keys: str, action: str) -> Binding:
    """Return a binding that is looked up before a key is passed to a widget.

    Otherwise keys that are typed fast would be passed to the widget that had the focus before.
    """
    return Binding(keys, action, priority=True)


class PagerScreen(Screen[None]):
    """Rows that can be scrolled, searched and copied."""

    AUTO_FOCUS = "RowList"
    unit = "line"

    BINDINGS: ClassVar[list[BindingType]] = [
        bind("j,down", "move(1)"),
        bind("k,up", "move(-1)"),
        bind("space", "space"),
        bind("pagedown,ctrl+f", "page(1)"),
        bind("b,pageup,ctrl+b", "page(-1)"),
        bind("ctrl+d", "page(0.5)"),
        bind("ctrl+u", "page(-0.5)"),
        bind("home", "first"),
        bind("end,G", "last"),
        bind("left,h", "sideways(-1)"),
        bind("right,l", "sideways(1)"),
        bind("g", "ask_number"),
        bind("slash", "ask_pattern"),
        bind("n", "find_next"),
        bind("N", "find_previous"),
        bind("y", "copy"),
        bind("enter", "open"),
        bind("f,ampersand", "ask_filter"),
        bind("colon", "ask_query"),
        bind("p", "ask_path"),
        bind("o", "outline"),
        bind("t", "toggle_text"),
        bind("x", "ask_export"),
        bind("question_mark,f1", "help"),
        bind("q", "leave"),
        bind("escape", "cancel"),
        bind("backspace", "back"),
        bind("Q", "app.exit_now"),
        bind("ctrl+c", "interrupt"),
        bind("ctrl+z", "app.suspend_process"),
    ]

    def __init__(self, rows: Rows, title: str, about: str) -> None:
        super().__init__()
        header = self.draw_header if type(self).draw_header is not PagerScreen.draw_header else None
        self.list = RowList(rows, self.draw_row, header)
        self.title_line = TitleLine(title, about)
        self.status = StatusLine(self.get_status)
        self.prompt = Prompt()
        self._answer: Callable[[str], None] | None = None
        self._history: list[str] = []
        self._history_at = 0
        self._job: Job | None = None
        self._is_copying = False
        self._counted: tuple[Pattern, Rows, str] | None = None
        """How many matches a pattern has in some rows."""
        self._flags = Pattern("")

    @property
    def viewer(self) -> "ViewApp":
        """The app."""
        return cast("ViewApp", self.app)

    def compose(self) -> ComposeResult:
        yield self.title_line
        yield self.list
        yield self.status
        yield self.prompt

    # What subclasses define.

    def draw_row(self, row: Row, position: int, width: int, is_cursor: bool) -> Sequence[Segment]:
        """Draw one row. It is cut or padded to the width afterwards."""
        raise NotImplementedError

    def draw_header(self, width: int) -> Sequence[Segment]:
        """Draw the line above the rows. Only called if a subclass defines it."""
        raise NotImplementedError

    def make_finder(self) -> Finder:
        raise NotImplementedError

    def get_place(self) -> Place:
        """Return where the cursor is."""
        raise NotImplementedError

    def get_value(self) -> bytes | None:
        """Return what the cursor is at, to copy it."""
        row = self.list.row
        return None if row is None else row.data

    def get_finder_row(self) -> int:
        """Return the row to search from, as the finder numbers it."""
        return self.list.cursor

    def show_found(self, row: int) -> None:
        """Put the cursor into a row that was found."""
        self.list.move_to(row, is_centered=True)

    # Status.

    def get_status(self) -> tuple[str, str]:
        """Return the texts on the left and right of the status line."""
        count = self.list.rows.count
        place = self.get_place().pointer
        number = self.list.cursor + 1 if count else 0
        share = "end" if number == count else f"{number * 100 // count} %"
        hint = "? help" if self.size.width > 40 else ""
        return place or "", "   ".join(filter(None, (f"{number:,} of {count:,}", share, hint)))

    def say(self, message: str) -> None:
        """Show a message in the status line, which grows if the message is long."""
        self.status.show(message)

    def on_row_list_moved(self) -> None:
        self.status.refresh()

    # Moving.

    def _moved(self) -> None:
        self.status.show("")

    def action_move(self, count: int) -> None:
        self._moved()
        self.list.move_by(count)

    def action_page(self, pages: float) -> None:
        self._moved()
        self.list.page_by(pages)

    def action_space(self) -> None:
        self.action_page(1)

    def action_first(self) -> None:
        self._moved()
        self.list.move_to(0)

    def action_last(self) -> None:
        self._moved()
        self.list.move_to(self.list.rows.count - 1)

    def action_sideways(self, step: int) -> None:
        """Scroll or move to the left or right."""

    def action_ask_number(self) -> None:
        last = self.list.rows.count - 1
        self.ask(f"go to {self.unit}", self._go_to_number, hint=f"0 to {last:,}, or 50%")

    def _go_to_number(self, text: str) -> None:
        last = self.list.rows.count - 1
        match = re.fullmatch(r"(\d{1,18})(%?)", text.replace(",", "").replace("_", "").strip() or "0", re.ASCII)
        if match is None:
            self.say(f"{text} is no number; type one from 0 to {last:,}, or a share such as 50%")
        elif match[2]:
            self.list.move_to(self.list.rows.count * int(match[1]) // 100)
        else:
            self.go_to(int(match[1]))

    def go_to(self, number: int) -> None:
        """Put the cursor into the row with this number."""
        self.list.move_to(number, is_centered=True)

    # The prompt.

    def ask(self, label: str, answer: Callable[[str], None], value: str = "", hint: str = "") -> None:
        """Let the user type a text, and call `answer` with it."""
        self._answer = answer
        self._history = self.viewer.histories.setdefault(label.partition(" ")[0], [])
        self._history_at = len(self._history)
        self.status.display = False
        self.prompt.open(label, value, hint if self.size.width >= 70 else "")

    def _close_prompt(self) -> None:
        self._answer = None
        self.prompt.close()
        self.status.display = True

    def _submit(self) -> None:
        answer, text = self._answer, self.prompt.text
        if text and text not in self._history[-1:]:
            self._history.append(text)
        self._close_prompt()
        if answer is not None:
            answer(text)

    def intercept_key(self, key: str, character: str | None) -> bool:
        """Take a key if the user types a text, or says what to copy. Called for each key before anything else."""
        self.status.fold()
        if self._is_copying:
            self._is_copying = False
            self._copy(key)
            return True
        if not self.prompt.display:
            return False
        if key == "enter":
            self._submit()
        elif key in ("escape", "ctrl+c"):
            self._close_prompt()
        elif key in ("up", "down"):
            at = self._history_at + (1 if key == "down" else -1)
            if 0 <= at <= len(self._history):
                self._history_at = at
                self.prompt.set_text([*self._history, ""][at])
        elif key in _FLAG_KEYS and self._answer == self._start_search:
            self._toggle_flag(_FLAG_KEYS[key])
        elif character is not None and character.isprintable():
            self.prompt.insert(character)
        else:
            self.prompt.edit(key)
        return True

    def intercept_paste(self, text: str) -> None:
        """Insert the first line of a pasted text into the prompt."""
        if self.prompt.display and text:
            self.prompt.insert(text.splitlines()[0])

    # Work in threads.

    def run_job(self, label: str, function: Callable[[Job], _T], done: Callable[[_T], None]) -> None:
        """Run a function in a thread, and pass its result to `done`. It replaces the job that runs."""
        if self._job is not None:
            self._job.cancel()
        job = self._job = Job(label)
        self.status.show_job(job)
        self.run_worker(self._run_job(job, function, done))

    async def _run_job(self, job: Job, function: Callable[[Job], _T], done: Callable[[_T], None]) -> None:
        try:
            result = await run_in_thread(lambda: function(job), daemon=True)
        except Cancelled:
            return
        except ForebayError as error:
            if self._end_job(job):
                self.say(_describe(error))
            return
        except OSError as error:
            if self._end_job(job):
                self.say(f"{error.strerror or error}")
            return
        if self._end_job(job):
            done(result)

    def _end_job(self, job: Job) -> bool:
        """Return whether a job is still wanted; then it is done."""
        if self._job is not job:
            return False
        self._job = None
        self.status.show_job(None)
        return True

    def cancel_job(self) -> bool:
        """Cancel the job that runs. Return whether there was one."""
        if self._job is None:
            return False
        self._job.cancel()
        self._end_job(self._job)
        self.say("cancelled")
        return True

    def action_cancel(self) -> None:
        if not self.cancel_job():
            self.escape()

    def escape(self) -> None:
        """Do what Escape does if nothing is to be cancelled."""
        if self.viewer.has_parent_screen:
            self.action_back()
        else:
            self.viewer.pattern = None
            self.list.redraw()
            self.say("")

    def action_interrupt(self) -> None:
        if not self.cancel_job():
            self.viewer.action_exit_now()

    def action_back(self) -> None:
        if self.viewer.has_parent_screen:
            self.app.pop_screen()

    def action_leave(self) -> None:
        if self.viewer.has_parent_screen:
            self.app.pop_screen()
        else:
            self.viewer.action_exit_now()

    def on_unmount(self) -> None:
        if self._job is not None:
            self._job.cancel()

    def on_screen_resume(self) -> None:
        # The pattern may have changed in another screen.
        self.list.redraw()

    # Search.

    def action_ask_pattern(self) -> None:
        last = self.viewer.pattern
        self._flags = (last or Pattern(""))._replace(text="")
        self.ask("/", self._start_search)
        self._show_flags()

    def _show_flags(self) -> None:
        names = [("^R", "regex", self._flags.regex), ("^O", "any case", self._flags.ignore_case)]
        if self.can_search_values:
            names.append(("^T", "values", self._flags.values))
        text = "  ".join(f"{key} {'☑' if is_on else '☐'} {name}" for key, name, is_on in names)
        self.prompt.set_hint(text if self.size.width >= 60 else "")

    @property
    def can_search_values(self) -> bool:
        """Whether the rows are JSON, whose keys and values can be searched."""
        return False

    def _toggle_flag(self, name: str) -> None:
        if name == "values" and not self.can_search_values:
            return
        flags = self._flags._asdict()
        self._flags = Pattern(**{**flags, name: not flags[name]})
        self._show_flags()

    def _start_search(self, text: str) -> None:
        if not text and self.viewer.pattern is None:
            return
        last = self.viewer.pattern
        flags = self._flags if self.can_search_values else self._flags._replace(values=False)
        pattern = flags._replace(text=text or (last.text if last is not None else ""))
        try:
            pattern.search(b"")
        except InvalidArgument as error:
            self.say(_describe(error))
            return
        self.viewer.pattern = pattern
        self.list.redraw()
        # The first match may be in this row.
        self._find(self.get_finder_row() - 1, is_first=True)

    def action_find_next(self) -> None:
        self._find(self.get_finder_row())

    def action_find_previous(self) -> None:
        self._find(self.get_finder_row(), is_backward=True)

    def _find(self, row: int, *, is_backward: bool = False, is_first: bool = False) -> None:
        pattern, finder = self.viewer.pattern, self.make_finder()
        if pattern is None:
            self.say("nothing to search for yet; / starts a search")
            return
        if pattern.values and not self.can_search_values:
            pattern = pattern._replace(values=False)

        def find(job: Job) -> tuple[int | None, bool]:
            found = finder.find(pattern, row, job, is_backward=is_backward)
            if found is not None:
                return found, False
            return finder.find(
                pattern, self.get_finder_end() if is_backward else -1, job, is_backward=is_backward
            ), True

        def show(result: tuple[int | None, bool]) -> None:
            found, is_wrapped = result
            if found is None:
                self.say(f"no match for {pattern.text}{_describe_flags(pattern)}")
                return
            self.show_found(found)
            end = "end" if is_backward else "start"
            self._count(pattern, finder, f"; continued from the {end}" if is_wrapped and not is_first else "")

        self.run_job("search", find, show)

    def get_finder_end(self) -> int:
        """Return the number after that of the last row, as the finder numbers them."""
        return self.list.rows.count

    def _count(self, pattern: Pattern, finder: Finder, note: str) -> None:
        """Count all matches once, and say how many there are, with a note."""
        rows = self.list.rows
        if self._counted is not None and self._counted[0] == pattern and self._counted[1] is rows:
            self.say(self._counted[2] + note)
            return

        def show(text: str) -> None:
            self._counted = (pattern, rows, text)
            self.say(text + note)

        self.run_job("count", lambda job: finder.count(pattern, job), show)

    # Copying.

    def action_copy(self) -> None:
        self._is_copying = True
        self.say("copy:  y value   p pointer   c command   t tool call")

    def _copy(self, key: str) -> None:
        source, place = self.viewer.source, self.get_place()
        try:
            match key:
                case "y" | "v":
                    text = self._decode_copied()
                case "p" if place.pointer is None:
                    raise InvalidArgument("no JSON Pointer leads here; yc copies a command")
                case "p":
                    text = place.pointer or ""
                case "c":
                    text = format_command(source, place)
                case "t":
                    text = format_call(source, place)
                case _:
                    self.say("nothing copied")
                    return
        except ForebayError as error:
            self.say(_describe(error))
            return
        # Half of a surrogate pair has no bytes to copy.
        text = text.encode("utf-8", "replace").decode()
        self.app.copy_to_clipboard(text)
        # What was copied is known: its beginning is enough.
        self.say(cut(make_safe(f"copied: {text[:_MAX_SHOWN_CHARS]}".replace("\n", " ")), self.size.width - 2))

    def _decode_copied(self) -> str:
        value = self.get_value()
        if value is None:
            raise InvalidArgument("there is nothing here to copy")
        if len(value) > MAX_COPIED_BYTES:
            raise InvalidArgument(f"{len(value):,} bytes are too many to copy; yc copies a command that reads them")
        if value.startswith(b'"') and self.can_search_values:
            return decode_value(value, MAX_COPIED_BYTES)
        return value.decode("utf-8", "replace")

    # Other screens.

    def action_open(self) -> None:
        row = self.list.row
        if row is not None:
            self.open_row(row)
            return
        cursor, rows = self.list.cursor, self.list.rows

        def open_found(found: list[Row]) -> None:
            for row in found:
                self.open_row(row)

        self.run_job("read", lambda _: rows.read(cursor, 1), open_found)

    def open_row(self, row: Row) -> None:
        """Open what the cursor is at."""

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        self.choose(event.column)

    def choose(self, column: int) -> None:
        """React to a click into the row of the cursor."""

    def action_ask_filter(self) -> None:
        self.say("only a table of items has conditions; / searches here")

    def action_ask_query(self) -> None:
        self.ask(":", lambda sql: self.viewer.start_query(self, sql), hint="SQL over the table items")

    def action_ask_path(self) -> None:
        self.ask(
            "path", lambda path: self.viewer.open_path(self, path), self.get_place().pointer or "", "a JSON Pointer"
        )

    def action_outline(self) -> None:
        self.viewer.show_outline(self)

    def action_toggle_text(self) -> None:
        self.viewer.toggle_text(self)

    def action_ask_export(self) -> None:
        self.viewer.ask_export(self)

    def action_help(self) -> None:
        self.viewer.show_help()


def highlight(text: str, style: Style, pattern: Pattern | None) -> list[Segment]:
    """Return a safe text as segments in which the matches of a pattern are marked."""
    if pattern is None or not text:
        return [Segment(text, style)] if text else []
    segments, position = [], 0
    for start, end in _find_spans(pattern, text):
        segments += [Segment(text[position:start], style), Segment(text[start:end], MATCH)]
        position = end
    return [*segments, Segment(text[position:], style)]


_find_spans = lru_cache(maxsize=4096)(find_spans)


def _describe(error: ForebayError) -> str:
    message = translate_message(str(error))
    if isinstance(error, QueryFailed) and error.example:
        separator = "\n" if "\n" in message else "  "
        message += f"{separator}example: {error.example}"
    return message


def _describe_flags(pattern: Pattern) -> str:
    names = [name for name, is_on in (("regex", pattern.regex), ("any case", pattern.ignore_case)) if is_on]
    names += ["values"] if pattern.values else []
    return f" ({', '.join(names)})" if names else ""
