"""The tools that forebay adds to a server: what they say of themselves, and what they answer."""

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode

import orjson

from forebay.arguments import short_repr
from forebay.errors import CapabilityDisabled, ForebayError, InvalidArgument, PathNotFound
from forebay.outputs.capabilities import (
    EXPAND_DESCRIPTION,
    EXPAND_PROPERTIES,
    CapabilityFilter,
    expand_tools,
    record_denial,
)
from forebay.store import Store
from forebay.store.handles import Descriptor, extract_handle
from forebay.store.pages import escaped_size
from forebay.store.payload import encode
from forebay.store.principals import Principal

__all__ = [
    "RESOURCE_TEMPLATE",
    "Caller",
    "OutputTools",
    "error_result",
    "is_resource_uri",
    "make_resource_link",
    "read_resource",
    "text_result",
]

_log = logging.getLogger("forebay")

_READ_ONLY = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}

_REFERENCES_HELP = (
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
    is_public: bool = False
    """Whether others who are nobody in particular either may call, too: then a handle is all that keeps them apart."""
    is_ascii: bool = False
    """Whether the transport escapes whatever is not ASCII."""
    tools: Sequence[Mapping[str, Any]] = ()
    """For `expand_tools`: all that the server lists to them, as it would be listed if none were hidden or denied."""
    expanded_tools: set[str] | None = None
    """What their connection was shown of hidden tools; `None` where nothing lasts from one call to the next."""


@dataclasses.dataclass(frozen=True, slots=True)
class _AddedTool:
    description: str
    properties: dict[str, dict[str, Any]]
    required: list[str]
    run: Callable[[Mapping[str, Any], Caller], bytes]


class OutputTools:
    """`output_fetch` and `output_search`, `journal` if it is switched on, `expand_tools` if there are hidden tools.

    Each of them is behind a prefix. No answer is larger than `most_bytes` on the wire, but for that of `expand_tools`.
    """

    def __init__(
        self,
        store: Store,
        *,
        prefix: str,
        journal: bool,
        max_bytes: int,
        capabilities: CapabilityFilter | None = None,
        has_references: bool = False,
    ) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._capabilities = capabilities or CapabilityFilter()
        self.prefix = prefix
        handle = {"type": "string", "description": "oh_…"}
        count = {"type": "integer", "minimum": 0}
        tools = {
            "output_fetch": _AddedTool(
                f"Read a stored large output by its output_handle, a page at a time. Go on with offset=next_offset "
                f"until eof; what was cut is read with read_with. Handles last {_format_duration(store.options.ttl)}."
                f"{_REFERENCES_HELP if has_references else ''}",
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
            "output_search": _AddedTool(
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
            tools["journal"] = _AddedTool(
                "What happened to stored outputs: the last events, or sums.",
                {"action": {"enum": ["recent", "summary"]}, "count": {"type": "integer", "minimum": 1}},
                [],
                self._journal,
            )
        if self._capabilities.hides_tools:
            tools["expand_tools"] = _AddedTool(EXPAND_DESCRIPTION, EXPAND_PROPERTIES, [], self._expand)
        self._tools = {prefix + name: tool for name, tool in tools.items()}

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    @property
    def base_names(self) -> list[str]:
        """Without the prefix."""
        return [name.removeprefix(self.prefix) for name in self._tools]

    @property
    def fetch_tool(self) -> str:
        """The tool that redeems a handle."""
        return f"{self.prefix}output_fetch"

    @property
    def expand_tool(self) -> str | None:
        """The tool that shows hidden ones, if any are hidden."""
        return f"{self.prefix}expand_tools" if self._capabilities.hides_tools else None

    def list_definitions(self) -> list[dict[str, Any]]:
        """As `tools/list` has them."""
        return [
            {
                "name": name,
                "description": tool.description,
                "inputSchema": {
                    "type": "object",
                    "properties": tool.properties,
                    **({"required": tool.required} if tool.required else {}),
                },
                "annotations": _READ_ONLY,
            }
            for name, tool in self._tools.items()
        ]

    def call(self, name: str, arguments: object, caller: Caller) -> dict[str, Any]:
        """The result of a call of one of them."""
        try:
            tool = self._tools[name]
            return text_result(tool.run(_check_arguments(name, tool, arguments), caller))
        except ForebayError as error:
            return error_result(error)
        except Exception:
            _log.exception("forebay: %s failed", name)
            return error_result(ForebayError(f"{name} failed for a reason of its own; try other arguments"))

    def _fetch(self, arguments: Mapping[str, Any], caller: Caller) -> bytes:
        handle, rest = _pop_handle(arguments)
        try:
            return self._store.fetch(handle, **rest, **self._page_options(caller)).to_json()
        except PathNotFound:
            if rest.get("fields") is not None:
                raise
            # Who asks here cannot ask for an outline.
            shape = self._store.outline(handle, principal=caller.principal)
            raise PathNotFound(f"nothing at path {short_repr(rest.get('path'))}; there is {shape}") from None

    def _search(self, arguments: Mapping[str, Any], caller: Caller) -> bytes:
        handle, rest = _pop_handle(arguments)
        return self._store.search(handle, **rest, **self._page_options(caller)).to_json()

    def _page_options(self, caller: Caller) -> dict[str, Any]:
        # A page is a text in a message: it is escaped once.
        budget = {"max_bytes": self._max_bytes, "escape_levels": 1, "is_ascii": caller.is_ascii}
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
        if whose is None and caller.is_public:
            events = [{**event, "handle": _mask_handle(event.get("handle"))} for event in events]
        return self._fit_events(events, caller)

    def _expand(self, arguments: Mapping[str, Any], caller: Caller) -> bytes:
        try:
            return encode(expand_tools(self._capabilities, arguments, caller.tools, caller.expanded_tools))
        except CapabilityDisabled as error:
            record_denial(self._store.journal, error, caller.principal)
            raise

    def _fit_events(self, events: list[dict[str, Any]], caller: Caller) -> bytes:
        """As many of the newest as there is room for."""
        room = self._max_bytes - 256
        lines: list[bytes] = []
        for event in map(orjson.dumps, events):
            room -= escaped_size(event, 1, is_ascii=caller.is_ascii) + 1
            if room < 0:
                break
            lines.append(event)
        return b"[" + b",".join(lines) + b"]"


def _mask_handle(handle: object) -> str | None:
    """A handle that nobody can redeem."""
    return f"{handle[:6]}…" if isinstance(handle, str) else None


def _check_arguments(name: str, tool: _AddedTool, arguments: object) -> Mapping[str, Any]:
    if arguments is not None and not isinstance(arguments, Mapping):
        raise InvalidArgument(f"the arguments of {name} are an object")
    # Many clients send null for what they leave out.
    given = {key: value for key, value in (arguments or {}).items() if value is not None}
    unknown = [str(key) for key in given if key not in tool.properties]
    if unknown:
        # Only who is wrong waits for it to be imported.
        from forebay.arguments import did_you_mean

        hint = did_you_mean(unknown[0], tool.properties, f"it has {', '.join(tool.properties)}")
        raise InvalidArgument(f"{name} has no {', '.join(unknown)!r:.64}; {hint}")
    for needed in tool.required:
        if needed not in given:
            raise InvalidArgument(f"{name} needs {needed}")
    return given


def _pop_handle(arguments: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    rest = dict(arguments)
    return extract_handle(rest.pop("output_handle", "")), rest


def _format_duration(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:g} h"
    return f"{seconds:g} s"


_URI_PREFIX = "forebay://output/"

RESOURCE_TEMPLATE = {
    "uriTemplate": f"{_URI_PREFIX}{{output_handle}}{{?offset,limit}}",
    "name": "stored_output",
    "description": "A page of a stored large output from offset on: of items, else bytes of text or binary",
}


def make_resource_link(descriptor: Descriptor) -> dict[str, Any]:
    """A block that leads to a stored payload."""
    return {
        "type": "resource_link",
        "uri": _URI_PREFIX + descriptor.output_handle,
        "name": descriptor.output_handle,
        "mimeType": descriptor.mime_type,
        "size": descriptor.size_bytes,
    }


def is_resource_uri(uri: object) -> bool:
    """Whether it is ours to read."""
    return isinstance(uri, str) and uri.startswith(_URI_PREFIX)


def read_resource(
    store: Store, uri: str, max_bytes: int, principal: Principal, *, is_ascii: bool = False
) -> dict[str, Any]:
    """The result of `resources/read`: a page, and in its `_meta` what it is and where the next one starts."""
    address, _, query = uri.removeprefix(_URI_PREFIX).partition("?")
    asked = _parse_query(query)
    page = store.fetch(address, **asked, max_bytes=max_bytes, escape_levels=1, is_ascii=is_ascii, principal=principal)
    mime_type = "application/json" if page.encoding == "json" else store.stat(address, principal=principal).mime_type
    about = {name: getattr(page, name) for name in ("offset", "returned", "total", "next_offset", "eof", "format")}
    if page.encoding == "base64" and not (page.eof and page.offset == 0):
        # Part of a picture is none.
        mime_type = "application/octet-stream"
    content = {"blob": page.content} if page.encoding == "base64" else {"text": _to_text(page.content)}
    # Not as it was asked for: that may be of any length.
    place = _URI_PREFIX + address + ("?" + urlencode(asked) if asked else "")
    return {"contents": [{"uri": place, "mimeType": mime_type, **content, "_meta": {"forebay/page": about}}]}


def _to_text(content: bytes | str) -> str:
    return content if isinstance(content, str) else content.decode()


def _parse_query(query: str) -> dict[str, Any]:
    """Offset and limit; anything else is not asked for this way."""
    asked: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if (
            name not in ("offset", "limit")
            or name in asked
            or not (value.isascii() and value.isdigit())
            or len(value) > 18
        ):
            raise InvalidArgument("an address takes ?offset=N&limit=N, each a whole number")
        asked[name] = int(value)
    return asked
