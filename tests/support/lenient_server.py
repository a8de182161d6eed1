"""A server that understands more than the protocol allows, and records every tool that it ran."""

import contextlib
import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from forebay.wire.framing import Message, Spool

_HOMOGLYPHS = str.maketrans("аеосрхіѕⅼ", "aeocpxisl")
"""Letters of other scripts that look like Latin ones."""


class LenientServer:
    """Runs a call in any spelling that a careless parser could accept."""

    def __init__(self, tools: Iterable[str]) -> None:
        self.tools = list(tools)
        self.calls: list[str] = []
        self.respond: Callable[[bytes], object] = lambda _: None

    def send(self, raw: Message) -> None:
        data = b"".join(raw.chunks()) if isinstance(raw, Spool) else bytes(raw)
        text = data.decode("utf-8", "surrogateescape")
        # Some readers end a line at a carriage return or at U+2028, too.
        for line in {text, *text.splitlines()}:
            with contextlib.suppress(json.JSONDecodeError):
                self._receive(json.loads(line, object_pairs_hook=list, strict=False))

    def _receive(self, message: Any) -> None:
        """Handle a message; objects are lists of pairs, so that no duplicate is lost."""
        if not isinstance(message, list):
            return
        if not all(isinstance(entry, tuple) for entry in message):
            for entry in message:
                self._receive(entry)
            return
        methods = [value for name, value in message if simplify(name) == "method"]
        params = [value for name, value in message if simplify(name) == "params"]
        if any(simplify(method) == "toolscall" for method in methods):
            self.calls += [name for value in params for name in find_names(value)]
        ids = [value for name, value in message if name == "id"]
        if methods == ["tools/list"] and ids:
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in self.tools]
            self.respond(json.dumps({"jsonrpc": "2.0", "id": ids[-1], "result": {"tools": tools}}).encode())


def simplify(name: object) -> str:
    """Return a name without case, look-alikes and everything that is not a letter."""
    text = unicodedata.normalize("NFKC", str(name)).translate(_HOMOGLYPHS).casefold()
    return "".join(character for character in text if character.isalpha())


def find_names(params: Any) -> Iterator[str]:
    """Yield each text in the parameters of a call that could be the name of the tool."""
    if isinstance(params, list):
        for entry in params:
            if isinstance(entry, tuple):
                if simplify(entry[0]) == "name":
                    yield str(entry[1])
                elif simplify(entry[0]) == "params":
                    yield from find_names(entry[1])
            else:
                yield str(entry)
    elif isinstance(params, str):
        yield params
