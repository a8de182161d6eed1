"""The tools that forebay adds to a server: what they say of themselves, and what they answer."""

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from forebay.arguments import shown
from forebay.errors import CapabilityDisabled, ForebayError, InvalidArgument, PathNotFound
from forebay.outputs import expand_tools as expanding
from forebay.outputs.capabilities import Capabilities, record_denial
from forebay.store import Store
from forebay.store.handles import handle_in
from forebay.store.pages import weigh
from forebay.store.payload import encoded

__all__ = ["Caller", "Tools", "error_result", "text_result"]

_log = logging.getLogger("forebay")

_READS = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}

_REFERENCES = (
    ' To hand an output or a file on without reading it, pass {"$handle": "oh_…", "path": "/rows/3"} or '
    '{"$file": "path"} as any argument of any other tool; beside it may be "encoding": "base64", '
    '"lines": [from, to) counted from 0, or "offset" and "length" in bytes.'
)
"""Said once, where who has a handle reads."""


def text_result(text: str | bytes, *, is_error: bool = False) -> dict[str, Any]:
    """A result of one text."""
    text = text if isinstance(text, str) else text.decode()
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def error_result(error: ForebayError, **more: Any) -> dict[str, Any]:
    """An error that a model can act on: a code and the next step, never a stack trace."""
    return text_result(orjson.dumps({**error.to_dict(), **more}), is_error=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """Who calls a tool of ours."""

    principal: str | None = None
    is_one_of_many: bool = False
    """Whether others who are nobody in particular either may call, too: then a handle is all that keeps them apart."""
    is_ascii: bool = False
    """Whether the transport escapes whatever is not ASCII."""
    tools: Sequence[Mapping[str, Any]] = ()
    """For `expand_tools`: all that the server lists to them, as it would be listed if none were hidden or denied."""
    expanded: set[str] | None = None
    """What their connection was shown of hidden tools; `None` where nothing lasts from one call to the next."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Tool:
    about: str
    properties: dict[str, dict[str, Any]]
    required: list[str]
    run: Callable[[Mapping[str, Any], Caller], bytes]


class Tools:
    """`output_fetch` and `output_search`, `journal` if it is switched on, `expand_tools` if there are hidden tools.

    Each of them is behind a prefix. No answer is larger than `most_bytes` on the wire, but for that of `expand_tools`.
    """

    def __init__(
        self,
        store: Store,
        *,
        prefix: str,
        journal: bool,
        most_bytes: int,
        capabilities: Capabilities | None = None,
        has_references: bool = False,
    ) -> None:
        self._store = store
        self._most_bytes = most_bytes
        self._capabilities = capabilities or Capabilities()
        self.prefix = prefix
        handle = {"type": "string", "description": "oh_…"}
        count = {"type": "integer", "minimum": 0}
        tools = {
            "output_fetch": _Tool(
                f"Read a stored large output by its output_handle, a page at a time. Go on with offset=next_offset "
                f"until eof; what was cut is read with read_with. Handles last {_duration(store.options.ttl)}."
                f"{_REFERENCES if has_references else ''}",
                {
                    "output_handle": handle,
                    "offset": {**count, "description": "from item, line or (text) byte"},
                    "limit": {"type": "integer", "minimum": 1},
                    "format": {"enum": ["auto", "items", "lines", "text", "bytes"]},
                    "path": {"type": "string", "description": "JSON Pointer to a value inside, like /rows/3"},
                    "fields": {"type": "array", "items": {"type": "string"}, "description": "of items: id, user.name"},
                },
                ["output_handle"],
                self._fetch,
            ),
            "output_search": _Tool(
                "Find text or a regex in a stored large output: where to fetch, by offset=item, or offset=line with "
                "format=lines.",
                {
                    "output_handle": handle,
                    "pattern": {"type": "string"},
                    "regex": {"type": "boolean"},
                    "ignore_case": {"type": "boolean"},
                    "start": {**count, "description": "next_start of the page before"},
                    "limit": {"type": "integer", "minimum": 1},
                },
                ["output_handle", "pattern"],
                self._search,
            ),
        }
        if journal:
            tools["journal"] = _Tool(
                "What happened to stored outputs: the last events, or sums.",
                {"action": {"enum": ["recent", "summary"]}, "count": {"type": "integer", "minimum": 1}},
                [],
                self._journal,
            )
        if self._capabilities.hides:
            tools["expand_tools"] = _Tool(expanding.ABOUT, expanding.PROPERTIES, [], self._expand)
        self._tools = {prefix + name: tool for name, tool in tools.items()}

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    @property
    def names(self) -> list[str]:
        """Without the prefix."""
        return [name.removeprefix(self.prefix) for name in self._tools]

    @property
    def fetch_with(self) -> str:
        """The tool that redeems a handle."""
        return f"{self.prefix}output_fetch"

    @property
    def expand_with(self) -> str | None:
        """The tool that shows hidden ones, if any are hidden."""
        return f"{self.prefix}expand_tools" if self._capabilities.hides else None

    def listed(self) -> list[dict[str, Any]]:
        """As `tools/list` has them."""
        return [
            {
                "name": name,
                "description": tool.about,
                "inputSchema": {
                    "type": "object",
                    "properties": tool.properties,
                    **({"required": tool.required} if tool.required else {}),
                },
                "annotations": _READS,
            }
            for name, tool in self._tools.items()
        ]

    def call(self, name: str, arguments: object, caller: Caller) -> dict[str, Any]:
        """The result of a call of one of them."""
        try:
            tool = self._tools[name]
            return text_result(tool.run(_checked(name, tool, arguments), caller))
        except ForebayError as error:
            return error_result(error)
        except Exception:
            _log.exception("forebay: %s failed", name)
            return error_result(ForebayError(f"{name} failed for a reason of its own; try other arguments"))

    def _fetch(self, arguments: Mapping[str, Any], caller: Caller) -> bytes:
        handle, rest = _taken(arguments)
        try:
            return self._store.fetch(handle, **rest, **self._within(caller)).to_json()
        except PathNotFound:
            if rest.get("fields") is not None:
                raise
            # Who asks here cannot ask for an outline.
            shape = self._store.outline(handle, principal=caller.principal)
            raise PathNotFound(f"nothing at path {shown(rest.get('path'))}; there is {shape}") from None

    def _search(self, arguments: Mapping[str, Any], caller: Caller) -> bytes:
        handle, rest = _taken(arguments)
        return self._store.search(handle, **rest, **self._within(caller)).to_json()

    def _within(self, caller: Caller) -> dict[str, Any]:
        # A page is a text in a message: it is escaped once.
        budget = {"max_bytes": self._most_bytes, "escape_levels": 1, "is_ascii": caller.is_ascii}
        return {**budget, "principal": caller.principal}

    def _journal(self, arguments: Mapping[str, Any], caller: Caller) -> bytes:
        action, count = arguments.get("action", "recent"), arguments.get("count", 50)
        journal, whose = self._store.journal, caller.principal
        if action == "summary":
            return orjson.dumps(journal.summary(principal=whose, is_operator=False))
        if action != "recent":
            raise InvalidArgument(f"action is recent or summary, not {action!r:.32}")
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise InvalidArgument(f"count is a number of events, at least 1, not {count!r:.32}")
        events = journal.recent(min(count, 1000), principal=whose, is_operator=False)
        if whose is None and caller.is_one_of_many:
            events = [{**event, "handle": _hidden(event.get("handle"))} for event in events]
        return self._fitting(events, caller)

    def _expand(self, arguments: Mapping[str, Any], caller: Caller) -> bytes:
        try:
            return encoded(expanding.expand(self._capabilities, arguments, caller.tools, caller.expanded))
        except CapabilityDisabled as error:
            record_denial(self._store.journal, error, caller.principal)
            raise

    def _fitting(self, events: list[dict[str, Any]], caller: Caller) -> bytes:
        """As many of the newest as there is room for."""
        room = self._most_bytes - 256
        lines: list[bytes] = []
        for event in map(orjson.dumps, events):
            room -= weigh(event, 1, is_ascii=caller.is_ascii) + 1
            if room < 0:
                break
            lines.append(event)
        return b"[" + b",".join(lines) + b"]"


def _hidden(handle: object) -> str | None:
    """A handle that nobody can redeem."""
    return f"{handle[:6]}…" if isinstance(handle, str) else None


def _checked(name: str, tool: _Tool, arguments: object) -> Mapping[str, Any]:
    if arguments is not None and not isinstance(arguments, Mapping):
        raise InvalidArgument(f"the arguments of {name} are an object")
    # Many clients send null for what they leave out.
    given = {key: value for key, value in (arguments or {}).items() if value is not None}
    unknown = [str(key) for key in given if key not in tool.properties]
    if unknown:
        # Only who is wrong waits for it to be imported.
        from forebay.arguments import meant

        hint = meant(unknown[0], tool.properties, f"it has {', '.join(tool.properties)}")
        raise InvalidArgument(f"{name} has no {', '.join(unknown)!r:.64}; {hint}")
    for needed in tool.required:
        if needed not in given:
            raise InvalidArgument(f"{name} needs {needed}")
    return given


def _taken(arguments: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    rest = dict(arguments)
    return handle_in(rest.pop("output_handle", "")), rest


def _duration(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:g} h"
    return f"{seconds:g} s"
