"""The conversation of the scripted model: which tools it calls, and what it sees of their results."""

import re
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from clients.apis import Call, Part, Request, Say, Turn
from clients.tools import Action, Toolbox

PROMPT = "Follow the script of the forebay client run."
"""The user's message. Requests without it are not part of the conversation: clients ask for titles, for example."""

LARGE_RESULTS: Mapping[str, Mapping[str, Any]] = {
    "network": {"count": 20_000},
    "extract_data": {"count": 20_000},
    "trace": {"events": 20_000},
}
"""The tools with large results, and their arguments: a list, a list with an output schema, and text."""

PATTERN = "apple"
"""What the model searches for in the result of `network`."""

PAGES = 2

MAX_REPEATS = 3
"""How often a client may repeat a request before the conversation ends."""

_HANDLE = re.compile(r"\boh_[A-Z2-7]{12,26}\b")
_NEXT_OFFSET = re.compile(r'\\*"next_offset\\*":\s*(\d+)')


class Conversation:
    """Plays the model's part of a conversation, and keeps what the model saw at each step."""

    def __init__(self, toolbox: Toolbox) -> None:
        self.first: Request | None = None
        """The request that starts the conversation."""
        self.seen: dict[str, Sequence[Part]] = {}
        """What the model saw after each step: `network`, `network page 1`, … `search`, `picture`."""
        self.known: dict[str, str] = {}
        """The text with the parameters of each tool that the model can call."""
        self.is_finished = False
        self._toolbox = toolbox
        self._pending: Call | None = None
        self._repeats = 0
        self._calls = 0
        self._script: Generator[Call, Request, None] | None = None

    def is_listed(self, tool: str) -> bool:
        """Return whether the client lists a tool of the server from the start."""
        return self.first is not None and self._toolbox.is_listed(tool, self.first)

    def respond(self, request: Request) -> Turn:
        """Return the model's next turn."""
        if PROMPT not in request.prompt or not request.tools:
            return Say("ok")
        if self._pending is not None and self._pending.id not in request.answered:
            self._repeats += 1
            return self._pending if self._repeats <= MAX_REPEATS else Say("The client repeats its request.")
        try:
            if self._script is None:
                self.first = request
                self._script = self._run(request)
                self._pending = next(self._script)
            else:
                self._pending = self._script.send(request)
        except StopIteration:
            self.is_finished = True
            self._pending = None
            return Say("The script is finished.")
        return self._pending

    def _run(self, request: Request) -> Generator[Call, Request, None]:
        handles = {}
        for tool, arguments in LARGE_RESULTS.items():
            request = yield from self._call(tool, tool, arguments, request)
            handles[tool] = _find(_HANDLE, self.seen.get(tool, ()))
        for tool, handle in handles.items():
            offset: str | None = "0"
            for number in range(1, PAGES + 1):
                if handle is not None and offset is not None:
                    step = f"{tool} page {number}"
                    arguments = {"output_handle": handle, "offset": int(offset)}
                    request = yield from self._call(step, "output_fetch", arguments, request)
                    offset = _find(_NEXT_OFFSET, self.seen.get(step, ()))
        if handles["network"] is not None:
            arguments = {"output_handle": handles["network"], "pattern": PATTERN}
            request = yield from self._call("search", "output_search", arguments, request)
        yield from self._call("picture", "screenshot", {"width": 80, "height": 60}, request)

    def _call(
        self, step: str, tool: str, arguments: Mapping[str, Any], request: Request
    ) -> Generator[Call, Request, Request]:
        """Call a tool, after a search for it if need be, and keep what the model sees then."""
        if tool not in self.known:
            request = yield from self._learn(tool, request)
        if tool in self.known:
            request = yield self._new_call(self._toolbox.call(tool, arguments, request))
            self.seen[step] = request.latest
        return request

    def _learn(self, tool: str, request: Request) -> Generator[Call, Request, Request]:
        """Find a tool in what the client lists, or by the search that the client offers."""
        search = None if self._toolbox.is_listed(tool, request) else self._toolbox.search(tool, request)
        if search:
            request = yield self._new_call(search)
        description = self._toolbox.describe(tool, request)
        if description is not None:
            self.known[tool] = description
        return request

    def _new_call(self, action: Action) -> Call:
        self._calls += 1
        return Call(f"call_{self._calls}", *action)


def _find(pattern: re.Pattern[str], parts: Sequence[Part]) -> str | None:
    """Return what a pattern matches first in the text that the model saw."""
    matches = (pattern.search(part) for part in parts if isinstance(part, str))
    return next((match[match.lastindex or 0] for match in matches if match), None)
