"""Minimal client without an SDK: connect to a server, send requests, end it. Here for a server on stdio."""

import contextlib
import queue
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import IO, Any, Self

import orjson

import forebay
from forebay.arguments import short_repr
from forebay.errors import UpstreamFailed, UpstreamTimeout
from forebay.proxy.stdio import Process
from forebay.wire.framing import Line, LineReader, Spool
from forebay.wire.lazy_json import dump
from forebay.wire.messages import METHOD_NOT_FOUND
from forebay.wire.protocol import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LEGACY_VERSION,
    MODERN_VERSION,
    PROTOCOL_VERSION_KEY,
    PageCursors,
)

__all__ = ["Probe", "ServerProbe", "list_tools"]

_CLIENT_INFO = {"name": "forebay", "version": forebay.__version__}

_INITIALIZE_PARAMS = {"protocolVersion": LEGACY_VERSION, "capabilities": {}, "clientInfo": _CLIENT_INFO}

_MODERN_META = {PROTOCOL_VERSION_KEY: MODERN_VERSION, CLIENT_INFO_KEY: _CLIENT_INFO, CLIENT_CAPABILITIES_KEY: {}}

_MAX_ERROR_CHARS = 500
"""Maximum characters of a server's error message to repeat."""

_GRACE_SECONDS = 2.0
"""How long a server may take to exit after its input is closed."""

# Messages are never spooled to a file, because a list of tools is parsed in memory.
_make_reader = partial(LineReader, spool_above_bytes=sys.maxsize, make_spool=lambda: Spool(tempfile.gettempdir()))


class Probe(ABC):
    """Context manager that connects to a server and sends requests. `timeout` limits the seconds of all together."""

    def __init__(self, timeout: float) -> None:
        self.start_seconds: float | None = None
        """Seconds from the start until the server has answered the handshake."""
        self._timeout = timeout
        self._last_id = 0
        self._meta: dict[str, Any] = {}

    def __enter__(self) -> Self:
        started_at = time.monotonic()
        self._deadline = started_at + self._timeout
        try:
            self._connect()
            self._handshake()
        except BaseException:
            self.close()
            raise
        self.start_seconds = time.monotonic() - started_at
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the result of a request. Raises `UpstreamFailed`."""
        response = self._send_request(method, params)
        if (error := response.get("error")) is not None:
            message = error.get("message") if isinstance(error, dict) else None
            problem = message[:_MAX_ERROR_CHARS] if isinstance(message, str) else short_repr(error)
            raise UpstreamFailed(f"the server answered {method} with an error: {problem}")
        result = response.get("result")
        if not isinstance(result, dict):
            raise UpstreamFailed(f"the server answered {method} with no result: {short_repr(response)}")
        return result

    def list_tools(self) -> list[dict[str, Any]]:
        """Return all tools that the server lists; of tools with the same name, only the first."""
        tools: dict[str, dict[str, Any]] = {}
        cursors = PageCursors()
        for cursor in cursors:
            page = self.request("tools/list", cursor)
            for tool in page.get("tools") or []:
                if isinstance(tool, dict):
                    tools.setdefault(str(tool.get("name")), tool)
            cursors.follow(page)
        return [*tools.values()]

    @abstractmethod
    def close(self) -> None:
        """End the connection, and the server if it was started."""

    @abstractmethod
    def _connect(self) -> None:
        """Start the server, or open what the first request needs."""

    @abstractmethod
    def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return its response. Raises `UpstreamFailed`."""

    @abstractmethod
    def _send(self, message: Mapping[str, Any]) -> None:
        """Send a notification or a response."""

    def _handshake(self) -> None:
        if "error" in self._send_request("initialize", _INITIALIZE_PARAMS):
            self._use_modern_version()
        else:
            self._send({"method": "notifications/initialized"})

    def _use_modern_version(self) -> None:
        # The server may support only protocol versions without a handshake.
        self._meta = {"_meta": _MODERN_META}

    def _send_request(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        self._last_id += 1
        return self._exchange({"id": self._last_id, "method": method, "params": {**(params or {}), **self._meta}})

    def _is_response(self, message: Mapping[str, Any]) -> bool:
        """Return whether a message is the response to the last request. A request from the server is answered."""
        if "method" not in message:
            return message.get("id") == self._last_id
        if "id" in message:
            # Some servers wait for the answer.
            refusal = {"error": {"code": METHOD_NOT_FOUND, "message": "this client only asks"}}
            self._send({"id": message["id"], **({"result": {}} if message["method"] == "ping" else refusal)})
        return False

    def _get_remaining_seconds(self, method: str) -> float:
        """Return the seconds until the deadline. Raises `UpstreamTimeout` if it has passed."""
        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            raise UpstreamTimeout(f"the server did not answer {method} within {self._timeout:g} s")
        return seconds


class ServerProbe(Probe):
    """Probe of a server command. The server shares our standard error, or writes it to a file."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        timeout: float = 30.0,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stderr: IO[bytes] | None = None,
    ) -> None:
        super().__init__(timeout)
        self._start_process = partial(Process, command, env=env, cwd=cwd, stderr=stderr)
        self._process: Process | None = None
        self._lines: queue.SimpleQueue[Line] = queue.SimpleQueue()

    def close(self) -> None:
        if self._process is not None:
            self._process.terminate(_GRACE_SECONDS)

    def cancel(self) -> None:
        """Let the request in flight fail, from another thread."""
        self._lines.put(b"")

    def _connect(self) -> None:
        self._process = self._start_process()
        threading.Thread(target=self._read_lines, args=(self._process,), daemon=True).start()

    def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        self._send(message)
        while True:
            received = self._read_next_message(message["method"])
            if self._is_response(received):
                return received

    def _read_next_message(self, method: str) -> dict[str, Any]:
        """Return the next message; lines that are not JSON objects are skipped, as other clients do."""
        while True:
            try:
                line = self._lines.get(timeout=self._get_remaining_seconds(method))
            except queue.Empty:
                continue
            if not line:
                raise UpstreamFailed(f"the server ended before it answered {method}; run it alone to see why")
            with contextlib.suppress(orjson.JSONDecodeError):
                message = orjson.loads(line) if isinstance(line, bytes | bytearray) else None
                if isinstance(message, dict):
                    return message

    def _send(self, message: Mapping[str, Any]) -> None:
        # If the server has ended, `_read_next_message` reports it.
        with contextlib.suppress(UpstreamFailed):
            if self._process is not None:
                self._process.send(dump({"jsonrpc": "2.0", **message}))

    def _read_lines(self, process: Process) -> None:
        for line in process.read_lines(_make_reader):
            self._lines.put(line)
        self._lines.put(b"")


def list_tools(command: Sequence[str], *, timeout: float = 30.0) -> list[dict[str, Any]]:
    """Return all tools that a server command lists."""
    with ServerProbe(command, timeout=timeout) as server:
        return server.list_tools()
