"""The log recipe: logs of any length become handles, and only files below the folder are read."""

import asyncio
import os
import re
from pathlib import Path

import pytest
from fastmcp import Client
from fastmcp.exceptions import ToolError
from recipe_client import connect_recipe
from recipes import logs

pytestmark = pytest.mark.slow

REQUESTS = 60_000


def write_request(number: int) -> str:
    status = 500 if number % 1000 == 999 else 404 if number % 50 == 0 else 200
    size = "-" if status == 500 else str(number)
    time = f"19/Nov/2026:10:{number // 1000 % 60:02}:{number // 20 % 60:02} +0000"
    return (
        f'10.0.0.{number % 250} - ann [{time}] "GET /shop/{number}?q=a HTTP/1.1" {status} {size} "-" "agent {number}"'
    )


ACCESS_LOG = "".join(f"{write_request(number)}\n" for number in range(REQUESTS)) + "broken line \N{SNOWMAN}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("logs")
    folder = root / "nginx"
    (folder / "old").mkdir(parents=True)
    (folder / "access.log").write_text(ACCESS_LOG, encoding="utf-8")
    (folder / "old" / "error.log").write_bytes(b"caf\xe9\nsecond\n")
    (folder / "empty.log").touch()
    records = (f'{{"level": "{"error" if number % 100 == 0 else "info"}", "ms": {number}}}\n' for number in range(5000))
    (folder / "app.ndjson").write_text("".join(records), encoding="utf-8")
    (root / "secret.txt").write_text("hunter2", encoding="utf-8")
    (folder / "link.log").symlink_to(root / "secret.txt")
    (folder / "linked").symlink_to(root)
    os.mkfifo(folder / "pipe")
    return folder


OUTSIDE = ["../secret.txt", "link.log", "linked/secret.txt", "pipe", "old", "", "/etc/passwd"]
"""Names that are not files below the folder."""


def test_questions_about_logs(folder: Path, tmp_path: Path, era: str) -> None:
    async def ask() -> None:
        async with connect_recipe("logs.py", str(folder), era=era, home=tmp_path) as client:
            listed, _ = await client.call_tool("list_files")
            assert f"{len(ACCESS_LOG.encode()):,} access.log" in listed
            assert "old/error.log" in listed

            handle, _ = await client.call_large("read", name="access.log")
            assert client.read_stored(handle).decode() == ACCESS_LOG
            page = await client.call("output_fetch", output_handle=handle, format="lines", offset=41_999, limit=1)
            assert page["content"] == write_request(41_999) + "\n"

            parsed, descriptor = await client.call_large("parse", name="access.log")
            assert descriptor["item_count"] == REQUESTS + 1
            sql = "SELECT status, count(*), sum(bytes) FROM items GROUP BY 1 ORDER BY 1 NULLS LAST"
            found = sum(n for n in range(REQUESTS) if n % 50 and n % 1000 != 999)
            missing = sum(range(0, REQUESTS, 50))
            expected = [[200, 58_740, found], [404, 1200, missing], [500, 60, None], [None, 1, None]]
            assert await client.query(parsed, sql) == expected
            fields = {"line": 999, "host": "10.0.0.249", "user": "ann", "time": "19/Nov/2026:10:00:49 +0000"}
            request = {"method": "GET", "path": "/shop/999?q=a", "status": 500, "bytes": None}
            page = await client.call("output_fetch", output_handle=parsed, where={"status": 500}, limit=1)
            assert page["content"] == [{**fields, **request, "referrer": "-", "agent": "agent 999"}]
            assert page["total"] == 60
            page = await client.call("output_fetch", output_handle=parsed, offset=REQUESTS)
            assert page["content"] == [{"line": REQUESTS, "text": "broken line \N{SNOWMAN}"}]

            lines = ACCESS_LOG.splitlines(keepends=True)
            assert await client.call_tool("tail", name="access.log", lines=3) == ("".join(lines[-3:]), False)
            handle, _ = await client.call_large("tail", name="access.log", lines=10_000)
            assert client.read_stored(handle).decode() == "".join(lines[-10_000:])
            assert await client.call_tool("tail", name="empty.log") == ("", False)
            assert await client.call_tool("read", name="old/error.log") == ("caf\\xe9\nsecond\n", False)

            assert await client.call("grep", name="access.log", pattern="(?i)SHOP/777\\?") == [
                {"line": 777, "text": write_request(777)}
            ]
            handle, descriptor = await client.call_large("grep", name="access.log", pattern='" (404|500) ')
            assert descriptor["item_count"] == 1260
            page = await client.call("output_fetch", output_handle=handle, offset=1259)
            assert page["content"] == [{"line": 59_999, "text": write_request(59_999)}]
            assert await client.call("grep", name="access.log", pattern="(x+x+)+y") == []
            text, is_error = await client.call_tool("grep", name="access.log", pattern="(")
            assert is_error
            assert "unclosed group" in text

            handle, descriptor = await client.call_large("read", name="app.ndjson")
            assert descriptor["item_count"] == 5000
            assert await client.query(handle, "SELECT level, count(*), max(ms) FROM items GROUP BY 1 ORDER BY 1") == [
                ["error", 50, 4900],
                ["info", 4950, 4999],
            ]

            for name in OUTSIDE:
                for tool, more in (("read", {}), ("tail", {}), ("grep", {"pattern": "h"}), ("parse", {})):
                    text, is_error = await client.call_tool(tool, name=name, **more)
                    assert is_error, name
                    assert "there is no log" in text
            assert "hunter2" not in listed

    asyncio.run(ask())


