"""The tools and the resource template that forebay adds to a server."""

import bisect
import dataclasses
import functools
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args
from urllib.parse import parse_qsl, urlencode

import orjson

from forebay.arguments import did_you_mean, short_repr
from forebay.errors import CapabilityDisabled, ForebayError, InvalidArgument, PathNotFound
from forebay.outputs.capabilities import (
    EXPAND_DESCRIPTION,
    EXPAND_PROPERTIES,
    CapabilityFilter,
    expand_tools,
    record_denial,
)
from forebay.outputs.clients import UNKNOWN_CLIENT_BYTES
from forebay.outputs.export import ExportRoots, export_output
from forebay.outputs.result import RESOURCE_URI_PREFIX, Result, error_result, text_result
from forebay.query.duckdb_module import is_installed
from forebay.store import Store
from forebay.store.export import FORMATS
from forebay.store.handles import extract_handle
from forebay.store.pages import Format, PageRequest
from forebay.store.payload import encode, escaped_size
from forebay.store.queries import QueryRequest
from forebay.store.search import SearchRequest

__all__ = [
    "RESOURCE_TEMPLATE",
    "Caller",
    "OutputTools",
    "is_resource_uri",
    "read_resource",
]

_log = logging.getLogger("forebay")

_READ_ONLY = {"readOnlyHint": True}

_CREATES_FILES = {"destructiveHint": False}

_TOOL_META = {"anthropic/alwaysLoad": True}
"""Makes Claude Code load the reading tools at the start of a session. The model must search for the others."""

_READERS = ("output_fetch", "output_search", "output_query")
"""The tools that read outputs."""

_REFERENCES_HELP = (
    ' Other tools take arguments {"$handle":"oh_…","path":"/rows/3"}, {"$file":path}, {"$query":{handle,sql}}; '
    "lines:[from,to), offset, length, encoding:base64, patch:[JSON Patch]"
)
"""Appended to the description of `output_fetch`, which a model that got a handle will read."""

_MIN_ERROR_CHARS = 40
"""Minimum characters of a text in an error."""

_MAX_ERROR_CHARS = 1 << 16
"""Maximum characters of a text in an error."""

_MAX_EVENTS = 1000
"""Maximum number of events that `journal` returns."""

_EVENTS_MARGIN_BYTES = 256
"""Bytes of a page that the events of `journal` leave free."""


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """The client that calls one of our tools."""

    principal: str | None = None
    is_public: bool = False
    """Whether several anonymous clients may call this server. Then only unguessable handles protect their outputs."""
    is_ascii: bool = False
    """Whether the transport escapes non-ASCII characters."""
    max_page_bytes: int = UNKNOWN_CLIENT_BYTES
    """Maximum bytes of a page on the wire."""
    tools: Iterable[Any] = ()
    """For `expand_tools`: all tools that the server has for this client, hidden and denied ones included.

    The iterable may be iterated several times, and parse each tool when its turn comes.
    """
    expanded_tools: set[str] | None = None
    """The hidden tools that `expand_tools` has shown on this connection; `None` if there is no session."""

    @property
    def page_limits(self) -> dict[str, Any]:
        """The limits of a page, as arguments of a request."""
        # The page is a text inside a JSON message, so it is escaped once.
        return {"max_bytes": self.max_page_bytes, "escape_levels": 1, "is_ascii": self.is_ascii}


@dataclasses.dataclass(frozen=True, slots=True)
class _AddedTool:
    """The definition of one of our tools, and the method that runs it."""

    description: str
    properties: dict[str, dict[str, Any]]
    required: list[str]
    run: Callable[[Mapping[str, Any], Caller], bytes]
    annotations: Mapping[str, bool] = dataclasses.field(default_factory=lambda: _READ_ONLY)


