"""The first and last line of the screen: title, status with progress, and the line for input."""

import time
from collections.abc import Callable

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from forebay.cli.view.cells import cut, make_safe, skip_cells, wrap
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
    """A message or the place of the cursor, and on the right its position. A job that runs is shown instead.

    A long message takes up to a third of the screen.
    """

    DEFAULT_CSS = "StatusLine { height: 1; }"

    def __init__(self, get_place: Callable[[], tuple[str, str]]) -> None:
        super().__init__()
        self._get_place = get_place
        self._message = ""
        self._lines: list[str] = []
        """The lines of a message that is too long for one."""
        self._job: tuple[Job, float] | None = None

    def on_mount(self) -> None:
        self.set_interval(0.1, self._tick)

    def _tick(self) -> None:
        if self._job is not None:
            self.refresh()

    def show(self, message: str) -> None:
        """Show a message until the cursor moves; one of several lines until the next key."""
        self._message = message
        self._wrap()

    def fold(self) -> None:
        """Remove a message that takes several lines."""
        if self._lines:
            self.show("")

    def on_resize(self) -> None:
        self._wrap()

    def _wrap(self) -> None:
        width = max(self.app.size.width - 2, 2)
        shown = [line for line in self._message.split("\n") if line.strip()]
        lines = [part for line in shown for part in _wrap_words(make_safe(line), width)]
        room = max(self.app.size.height // 3, 1)
        if len(lines) > room:
            lines[room - 1 :] = [" ".join(lines[room - 1 :])]
        self._lines = lines if len(lines) > 1 else []
        self.styles.height = max(len(self._lines), 1)
        self.refresh()

    def show_job(self, job: Job | None) -> None:
        """Show the progress of a job until it is replaced by `None`."""
        self.fold()
        self._job = None if job is None else (job, time.monotonic())
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if self._lines:
            line = self._lines[y] if y < len(self._lines) else ""
            return _fill([Segment(cut(f" {line}", width - 1), Style(bold=True))], width, _PLAIN)
        place, position = self._get_place()
        style = _PLAIN
        if self._job is not None:
            text = _draw_progress(*self._job)
        elif self._message:
            text, style = make_safe(self._message.replace("\n", " ")), Style(bold=True)
            if cell_len(text) + cell_len(position) + 4 > width:
                # The message is worth more than the position.
                position = ""
        else:
            text = make_safe(place)
        position = cut(position, width)
        left = cut(f" {text}", max(width - cell_len(position) - 2, 0))
        gap = " " * (width - cell_len(left) - cell_len(position) - 1)
        return _fill([Segment(left, style), Segment(f"{gap}{position} ", _DIM)], width, _PLAIN)


def _wrap_words(text: str, width: int) -> list[str]:
    """Split a safe text into lines that fit into a width, between words if possible."""
    lines = []
    while cell_len(text) > width:
        first = wrap(text, width)[0]
        space = len(first) if text[len(first)] == " " else first.rfind(" ")
        end = space if space > len(first) // 2 else len(first)
        lines.append(text[:end].rstrip())
        text = text[end:].lstrip()
    return [*lines, text.rstrip()]


def _draw_progress(job: Job, started: float) -> str:
    seconds = time.monotonic() - started
    if job.total:
        share = min(job.done / job.total, 1)
        full = int(share * _BAR_CELLS)
        return f"{job.label} {'█' * full}{'░' * (_BAR_CELLS - full)} {share:4.0%}  Esc cancels"
    return f"{job.label} … {seconds:.0f} s  Esc cancels"


def _fill(segments: list[Segment], width: int, style: Style) -> Strip:
    return Strip([segment for segment in segments if segment.text]).adjust_cell_length(width, style)


class Prompt(Widget):
    """A line for input in place of the status.

    The app passes it every key at once, before any other widget: what is typed fast must not get out of order.
    """

    DEFAULT_CSS = "Prompt { height: 1; display: none; }"

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self._cursor = 0
        self._label = ""
        self._hint = ""

    def open(self, label: str, text: str, hint: str) -> None:
        """Show the prompt with a text to edit."""
        self._label, self._hint = label, hint
        self.set_text(text)
        self.display = True

    def close(self) -> None:
        self.display = False

    def set_hint(self, hint: str) -> None:
        self._hint = hint
        self.refresh()

    def set_text(self, text: str) -> None:
        """Replace the text, and put the cursor behind it."""
        self.text, self._cursor = text, len(text)
        self.refresh()

    def insert(self, text: str) -> None:
        """Insert a text at the cursor."""
        before, after = self.text[: self._cursor], self.text[self._cursor :]
        self.text = before + text + after
        self._cursor += len(text)
        self.refresh()

    def edit(self, key: str) -> None:
        """Move the cursor, or delete text."""
        before, after = self.text[: self._cursor], self.text[self._cursor :]
        match key:
            case "left" | "ctrl+b":
                self._cursor = max(self._cursor - 1, 0)
            case "right" | "ctrl+f":
                self._cursor = min(self._cursor + 1, len(self.text))
            case "home" | "ctrl+a":
                self._cursor = 0
            case "end" | "ctrl+e":
                self._cursor = len(self.text)
            case "backspace" | "ctrl+h":
                self.text, self._cursor = before[:-1] + after, max(self._cursor - 1, 0)
            case "delete" | "ctrl+d":
                self.text = before + after[1:]
            case "ctrl+u":
                self.text, self._cursor = after, 0
            case "ctrl+k":
                self.text = before
            case "ctrl+w":
                kept = before.rstrip()
                kept = kept[: kept.rfind(" ") + 1]
                self.text, self._cursor = kept + after, len(kept)
        self.refresh()

    def render_line(self, y: int) -> Strip:  # noqa: ARG002 - there is one line
        width = self.size.width
        label = f" {self._label} "
        before, at, after = (
            make_safe(part)
            for part in (self.text[: self._cursor], self.text[self._cursor :][:1], self.text[self._cursor + 1 :])
        )
        # The cursor is always on the screen.
        before = skip_cells(before, cell_len(label) + cell_len(before) + 2 - width)
        hint = f"  {self._hint} "
        used = cell_len(label) + cell_len(before) + cell_len(at or " ") + cell_len(after)
        segments = [
            Segment(label, Style(bold=True)),
            Segment(before, _PLAIN),
            Segment(at or " ", _REVERSE),
            Segment(after, _PLAIN),
        ]
        if self._hint and used + cell_len(hint) <= width:
            segments += [Segment(" " * (width - used - cell_len(hint)), _PLAIN), Segment(hint, _DIM)]
        return _fill(segments, width, _PLAIN)
