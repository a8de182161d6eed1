"""Progress on a terminal, on standard error."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from forebay.cli.output.terminal import get_console
from forebay.cli.output.units import format_size

if TYPE_CHECKING:
    from forebay.store.mirror import MirrorReport

__all__ = ["show_mirror_progress", "show_progress_bar", "show_steps"]

_PROGRESS_MIN_BYTES = 8 << 20
"""`put` shows a progress bar for files from this size on."""


@contextlib.contextmanager
def show_progress_bar(size: int | None) -> Iterator[Callable[[int], None] | None]:
    """Show a progress bar on a terminal, for large files and files of unknown size."""
    if sys.stderr is None or not sys.stderr.isatty() or (size is not None and size < _PROGRESS_MIN_BYTES):
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    columns = BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=get_console(is_stderr=True), transient=True) as bar:
        task = bar.add_task("put", total=size)
        yield lambda done: bar.update(task, completed=done)


@contextlib.contextmanager
def show_mirror_progress() -> Iterator[Callable[["MirrorReport"], None] | None]:
    """Show on a terminal how many payloads were mirrored, and how many bytes."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TransferSpeedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TransferSpeedColumn()
    with Progress(*columns, console=get_console(is_stderr=True), transient=True) as bar:
        task = bar.add_task("mirror", total=None)

        def update(report: "MirrorReport") -> None:
            others = report.skipped + report.expired + report.failed
            text = f"{report.copied:,} copied, {others:,} others, {format_size(report.bytes)}"
            bar.update(task, description=text, completed=report.bytes)

        yield update


@contextlib.contextmanager
def show_steps() -> Iterator[Callable[[int, int, str], None]]:
    """Show on a terminal how many steps of how many are done, and what runs. Elsewhere nothing is shown."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _done, _total, _text: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    # Cut without the mark that rich puts there, which is not ASCII.
    what = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="crop"))
    columns = BarColumn(16), MofNCompleteColumn(), TimeElapsedColumn(), what
    with Progress(*columns, console=get_console(is_stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, text: bar.update(task, completed=done, total=total or None, description=text)
