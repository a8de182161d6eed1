"""Minimal client for a server on stdio, without an SDK: start the server, send requests, end it."""

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
from forebay.wire.messages import METHOD_NOT_FOUND, dump
from forebay.wire.protocol import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LEGACY_VERSION,
    MODERN_VERSION,
    PROTOCOL_VERSION_KEY,
    PageCursors,
)

__all__ = ["ServerProbe", "list_tools"]

_CLIENT_INFO = {"name": "forebay", "version": forebay.__version__}

_INITIALIZE_PARAMS = {"protocolVersion": LEGACY_VERSION, "capabilities": {}, "clientInfo": _CLIENT_INFO}

_MODERN_META = {PROTOCOL_VERSION_KEY: MODERN_VERSION, CLIENT_INFO_KEY: _CLIENT_INFO, CLIENT_CAPABILITIES_KEY: {}}

_GRACE_SECONDS = 2.0
"""How long a server may take to exit after its input is closed."""

# Messages are never spooled to a file, because a list of tools is parsed in memory.
_make_reader = partial(LineReader, spool_above_bytes=sys.maxsize, make_spool=lambda: Spool(tempfile.gettempdir()))


class ServerProbe:
    """Context manager that runs a server command and sends requests to it.

    `timeout` limits the seconds of all requests together. The server shares our standard error.
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
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.terminate(_GRACE_SECONDS)

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the result of a request. Raises `UpstreamFailed`."""
        response = self._exchange(method, params)
        if "error" in response:
            raise UpstreamFailed(f"the server answered {method} with an error: {short_repr(response['error'])}")
        result = response.get("result")
        if not isinstance(result, dict):
            raise UpstreamFailed(f"the server answered {method} with no result: {short_repr(response)}")
        return result

    def _handshake(self) -> None:
        if "error" in self._exchange("initialize", _INITIALIZE_PARAMS):
            # The server may support only protocol versions without a handshake.
            self._meta = {"_meta": _MODERN_META}
        else:
            self._send({"method": "notifications/initialized"})

    def _exchange(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Send a request and return its response."""
        self._last_id += 1
        self._send({"id": self._last_id, "method": method, "params": {**(params or {}), **self._meta}})
        while True:
            message = self._read_next_message(method)
            if "method" in message:
                self._reply(message)
            elif message.get("id") == self._last_id:
                return message

    def _read_next_message(self, method: str) -> dict[str, Any]:
        """Return the next message; lines that are not JSON objects are skipped, as other clients do."""
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
        """Answer a request from the server, because some servers wait for the answer."""
        if "id" not in message:
            return
        refusal = {"error": {"code": METHOD_NOT_FOUND, "message": "this client only asks"}}
        self._send({"id": message["id"], **({"result": {}} if message["method"] == "ping" else refusal)})

    def _send(self, message: Mapping[str, Any]) -> None:
        # If the server has ended, `_read_next_message` reports it.
        with contextlib.suppress(UpstreamFailed):
            self._process.send(dump({"jsonrpc": "2.0", **message}))

    def _read_lines(self) -> None:
        for line in self._process.read_lines(_make_reader):
            self._lines.put(line)
        self._lines.put(b"")


def list_tools(command: Sequence[str], *, timeout: float = 30.0) -> list[dict[str, Any]]:
    """Return all tools that a server lists; of tools with the same name, only the first."""
    tools: dict[str, dict[str, Any]] = {}
    cursors = PageCursors()
    with ServerProbe(command, timeout=timeout) as server:
        for cursor in cursors:
            page = server.request("tools/list", cursor)
            for tool in page.get("tools") or []:
                if isinstance(tool, dict):
                    tools.setdefault(str(tool.get("name")), tool)
            cursors.follow(page)
    return [*tools.values()]