class OutputTools:
    """`output_fetch` and `output_search`, `output_query` if DuckDB is installed, `output_export` and `journal` if they
    are enabled, and `expand_tools` if there are hidden tools.

    Each name begins with `prefix`. Results fit the caller's `max_page_bytes`, except those of `expand_tools`.
    """

    def __init__(
        self,
        store: Store,
        *,
        prefix: str,
        journal: bool,
        capabilities: CapabilityFilter | None = None,
        has_references: bool = False,
        export_roots: ExportRoots | None = None,
    ) -> None:
        self._store = store
        self._capabilities = capabilities or CapabilityFilter()
        self.prefix = prefix
        handle_schema = {"type": "string"}
        # The schema omits bounds to stay short; the error for a value out of bounds states them.
        integer_schema = {"type": "integer"}
        tools = {
            "output_fetch": _AddedTool(
                'Read pages of an output, or of items that match where={"status":"failed","user.age":{">":9}}, '
                'fields=["id"]. total counts matches: to count, limit=1. Go on with arguments in next; read_with reads '
                f"what was cut. Handles last {_format_duration(store.options.ttl)}."
                + (_REFERENCES_HELP if has_references else ""),
                {
                    "output_handle": handle_schema,
                    "offset": {**integer_schema, "description": "items, lines or UTF-8 bytes"},
                    "limit": integer_schema,
                    "format": {"enum": list(get_args(Format))},
                    "path": {"type": "string", "description": "JSON Pointer: /rows/3"},
                    "fields": {"type": "array", "items": {"type": "string"}},
                    "where": {
                        "type": "object",
                        "description": "also != < <= >= in exists matches (regex) contains (text or element)",
                    },
                },
                ["output_handle"],
                self._fetch,
            ),
            "output_search": _AddedTool(
                "Find or count text in an output as written; read a hit with output_fetch, offset=item or line "
                "(format=lines). regex: Rust syntax, no look-around, ^ $ at lines",
                {
                    "output_handle": handle_schema,
                    "pattern": {"type": "string"},
                    "regex": {"type": "boolean"},
                    "ignore_case": {"type": "boolean"},
                    "mode": {
                        "enum": ["text", "values"],
                        "description": "values: decoded JSON",
                    },
                    "count_only": {"type": "boolean"},
                    "fields": {"type": "array", "items": {"type": "string"}},
                    "context": integer_schema,
                    "offset": integer_schema,
                    "limit": integer_schema,
                },
                ["output_handle", "pattern"],
                self._search,
            ),
        }
        if is_installed():
            tools["output_query"] = _AddedTool(
                "Count, group or join in DuckDB SQL: table items, others by handle. SELECT user.name, count(*) FROM "
                "items GROUP BY 1. Lists: unnest(tags); map keys: _key",
                {"output_handle": handle_schema, "sql": {"type": "string"}},
                ["output_handle", "sql"],
                self._query,
            )
        if export_roots is not None:
            tools["output_export"] = _AddedTool(
                "Write an output to a file",
                {
                    "output_handle": handle_schema,
                    "path": {"type": "string"},
                    "format": {"enum": [name for name in FORMATS if name != "parquet" or is_installed()]},
                    "where": {"type": "object"},
                    "fields": {"type": "array", "items": {"type": "string"}},
                    **({"sql": {"type": "string"}} if is_installed() else {}),
                },
                ["output_handle"],
                functools.partial(self._export, export_roots),
                _CREATES_FILES,
            )
        if journal:
            tools["journal"] = _AddedTool(
                "Events of outputs",
                {"action": {"enum": ["recent", "summary"]}, "count": integer_schema},
                [],
                self._journal,
            )
        if self._capabilities.hides_tools:
            tools["expand_tools"] = _AddedTool(EXPAND_DESCRIPTION, EXPAND_PROPERTIES, [], self._expand)
        self.base_names = list(tools)
        """The names without the prefix."""
        self._tools = {prefix + name: tool for name, tool in tools.items()}
        self.names = self._tools.keys()
        self.fetch_tool = f"{prefix}output_fetch"
        self.search_tool = f"{prefix}output_search"
        self.query_tool = f"{prefix}output_query" if "output_query" in tools else None
        self.expand_tool = f"{prefix}expand_tools" if self._capabilities.hides_tools else None
        self.readers = {name: prefix + name for name in _READERS if name in tools}
        """The names of the tools that read outputs, by their names without the prefix."""

    def list_definitions(self) -> list[dict[str, Any]]:
        """Return the definitions for `tools/list`."""
        return [
            {
                "name": name,
                "description": tool.description,
                "inputSchema": {
                    "type": "object",
                    "properties": tool.properties,
                    **({"required": tool.required} if tool.required else {}),
                },
                "annotations": tool.annotations,
                **({"_meta": _TOOL_META} if name in self.readers.values() else {}),
            }
            for name, tool in self._tools.items()
        ]

    def call(self, name: str, arguments: object, caller: Caller) -> Result:
        """Call one of the tools and return its result; errors become error results."""
        shown_bytes = 0
        try:
            tool = self._tools[name]
            text = tool.run(_check_arguments(name, tool, arguments), caller)
            shown_bytes = len(text)
            return text_result(text)
        except ForebayError as error:
            return _fit_error(error, caller)
        except Exception:
            _log.exception("forebay: %s failed", name)
            return error_result(
                ForebayError(f"{name} failed with an internal error, which the server logged; other arguments may work")
            )
        finally:
            self._store.call_counts.add(name, caller.principal, calls=1, shown_bytes=shown_bytes)

    def _fetch(self, arguments: Mapping[str, Any], caller: Caller) -> bytes:
        handle, options = _split_handle(arguments)
        try:
            request = PageRequest(**options, **caller.page_limits)
            return self._store.fetch_page(handle, request, principal=caller.principal).to_json()
        except PathNotFound:
            if options.get("fields") is not None:
                raise
            # There is no tool that returns the outline, so the error includes it.
            outline = self._store.outline(handle, principal=caller.principal)
            raise PathNotFound(f"nothing at path {short_repr(options.get('path'))}; there is {outline}") from None

    def _search(self, arguments: Mapping[str, Any], caller: Caller) -> bytes:
        handle, options = _split_handle(arguments)
        request = SearchRequest(**options, **caller.page_limits)
        return self._store.search_page(handle, request, principal=caller.principal).to_json()

    def _query(self, arguments: Mapping[str, Any], caller: Caller) -> bytes:
        handle, options = _split_handle(arguments)
        request = QueryRequest(**options, **caller.page_limits)
        return self._store.query_page(handle, request, principal=caller.principal).to_json()

    def _export(self, roots: ExportRoots, arguments: Mapping[str, Any], caller: Caller) -> bytes:
        handle, options = _split_handle(arguments)
        return orjson.dumps(export_output(self._store, roots, handle, **options, principal=caller.principal))

    def _journal(self, arguments: Mapping[str, Any], caller: Caller) -> bytes:
        action, count = arguments.get("action", "recent"), arguments.get("count", 50)
        journal, principal = self._store.journal, caller.principal
        if action == "summary":
            return orjson.dumps(journal.summary(principal=principal, is_operator=False))
        if action != "recent":
            raise InvalidArgument(f"action is recent or summary, not {action!r:.32}")
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise InvalidArgument(f"count is a number of events, at least 1, not {count!r:.32}")
        events = journal.recent(min(count, _MAX_EVENTS), principal=principal, is_operator=False)
        if principal is None and caller.is_public:
            events = [{**event, "handle": _mask_handle(event.get("handle"))} for event in events]
        return self._fit_events(events, caller)

    def _expand(self, arguments: Mapping[str, Any], caller: Caller) -> bytes:
        try:
            return encode(expand_tools(self._capabilities, arguments, caller.tools, caller.expanded_tools))
        except CapabilityDisabled as error:
            record_denial(self._store.journal, error, caller.principal)
            raise

    def _fit_events(self, events: list[dict[str, Any]], caller: Caller) -> bytes:
        """Return the newest events that fit, as a JSON array."""
        remaining_bytes = caller.max_page_bytes - _EVENTS_MARGIN_BYTES
        lines: list[bytes] = []
        for event in map(orjson.dumps, events):
            remaining_bytes -= escaped_size(event, 1, is_ascii=caller.is_ascii) + 1
            if remaining_bytes < 0:
                break
            lines.append(event)
        return b"[" + b",".join(lines) + b"]"


