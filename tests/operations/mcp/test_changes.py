"""Servers that refuse a subscription to changes, for a while or for good."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from forebay.operations.mcp import connection
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, METHOD_NOT_FOUND


class _RefusingClient:
    """A client whose server refuses the first subscription with an error code."""

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


async def _is_refreshed(code: int) -> bool:
    has_refreshed = asyncio.Event()
    client: Any = _RefusingClient(code)

    async def refresh() -> None:
        has_refreshed.set()

    following = asyncio.create_task(connection.follow_changes(client, refresh, lambda: True))
    try:
        async with asyncio.timeout(1):
            return await has_refreshed.wait()
    except TimeoutError:
        return False
    finally:
        following.cancel()


@pytest.mark.slow
def test_a_server_that_is_just_being_started_is_listened_to_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_MIN_DELAY_SECONDS", 0)
    assert asyncio.run(_is_refreshed(INTERNAL_ERROR))
    assert not asyncio.run(_is_refreshed(METHOD_NOT_FOUND))
