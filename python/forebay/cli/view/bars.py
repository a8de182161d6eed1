"""The first and last line of the screen: title, status with progress, and the line for input."""

import time
from collections.abc import Callable

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, Static

from forebay.cli.view.cells import cut, make_safe
from forebay.cli.view.jobs import Job

__all__ = ["Prompt", "StatusLine", "TitleLine"]

_BAR_CELLS = 16
_BOLD_REVERSE = Style(bold=True, reverse=True)
_REVERSE = Style(reverse=True)
_DIM = Style(dim=True)
_PLAIN = Style()


class TitleLine(Widget):
    """What is shown, and how much of it there is."""

    DEFAULT_CSS = "TitleLine { height: 1; }"

    def __init__(self, name: str, about: str) -> None:
        super().__init__()
        self._parts = (make_safe(name), make_safe(about))

    def set_about(self, about: str) -> None:
        """Show another text on the right."""
        self._parts = (self._parts[0], make_safe(about))
        self.refresh()

    def render_line(self, y: int) -> Strip:  # noqa: ARG002 - there is one line
        width = self.size.width
        name, about = self._parts
        about = cut(about, max(width - 2 - min(cell_len(name), width // 3) - 2, 0))
        name = cut(name, width - cell_len(about) - 4)
        gap = " " * (width - cell_len(name) - cell_len(about) - 2)
        return _fill([Segment(f" {name}", _BOLD_REVERSE), Segment(f"{gap}{about} ", _REVERSE)], width, _REVERSE)


class StatusLine(Widget):
    """A message or the place of the cursor, and on the right its position. A job that runs is shown instead."""

    DEFAULT_CSS = "StatusLine { height: 1; }"

    def __init__(self, get_place: Callable[[], tuple[str, str]]) -> None:
        super().__init__()
        self._get_place = get_place
        self._message = ""
        self._job: tuple[Job, float] | None = None

    def on_mount(self) -> None:
        self.set_interval(0.1, self._tick)

    def _tick(self) -> None:
        if self._job is not None:
            self.refresh()

    def show(self, message: str) -> None:
        """Show a message until the cursor moves."""
        self._message = make_safe(message.replace("\n", " "))
        self.refresh()

    def show_job(self, job: Job | None) -> None:
        """Show the progress of a job until it is replaced by `None`."""
        self._job = None if job is None else (job, time.monotonic())
        self.refresh()

    def render_line(self, y: int) -> Strip:  # noqa: ARG002 - there is one line
        width = self.size.width
        place, position = self._get_place()
        position = cut(position, width)
        room = max(width - cell_len(position) - 3, 0)
        if self._job is not None:
            left = Segment(cut(f" {_draw_progress(*self._job)}", room), _PLAIN)
        elif self._message:
            left = Segment(cut(f" {self._message}", room), Style(bold=True))
        else:
            left = Segment(cut(f" {make_safe(place)}", room), _PLAIN)
        gap = " " * (width - cell_len(left.text) - cell_len(position) - 1)
        return _fill([left, Segment(f"{gap}{position} ", _DIM)], width, _PLAIN)


def _draw_progress(job: Job, started: float) -> str:
    seconds = time.monotonic() - started
    if job.total:
        share = min(job.done / job.total, 1)
        full = int(share * _BAR_CELLS)
        return f"{job.label} {'█' * full}{'░' * (_BAR_CELLS - full)} {share:4.0%}  Esc cancels"
    return f"{job.label} … {seconds:.0f} s  Esc cancels"


def _fill(segments: list[Segment], width: int, style: Style) -> Strip:
    return Strip([segment for segment in segments if segment.text]).adjust_cell_length(width, style)


class Prompt(Horizontal):
    """A line for input in place of the status."""

    DEFAULT_CSS = """
    Prompt { height: 1; display: none; }
    Prompt Static { width: auto; height: 1; text-style: bold; padding: 0 1 0 1; }
    Prompt Input { width: 1fr; background: ansi_default; }
    Prompt #hint { text-style: dim; }
    """

    def compose(self) -> ComposeResult:
        yield Static("", id="label", markup=False)
        yield Input(compact=True, select_on_focus=False, id="input")
        yield Static("", id="hint", markup=False)

    @property
    def input(self) -> Input:
        return self.query_one(Input)

    def open(self, label: str, value: str, hint: str) -> None:
        """Show the prompt with a text to edit."""
        self.query_one("#label", Static).update(label)
        self.set_hint(hint)
        self.display = True
        self.input.value = value
        self.input.cursor_position = len(value)
        self.input.focus()

    def set_hint(self, hint: str) -> None:
        self.query_one("#hint", Static).update(hint)

    def close(self) -> None:
        self.display = False
