"""Calls of forebay's tools through a gateway, counted."""

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from peer import Peer, connect

SERVER = Path(__file__).with_name("server.py")


class CallFailed(Exception):
    """A tool answered with an error."""


class OutputTools:
    """The tools that read stored outputs, with the number of calls and the bytes that they returned."""

    def __init__(self, peer: Peer, handles: Mapping[str, str]) -> None:
        self._peer = peer
        self.handles = handles
        """The handle of each output."""
        self.calls = 0
        self.bytes_read = 0

    @property
    def handle(self) -> str:
        """The handle of the only output."""
        (handle,) = self.handles.values()
        return handle

    def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """Call a tool; return the text of its result, and whether the result is an error."""
        params = {"name": name, "arguments": arguments}
        response = json.loads(self._peer.request("tools/call", params))
        if "error" in response:
            text, is_error = str(response["error"]["message"]), True
        else:
            text, is_error = str(response["result"]["content"][0]["text"]), bool(response["result"].get("isError"))
        self.calls += 1
        self.bytes_read += len(text.encode())
        return text, is_error

    def fetch(self, **arguments: Any) -> Any:
        """Call `output_fetch` for the only output, and return the page."""
        return self._call_and_parse("output_fetch", {"output_handle": self.handle, **arguments})

    def search(self, pattern: str, **arguments: Any) -> Any:
        """Call `output_search` for the only output, and return the matches."""
        return self._call_and_parse("output_search", {"output_handle": self.handle, "pattern": pattern, **arguments})

    def query(self, sql: str, name: str | None = None) -> list[list[Any]]:
        """Call `output_query`, for the output of this name or the only one, and return all rows."""
        handle = self.handle if name is None else self.handles[name]
        result = self._call_and_parse("output_query", {"output_handle": handle, "sql": sql})
        if result["truncated"]:
            raise CallFailed(f"not all rows fit: {sql}")
        return list(result["rows"])

    def query_value(self, sql: str, name: str | None = None) -> Any:
        """Call `output_query` and return the only value of the result."""
        ((value,),) = self.query(sql, name)
        return value

    def _call_and_parse(self, name: str, arguments: Mapping[str, Any]) -> Any:
        text, is_error = self.call(name, arguments)
        if is_error:
            raise CallFailed(text)
        return json.loads(text)


class Session:
    """A gateway in front of the server that returns the outputs."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._descriptors: dict[str, str] = {}
        tools = json.loads(peer.list_tools())["result"]["tools"]
        self.definitions = [tool for tool in tools if tool["name"].startswith("output_")]
        """The definitions of forebay's tools, as `tools/list` has them."""

    def describe(self, output: str) -> str:
        """Return the descriptor of an output. The first call stores the output."""
        if output not in self._descriptors:
            response = json.loads(self._peer.request("tools/call", {"name": f"get_{output}", "arguments": {}}))
            self._descriptors[output] = str(response["result"]["content"][0]["text"])
        return self._descriptors[output]

    def tools_for(self, outputs: tuple[str, ...]) -> OutputTools:
        """Return tools that count anew, for these outputs."""
        handles = {output: json.loads(self.describe(output))["output_handle"] for output in outputs}
        return OutputTools(self._peer, handles)


@contextlib.contextmanager
def open_session() -> Iterator[Session]:
    """Start `forebay wrap` in front of the server, with a store of its own."""
    with tempfile.TemporaryDirectory(prefix="forebay-evals-") as folder:
        wrap = [sys.executable, "-m", "forebay", "wrap", "--store", Path(folder).as_uri(), "--output-mode", "handle"]
        with connect([*wrap, "--", sys.executable, str(SERVER)]) as peer:
            yield Session(peer)
