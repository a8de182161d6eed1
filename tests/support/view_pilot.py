"""`forebay view` without a terminal, driven by Textual's pilot."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

from forebay.cli.view.app import ViewApp
from forebay.cli.view.screen import PagerScreen
from forebay.cli.view.source import FileSource, Source
from textual.app import App
from textual.pilot import Pilot
from waiting import wait_until_async

__all__ = ["Steps", "copy", "drive", "drive_source", "get_screen", "read_screen", "wait_for"]

Steps = Callable[[Pilot[None]], Awaitable[None]]


def read_screen(app: App[None]) -> str:
    """Return the text that the widgets of a screen draw."""
    screen = app.screen
    if not isinstance(screen, PagerScreen):
        return ""
    widgets = [screen.title_line, screen.list, screen.prompt if screen.prompt.display else screen.status]
    return "\n".join(widget.render_line(line).text.rstrip() for widget in widgets for line in range(widget.size.height))


async def wait_for(pilot: Pilot[None], *texts: str) -> str:
    app = pilot.app
    try:
        await wait_until_async(lambda: all(text in read_screen(app) for text in texts), seconds=20)
    except AssertionError:
        raise AssertionError(f"{texts} are not on the screen:\n{read_screen(app)}") from None
    return read_screen(app)


def drive(file: Path, steps: Steps, size: tuple[int, int] = (80, 24), *, path: str | None = None) -> None:
    """View a file, and run steps on its screen."""
    with closing(FileSource(str(file))) as source:
        drive_source(source, steps, size, path=path)


def drive_source(source: Source, steps: Steps, size: tuple[int, int] = (80, 24), *, path: str | None = None) -> None:
    """View a source, and run steps on its screen."""

    async def run() -> None:
        async with ViewApp(source, path=path).run_test(size=size) as pilot:
            await steps(pilot)

    asyncio.run(run())


def get_screen(pilot: Pilot[None]) -> PagerScreen:
    screen = pilot.app.screen
    assert isinstance(screen, PagerScreen)
    return screen


async def copy(pilot: Pilot[None], key: str) -> str:
    """Press the keys that copy something, and return it."""
    await pilot.press("y", key)
    await wait_for(pilot, "copied: ")
    return pilot.app.clipboard
