"""Asks a server on stdio something, without any SDK: start it, introduce oneself, ask, end it."""

import contextlib
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

import orjson

import forebay
from forebay.arguments import short_repr
from forebay.errors import UpstreamFailed, UpstreamTimeout
from forebay.proxy.stdio import Process
from forebay.wire.framing import Line, LineReader, Spool
from forebay.wire.messages import METHOD_NOT_FOUND
from forebay.wire.protocol import next_cursor

__all__ = ["ServerProbe", "list_tools"]

_LEGACY, _MODERN = "2025-11-25", "2026-07-28"

_CLIENT_INFO = {"name": "forebay", "version": forebay.__version__}

_INITIALIZE_PARAMS = {"protocolVersion": _LEGACY, "capabilities": {}, "clientInfo": _CLIENT_INFO}

_MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": _MODERN,
    "io.modelcontextprotocol/clientInfo": _CLIENT_INFO,
    "io.modelcontextprotocol/clientCapabilities": {},
}

_MAX_PAGES = 1000

_GRACE_SECONDS = 2.0
"""How long a server may take to end once its input has, and once it was told to."""

_READER = partial(LineReader, spool_above_bytes=sys.maxsize, make_spool=lambda: Spool(tempfile.gettempdir()))
"""What a server lists is looked at whole, so it has to fit into memory."""


class ServerProbe:
    """A server that runs as long as it is asked; all questions together may take `timeout` seconds.

    What it writes to stderr is shown where this process writes its own.
    """

    def __init__(self, command: Sequence[str], *, timeout: float = 30.0) -> None:
        self._command = command
        self._timeout = timeout
        self._last_id = 0
        self._meta: dict[str, Any] = {}
        self._lines: queue.SimpleQueue[Line] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        self._deadline = time.monotonic() + self._timeout
        self._process = Process(self._command)
        threading.Thread(target=self._read_lines, daemon=True).start()
        try:
            self._handshake()
        except BaseException:
            self._process.terminate(_GRACE_SECONDS)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.terminate(_GRACE_SECONDS)

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The result of a request."""
        answer = self._exchange(method, params)
        if "error" in answer:
            raise UpstreamFailed(f"the server answered {method} with an error: {short_repr(answer['error'])}")
        result = answer.get("result")
        if not isinstance(result, dict):
            raise UpstreamFailed(f"the server answered {method} with no result: {short_repr(answer)}")
        return result

    def _handshake(self) -> None:
        if "error" in self._exchange("initialize", _INITIALIZE_PARAMS):
            # It may be one that knows no handshake any more.
            self._meta = {"_meta": _MODERN_META}
        else:
            self._send({"method": "notifications/initialized"})

    def _exchange(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        self._last_id += 1
        self._send({"id": self._last_id, "method": method, "params": {**(params or {}), **self._meta}})
        while True:
            message = self._next_message(method)
            if "method" in message:
                self._reply(message)
            elif message.get("id") == self._last_id:
                return message

    def _next_message(self, method: str) -> dict[str, Any]:
        """The next message; lines that are none are passed over, as clients do."""
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, self._deadline - time.monotonic()))
            except queue.Empty:
                raise UpstreamTimeout(f"the server did not answer {method} within {self._timeout:g} s") from None
            if not line:
                raise UpstreamFailed(f"the server ended before it answered {method}; run it alone to see why")
            with contextlib.suppress(orjson.JSONDecodeError):
                message = orjson.loads(line) if isinstance(line, bytes | bytearray) else None
                if isinstance(message, dict):
                    return message

    def _reply(self, message: Mapping[str, Any]) -> None:
        """Servers ask, too, and some wait for the answer."""
        if "id" not in message:
            return
        refusal = {"error": {"code": METHOD_NOT_FOUND, "message": "this client only asks"}}
        self._send({"id": message["id"], **({"result": {}} if message["method"] == "ping" else refusal)})

    def _send(self, message: Mapping[str, Any]) -> None:
        # That it has ended shows where its answer is missing.
        with contextlib.suppress(UpstreamFailed):
            self._process.send(orjson.dumps({"jsonrpc": "2.0", **message}))

    def _read_lines(self) -> None:
        for line in self._process.read_lines(_READER):
            self._lines.put(line)
        self._lines.put(b"")


def list_tools(command: Sequence[str], *, timeout: float = 30.0) -> list[dict[str, Any]]:
    """All tools that a server lists, of all pages."""
    tools: dict[str, dict[str, Any]] = {}
    cursors: list[Any] = [None]
    with ServerProbe(command, timeout=timeout) as server:
        # Some servers give the same page for every cursor, or begin again after the last.
        while cursors[-1] not in cursors[:-1] and len(cursors) <= _MAX_PAGES:
            page = server.request("tools/list", {} if cursors[-1] is None else {"cursor": cursors[-1]})
            listed = [tool for tool in page.get("tools") or [] if isinstance(tool, dict)]
            for tool in listed:
                tools.setdefault(str(tool.get("name")), tool)
            cursors.append(next_cursor(page))
    return [*tools.values()]