def _fit_error(error: ForebayError, caller: Caller) -> Result:
    """Return an error result that is not larger than a page; long texts in it are cut."""

    def cut(value: Any, max_chars: int) -> Any:
        if isinstance(value, dict):
            return {key: cut(inner, max_chars) for key, inner in value.items()}
        return f"{value[:max_chars]}…" if isinstance(value, str) and len(value) > max_chars else value

    def build(max_chars: int) -> bytes:
        return orjson.dumps(cut(error.to_dict(), max_chars))

    def measure(max_chars: int) -> int:
        return escaped_size(build(max_chars), 1, is_ascii=caller.is_ascii)

    fitting = bisect.bisect_right(range(_MIN_ERROR_CHARS, _MAX_ERROR_CHARS), caller.max_page_bytes, key=measure)
    return text_result(build(_MIN_ERROR_CHARS + max(fitting - 1, 0)), is_error=True)


def _mask_handle(handle: object) -> str | None:
    """Return the start of a handle, too short to be used as one."""
    return f"{handle[:6]}…" if isinstance(handle, str) else None


def _check_arguments(name: str, tool: _AddedTool, arguments: object) -> Mapping[str, Any]:
    if arguments is not None and not isinstance(arguments, Mapping):
        raise InvalidArgument(f"the arguments of {name} must be a JSON object")
    # Many clients send null for arguments that they leave out.
    present = {key: value for key, value in (arguments or {}).items() if value is not None}
    unknown = [str(key) for key in present if key not in tool.properties]
    if unknown:
        hint = did_you_mean(unknown[0], tool.properties, f"it has {', '.join(tool.properties)}")
        raise InvalidArgument(f"{name} has no argument {', '.join(unknown)!r:.64}; {hint}")
    for required in tool.required:
        if required not in present:
            raise InvalidArgument(f"{name} needs {required}")
    return present


