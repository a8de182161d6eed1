"""Requests of our own to a server, among those of its client."""

import contextlib
import itertools
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from typing import Any

from forebay.errors import UpstreamFailed, UpstreamTimeout
from forebay.proxy.lists import parsed
from forebay.wire.lazy_json import written
from forebay.wire.lines import Kept
from forebay.wire.messages import next_cursor

__all__ = ["OwnRequests", "ServerRefused"]

_PATIENCE = 10.0
"""How many seconds a server has to answer."""


_MOST_PAGES = 1000
"""How many pages of tools are looked through."""


class ServerRefused(UpstreamFailed):
    """The server is there, and says no."""


class OwnRequests:
    """By ids that no client has."""

    def __init__(self) -> None:
        self._name = f"forebay-{secrets.token_hex(8)}"
        self._numbers = itertools.count(1)
        self._waiting: dict[str, Future[dict[str, Any]]] = {}

    def new_id(self) -> str:
        """The id of a request whose answer is to be waited for."""
        request_id = f"{self._name}-{next(self._numbers)}"
        self._waiting[request_id] = Future()
        return request_id

    def answered(self, message: dict[str, Any], line: Kept) -> bool:
        """Whether an answer is to one of these: then it goes nowhere else."""
        request_id = message.get("id")
        future = self._waiting.get(request_id) if isinstance(request_id, str) else None
        if future is None:
            return isinstance(request_id, str) and request_id.startswith(self._name)
        # Two threads may bring two answers; the first one counts.
        with contextlib.suppress(InvalidStateError):
            future.set_result(parsed(line))
        return True

    def is_waiting(self, request_id: object) -> bool:
        """Whether the answer to one of these is yet to come."""
        future = self._waiting.get(request_id) if isinstance(request_id, str) else None
        return future is not None and not future.done()

    def failed(self, error: UpstreamFailed, *request_ids: object) -> None:
        """Nothing of what was asked will be answered, or not these."""
        for request_id, future in list(self._waiting.items()):
            if not request_ids or request_id in request_ids:
                with contextlib.suppress(InvalidStateError):
                    future.set_exception(error)

    def all_tools(self, send: Callable[[Kept], None], meta: Mapping[str, Any]) -> list[Any]:
        """What the server lists, of all pages."""
        tools: list[Any] = []
        cursors: list[Any] = [None]
        # Its progress is nobody's.
        meta = {key: value for key, value in meta.items() if key != "progressToken"}
        # Some servers give the same page for every cursor.
        while len(cursors) <= _MOST_PAGES and cursors.count(cursors[-1]) == 1:
            cursor = {} if cursors[-1] is None else {"cursor": cursors[-1]}
            request_id = self.new_id()
            send(self.written(request_id, "tools/list", {**({"_meta": meta} if meta else {}), **cursor}))
            page = self.wait(request_id)
            listed = page.get("tools")
            tools += listed if isinstance(listed, list) else []
            cursors.append(next_cursor(page))
        if cursors[-1] is not None and cursors.count(cursors[-1]) == 1:
            raise UpstreamFailed(f"the server lists its tools in more than {_MOST_PAGES} pages")
        return tools

    def wait(self, request_id: str) -> dict[str, Any]:
        """The result of a request; an error of the server is one of ours."""
        try:
            message = self._waiting[request_id].result(_PATIENCE)
        except TimeoutError:
            raise UpstreamTimeout(f"the server did not answer within {_PATIENCE:g} s") from None
        finally:
            del self._waiting[request_id]
        result = message.get("result")
        if not isinstance(result, dict):
            raise ServerRefused("the server refused what it was asked")
        return result

    @staticmethod
    def written(request_id: str, method: str, params: Mapping[str, Any]) -> bytes:
        """As it is sent."""
        return written({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
