"""Servers that cannot be listened to for changes: some just now, others never."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from forebay.operations.mcp import changes
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, METHOD_NOT_FOUND


class _Refusing:
    """A client whose server answers like this when it is listened to, once."""

    protocol_version = "2026-07-28"

    def __init__(self, code: int) -> None:
        self._code = code
        self._numbers = itertools.count()

    @asynccontextmanager
    async def listen(self, **_: Any) -> AsyncIterator[AsyncIterator[Any]]:
        if next(self._numbers) == 0:
            raise MCPError(code=self._code, message="no")
        yield self._changes()

    async def _changes(self) -> AsyncIterator[Any]:
        yield "changed"
        await asyncio.Event().wait()


async def _is_heard(code: int) -> bool:
    heard: asyncio.Queue[bool] = asyncio.Queue()
    client: Any = _Refusing(code)
    following = asyncio.create_task(changes.follow_changes(client, heard.put, lambda: True))
    try:
        async with asyncio.timeout(1):
            return await heard.get()
    except TimeoutError:
        return False
    finally:
        following.cancel()


@pytest.mark.slow
def test_a_server_that_is_just_being_started_is_listened_to_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "_MIN_DELAY_SECONDS", 0)
    assert asyncio.run(_is_heard(INTERNAL_ERROR))
    assert not asyncio.run(_is_heard(METHOD_NOT_FOUND))