def _split_handle(arguments: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the handle and the other arguments."""
    options = dict(arguments)
    return extract_handle(options.pop("output_handle", "")), options


def _format_duration(seconds: float) -> str:
    return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds:g} s"


_NEXT_URI_BYTES = 160
"""Bytes reserved in a page for `next_uri`."""

RESOURCE_TEMPLATE = {
    "uriTemplate": f"{RESOURCE_URI_PREFIX}{{output_handle}}{{?offset,limit}}",
    "name": "stored_output",
    "description": "A page of a stored large output from offset on: of items, else bytes of text or binary",
}


def is_resource_uri(uri: object) -> bool:
    """Return whether a URI names a stored payload."""
    return isinstance(uri, str) and uri.startswith(RESOURCE_URI_PREFIX)


def read_resource(store: Store, uri: str, caller: Caller) -> dict[str, Any]:
    """Return the result of `resources/read`: the payload itself if it fits, else a page of it.

    A page is the JSON object that `output_fetch` returns, with the URI of the next page as `next_uri`. Many clients
    show a model only the text of a resource, so the text itself says that it is a page.
    """
    handle, _, query = uri.removeprefix(RESOURCE_URI_PREFIX).partition("?")
    options = _parse_query(query)
    limits = caller.page_limits
    # The URI is rebuilt because the one in the request may be arbitrarily long.
    page_uri = RESOURCE_URI_PREFIX + handle + ("?" + urlencode(options) if options else "")
    stored = store.stat(handle, principal=caller.principal)
    if not options and stored.size_bytes <= caller.max_page_bytes:
        whole_format: Format = "bytes" if stored.nature == "binary" else "text"
        page = store.fetch_page(handle, PageRequest(format=whole_format, **limits), principal=caller.principal)
        if page.eof:
            key = "blob" if page.encoding == "base64" else "text"
            return {"contents": [{"uri": page_uri, "mimeType": stored.mime_type, key: page.content}]}
    limits["max_bytes"] = caller.max_page_bytes - _NEXT_URI_BYTES
    page = store.fetch_page(handle, PageRequest(**options, **limits), principal=caller.principal)
    fields = page.to_dict()
    if page.next_offset is not None:
        next_options = {**options, "offset": page.next_offset}
        fields["next_uri"] = f"{RESOURCE_URI_PREFIX}{handle}?{urlencode(next_options)}"
    text = orjson.dumps(fields).decode()
    return {"contents": [{"uri": page_uri, "mimeType": "application/json", "text": text}]}


def _parse_query(query: str) -> dict[str, Any]:
    """Return the offset and limit of a resource URI."""
    options: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        is_number = value.isascii() and value.isdigit() and len(value) <= 18
        if name not in ("offset", "limit") or name in options or not is_number:
            raise InvalidArgument("a resource URI takes ?offset=N&limit=N, each a whole number")
        options[name] = int(value)
    return options