def test_names_in_another_encoding_are_listed_and_links_out_of_the_folder_are_not(
    folder: Path, tmp_path: Path, era: str
) -> None:
    async def ask() -> None:
        async with connect_recipe("logs.py", str(tmp_path / "logs"), era=era, home=tmp_path) as client:
            assert await client.call_tool("list_files") == (r"             1 gro\xdf.log", False)

    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / os.fsdecode(b"gro\xdf.log")).write_bytes(b"x")
    (tmp_path / "logs" / "link.log").symlink_to(folder.parent / "secret.txt")
    asyncio.run(ask())


def test_a_pattern_that_matches_several_lines_is_an_error(tmp_path: Path, era: str) -> None:
    async def ask() -> None:
        async with connect_recipe("logs.py", str(tmp_path / "logs"), era=era, home=tmp_path) as client:
            for pattern in ("second\\nthird", "(?s)first.*third", r"d\s+t", "[^x]*third"):
                text, is_error = await client.call_tool("grep", name="a.log", pattern=pattern)
                assert is_error, pattern
                assert r"the pattern matches more than one line; write [^\n]" in text
            assert await client.call("grep", name="a.log", pattern=r"s[^\n]+d\b") == [{"line": 1, "text": "second"}]

    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("first\nsecond\nthird\n", encoding="utf-8")
    asyncio.run(ask())


@pytest.mark.parametrize(
    "name",
    ["a\0b", "x" * 5000, "x/" * 3000, "loop", "\ud800"],
    ids=["NUL", "long name", "long path", "loop of links", "half a surrogate pair"],
)
def test_a_name_that_no_file_can_have_is_a_clear_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(ToolError, match=r"there is no log .{1,250}; list_files returns the names"):
        logs.open_log(tmp_path.resolve(), name)


def test_a_log_that_is_removed_meanwhile_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = Path.resolve

    def resolve_and_remove(file: Path, strict: bool = False) -> Path:
        resolved = resolve(file, strict)
        if file.name == "old.log":
            file.unlink()
        return resolved

    async def list_files() -> str:
        async with Client(logs.make_server(root, re.compile(logs.COMBINED_FORMAT))) as client:
            monkeypatch.setattr(Path, "resolve", resolve_and_remove)
            (block,) = (await client.call_tool("list_files")).content
            return str(block.text)

    root = (tmp_path / "logs").resolve()
    root.mkdir()
    for name in ("new.log", "old.log"):
        (root / name).write_bytes(b"x")
    monkeypatch.setenv("FOREBAY_HOME", str(tmp_path / "home"))
    assert asyncio.run(list_files()) == "             1 new.log"
    assert not (root / "old.log").exists()
