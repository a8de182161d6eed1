"""What `forebay view` copies, for each kind of place."""

import base64
import json
import shlex
from contextlib import closing
from pathlib import Path

import forebay
import pytest
from command import run
from forebay.cli.view.source import FileSource, Stored, StoredSource
from textual.pilot import Pilot
from view_pilot import Steps, copy, drive, drive_source, get_screen, wait_for

pytestmark = pytest.mark.slow

BINARY = bytes(range(256)) * 2
QUERY = "SELECT id, name FROM items WHERE id = 7"


def drive_handle(home: Path, payload: object, steps: Steps) -> str:
    """Store a payload, run steps on its screen, and return its handle."""
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        handle = store.put(payload).output_handle
        with closing(StoredSource(Stored(store, handle, None))) as source:
            drive_source(source, steps)
    return handle


def test_bytes_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "some binary"
    path.write_bytes(BINARY)

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "binary", "0000000000  00 01 02")
        await pilot.press("j")
        assert shlex.split(await copy(pilot, "c")) == ["xxd", "-s", "16", "-l", "16", str(path)]
        await pilot.press("y", "t")
        await wait_for(pilot, "tools read handles; store this with `forebay put`, and view its handle")
        await pilot.press("y", "p")
        await wait_for(pilot, "no JSON Pointer leads here; yc copies a command")
        await pilot.press("y", "z")
        await wait_for(pilot, "nothing copied")
        assert pilot.app.clipboard.startswith("xxd")

    drive(path, steps)


def test_bytes_of_a_handle(home: Path) -> None:
    copied: list[str] = []

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "binary", "0000000000  00 01 02")
        await pilot.press("j")
        copied.extend([await copy(pilot, "c"), await copy(pilot, "t")])

    handle = drive_handle(home, BINARY, steps)
    command, call = copied
    assert base64.b64decode(run(*shlex.split(command)[1:]).json["content"]) == BINARY[16:32]
    arguments = {"output_handle": handle, "format": "bytes", "offset": 16, "limit": 16}
    assert json.loads(call) == {"tool": "output_fetch", "arguments": arguments}


@pytest.mark.usefixtures("home")
def test_rows_of_a_query_are_read_by_the_query(home: Path) -> None:
    copied: list[str] = []

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "20 items")
        await pilot.press("colon", *QUERY, "enter")
        await wait_for(pilot, "1 row", "name 7")
        copied.extend([await copy(pilot, "c"), await copy(pilot, "t")])
        await pilot.press("y", "p")
        await wait_for(pilot, "no JSON Pointer leads here")
        await pilot.press("f")
        await wait_for(pilot, "rows of a query have no filter; put a WHERE into the statement")
        # An item of the result has no pointer, and so no command of its own.
        await pilot.press("enter")
        await wait_for(pilot, "{2 members}")
        copied.append(await copy(pilot, "c"))

    handle = drive_handle(home, [{"id": n, "name": f"name {n}"} for n in range(20)], steps)
    command, call, of_value = copied
    assert shlex.split(command) == ["forebay", "query", handle, QUERY]
    assert run(*shlex.split(command)[1:]).json["rows"] == [[7, "name 7"]]
    assert json.loads(call) == {"tool": "output_query", "arguments": {"output_handle": handle, "sql": QUERY}}
    assert shlex.split(of_value) == ["forebay", "fetch", handle]


def test_a_file_is_named_as_the_user_named_it(tmp_path: Path) -> None:
    path = tmp_path / "some file"
    path.write_text(json.dumps([{"a": n} for n in range(20)]))

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "20 items")
        await pilot.press("j")
        copied = await copy(pilot, "c")
        assert shlex.split(copied) == ["forebay", "view", str(path), "--path", "/1/a", "--mime-type", "text/json"]
        await pilot.press("o")
        await wait_for(pilot, "outline of some file")
        assert shlex.split(await copy(pilot, "c"))[:3] == ["forebay", "view", str(path)]
        assert "--path" not in pilot.app.clipboard

    with closing(FileSource(str(path), "text/json")) as source:
        drive_source(source, steps)


def test_standard_input_cannot_be_read_again() -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "standard input", "2 lines")
        await pilot.press("y", "c")
        await wait_for(pilot, "standard input cannot be read again; store it with `forebay put -`")

    with closing(StoredSource.put(b"one\ntwo\n", None, None)) as source:
        drive_source(source, steps)


def test_what_cannot_be_copied(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text(json.dumps([{"a": "x" * 300_000}]))

    async def steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "{1 member}")
        await pilot.press("j", "y", "y")
        await wait_for(pilot, "300,002 bytes are too many to copy; yc copies a command that reads them")

    drive(path, steps, path="/0")
    empty = tmp_path / "empty.json"
    empty.write_text("[]")

    async def empty_steps(pilot: Pilot[None]) -> None:
        await wait_for(pilot, "0 items")
        await pilot.press("y", "y")
        await wait_for(pilot, "there is nothing here to copy")
        # There is nothing to open or to choose either.
        before = get_screen(pilot)
        await pilot.press("enter", "space", "dollar_sign", "n")
        await wait_for(pilot, "nothing to search for yet; / starts a search")
        assert get_screen(pilot) is before

    drive(empty, empty_steps)
