"""Asks a server on stdio something, without any SDK: start it, introduce oneself, ask, end it."""

import contextlib
import os
import queue
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import orjson

import headgate
from headgate.arguments import shown
from headgate.errors import UpstreamFailed, UpstreamTimeout

__all__ = ["Asking", "tools_of"]

_LEGACY, _MODERN = "2025-11-25", "2026-07-28"

_CLIENT = {"name": "headgate", "version": headgate.__version__}

_HELLO = {"protocolVersion": _LEGACY, "capabilities": {}, "clientInfo": _CLIENT}

_MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": _MODERN,
    "io.modelcontextprotocol/clientInfo": _CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}

_METHOD_NOT_FOUND = -32601

_MOST_PAGES = 1000

_GRACE = 2.0
"""How long a server may take to end once its input has, and once it was told to."""


class Asking:
    """A server that runs as long as it is asked; all questions together may take `timeout` seconds.

    What it writes to stderr is shown where this process writes its own.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        timeout: float = 30.0,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> None:
        self._command = list(command)
        self._timeout = timeout
        self._env = None if env is None else {**os.environ, **env}
        self._cwd = cwd
        self._number = 0
        self._meta: dict[str, Any] = {}
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        self._deadline = time.monotonic() + self._timeout
        try:
            self._process = subprocess.Popen(  # noqa: S603 - what to run is what was asked for
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self._env, cwd=self._cwd
            )
        except (OSError, ValueError) as error:
            raise UpstreamFailed(f"{shown(self._command[0])} cannot be started: {error}; check the command") from None
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self._introduce()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def ask(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The result of a request."""
        answer = self._answer(method, params)
        if "error" in answer:
            raise UpstreamFailed(f"the server answered {method} with an error: {shown(answer['error'])}")
        result = answer.get("result")
        if not isinstance(result, dict):
            raise UpstreamFailed(f"the server answered {method} with no result: {shown(answer)}")
        return result

    def _introduce(self) -> None:
        if "error" in self._answer("initialize", _HELLO):
            # It may be one that knows no handshake any more.
            self._meta = {"_meta": _MODERN_META}
        else:
            self._send({"method": "notifications/initialized"})

    def _answer(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        self._number += 1
        self._send({"id": self._number, "method": method, "params": {**(params or {}), **self._meta}})
        while True:
            message = self._received(method)
            if "method" in message:
                self._reply(message)
            elif message.get("id") == self._number:
                return message

    def _received(self, method: str) -> dict[str, Any]:
        """The next message; lines that are none are passed over, as clients do."""
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, self._deadline - time.monotonic()))
            except queue.Empty:
                raise UpstreamTimeout(f"the server did not answer {method} within {self._timeout:g} s") from None
            if not line:
                raise UpstreamFailed(f"the server ended before it answered {method}; run it alone to see why")
            with contextlib.suppress(orjson.JSONDecodeError):
                message = orjson.loads(line)
                if isinstance(message, dict):
                    return message

    def _reply(self, message: Mapping[str, Any]) -> None:
        """Servers ask, too, and some wait for the answer."""
        if "id" not in message:
            return
        refusal = {"error": {"code": _METHOD_NOT_FOUND, "message": "this client only asks"}}
        self._send({"id": message["id"], **({"result": {}} if message["method"] == "ping" else refusal)})

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        # That it has ended shows where its answer is missing.
        with contextlib.suppress(OSError):
            self._process.stdin.write(orjson.dumps({"jsonrpc": "2.0", **message}) + b"\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(b"")

    def _end(self) -> None:
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        for harder in (self._process.terminate, self._process.kill):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE)
                return
            harder()
        self._process.wait()


def tools_of(command: Sequence[str], **options: Any) -> list[dict[str, Any]]:
    """All tools that a server lists, of all pages; the options are those of `Asking`."""
    tools: dict[str, dict[str, Any]] = {}
    cursors: list[Any] = [None]
    with Asking(command, **options) as server:
        # Some servers give the same page for every cursor, or begin again after the last.
        while cursors[-1] not in cursors[:-1] and len(cursors) <= _MOST_PAGES:
            page = server.ask("tools/list", {} if cursors[-1] is None else {"cursor": cursors[-1]})
            listed = [tool for tool in page.get("tools") or [] if isinstance(tool, dict)]
            for tool in listed:
                tools.setdefault(str(tool.get("name")), tool)
            cursors.append(page.get("nextCursor"))
    return [*tools.values()]
