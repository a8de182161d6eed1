"""The output policy of a server: options, store and tools, independent of the SDK."""

import contextlib
import functools
import inspect
import logging
import os
import re
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Concatenate, ParamSpec, cast

from forebay.arguments import check_integer, short_repr
from forebay.errors import CapabilityDisabled, InvalidArgument
from forebay.outputs.app.resource import ViewerApp
from forebay.outputs.capabilities import CORE, CapabilityFilter, get_tool_name, record_denial
from forebay.outputs.clients import UNKNOWN_CLIENT_BYTES, Client
from forebay.outputs.contract.context import ResponseContext
from forebay.outputs.contract.limits import ContractRules, ResponseLimits, ToolContracts
from forebay.outputs.export import ExportRoots
from forebay.outputs.known_tools import KnownTools, encode_definition
from forebay.outputs.modes import MODE_META_KEY, Mode, OutputMode, ToolListing, ToolModes
from forebay.outputs.monitor import CONNECTION_LIMIT_BYTES, Monitor
from forebay.outputs.pipeline import Pipeline, get_response_budget
from forebay.outputs.references.reference import contains_references
from forebay.outputs.references.resolver import MAX_REFERENCE_BYTES, ReferenceResolver, to_objects
from forebay.outputs.result import Result, error_result, exceeds_limit
from forebay.outputs.tasks import TaskCalls
from forebay.outputs.tool_call import ToolCall
from forebay.outputs.tools import Caller, OutputTools
from forebay.store import Options, Store, open_store
from forebay.store.handles import SHORT_HANDLE_LENGTH, check_handle_length
from forebay.store.payload import encode, escaped_size

__all__ = ["OutputPolicy", "ToolRules", "copy_parameters"]

_log = logging.getLogger("forebay")

ToolRules = Mapping[str, OutputMode | Mode | Mapping[str, Any]]
"""Modes of tools, by name or pattern."""

_CLASH_PREFIX = "forebay_"
"""Put before the names of our tools when the server has tools of the same names."""

_ENVELOPE_BYTES = 256
"""Bytes reserved for the JSON-RPC envelope around a page."""

_MIN_PAGE_BYTES = 1280
"""Lower bound of a page's size limit: the handle and position in a page need about this much."""

_NO_META: Mapping[str, Any] = {}

_has_suggested_auto = threading.Event()
"""Set once this process has logged that `output_mode="auto"` exists."""

_MAX_SERVER_NAME_LENGTH = 256

_PREFIX_PATTERN = re.compile(r"[A-Za-z0-9._-]{0,64}")

_P = ParamSpec("_P")


class OutputPolicy:
    """The options of `Forebay` and `ForebayMiddleware`, and the decisions that follow from them."""

    def __init__(
        self,
        store: Store | str | None = None,
        *,
        output_mode: OutputMode | None = None,
        output_inline_limit_bytes: int = 32768,
        image_mode: OutputMode = "inline",
        audio_mode: OutputMode = "inline",
        tools: ToolRules | None = None,
        per_call: bool = False,
        page_limit_bytes: int | None = None,
        resource_links: bool = False,
        server_name: str | None = None,
        prefix: str = "",
        journal: bool = False,
        contract: ContractRules = False,
        monitor: bool | None = None,
        connection_limit_bytes: int = CONNECTION_LIMIT_BYTES,
        handle_length: int | None = None,
        tools_only: Iterable[str] | None = None,
        disable_tools: Iterable[str] = (),
        capabilities: Mapping[str, str] | None = None,
        hidden_tools: Iterable[str] = (),
        default_capability: str | Callable[[str], str] = CORE,
        known_capabilities: Iterable[str] = (),
        file_refs: bool = False,
        file_roots: Iterable[str | os.PathLike[str]] | None = None,
        file_ref_max_bytes: int = MAX_REFERENCE_BYTES,
        secret_files: Iterable[str | os.PathLike[str]] = (),
        export_roots: Iterable[str | os.PathLike[str]] = (),
        **options: Any,
    ) -> None:
        if isinstance(store, Store) and options:
            raise InvalidArgument(f"this store is open already; give {', '.join(options)} to open_store")
        unknown = options.keys() - set(Options.__slots__)
        if unknown:
            known = ", ".join(dict.fromkeys((*_OPTION_NAMES, *Options.__slots__)))
            raise InvalidArgument(f"no such option: {', '.join(sorted(unknown))}; there are {known}")
        if not _PREFIX_PATTERN.fullmatch(prefix):
            raise InvalidArgument(f"a prefix is letters, digits, dots, dashes or underscores, not {short_repr(prefix)}")
        if server_name is not None and len(server_name) > _MAX_SERVER_NAME_LENGTH:
            # Every descriptor repeats it.
            raise InvalidArgument(f"server_name is at most {_MAX_SERVER_NAME_LENGTH} characters; pass a shorter one")
        if handle_length is not None:
            check_handle_length(handle_length)
        if page_limit_bytes is not None:
            check_integer("page_limit_bytes", page_limit_bytes, _MIN_PAGE_BYTES)
        if file_roots is not None and not file_refs:
            raise InvalidArgument("file_roots are where references may lead; say file_refs=True to have them")
        default_mode = Mode(
            output_mode or "inline", output_inline_limit_bytes, image_mode=image_mode, audio_mode=audio_mode
        )
        modes = ToolModes(default_mode, tools or {})
        contracts = ToolContracts(contract)
        self._listing = ToolListing(modes, contracts, has_mode_arguments=per_call, has_references=file_refs)
        self._has_no_mode = output_mode is None and not tools and not per_call and not contract
        self._prefix = prefix
        self._has_journal = journal
        self.capabilities = CapabilityFilter(
            tools_only=tools_only,
            disable_tools=disable_tools,
            capabilities=capabilities,
            hidden_tools=hidden_tools,
            default=default_capability,
            known_capabilities=known_capabilities,
        )
        self._is_filtering = self.capabilities.is_active
        self._expanded_tools: weakref.WeakKeyDictionary[object, set[str]] = weakref.WeakKeyDictionary()
        self.handle_length = handle_length
        self._inline_limit = output_inline_limit_bytes
        self._page_limit = page_limit_bytes
        self._has_links = resource_links
        self._server_name = server_name
        self._envelope_bytes = _ENVELOPE_BYTES
        self.owns_store = not isinstance(store, Store)
        self.store = store if isinstance(store, Store) else open_store(store, **options)
        self._resolver: ReferenceResolver | None = None
        self._export_roots: ExportRoots | None = None
        try:
            if file_refs:
                self._resolver = ReferenceResolver(self.store, file_roots, file_ref_max_bytes, secret_files)
            if export_roots:
                self._export_roots = ExportRoots(export_roots, self.store.folder)
        except BaseException:
            self.close()
            raise
        # Without a journal or contract the monitor is off by default, so that small results cost almost nothing.
        is_monitored = journal or bool(contracts) if monitor is None else monitor
        self.monitor = Monitor(self.store.journal, connection_limit_bytes) if is_monitored else None
        self._known_tools = KnownTools()
        self._tools_lock = threading.Lock()
        self.tasks = TaskCalls()
        self.knows_tools = False
        """Whether the server's tools are known; until then, our tools may clash with one of them."""
        self._build_tools(prefix)

    def get_max_page_bytes(self, client: Client | None) -> int:
        """Return the size limit of a page: what the client shows whole, and not more than goes inline."""
        if self._page_limit is not None:
            return self._page_limit
        client_limit = UNKNOWN_CLIENT_BYTES if client is None else client.max_result_bytes
        return max(min(self._inline_limit - self._envelope_bytes, client_limit), _MIN_PAGE_BYTES)

    def name_fetch_tool(self, client: Client | None) -> str | None:
        """Return the name that the model behind a client has for `output_fetch`, or `None` if the client is unknown."""
        return None if client is None else client.name_tool(self.tools.fetch_tool, self._server_name)

    @property
    def reading_note(self) -> str:
        """What a handle is, and which tools read it."""
        return (
            "A result that is too large is stored, and a JSON object with an output_handle comes in its place: read it "
            f"with {self.tools.fetch_tool}, find text in it with {self.tools.search_tool}"
            + (f", and count, group and join its items with {self.tools.query_tool}" if self.tools.query_tool else "")
            + "."
        )

    @property
    def handle_note(self) -> str:
        """What a handle is, for the end of the server's instructions."""
        return f"{self.reading_note} They are tools of this server."

    def extend_instructions(self, instructions: object) -> str:
        """Return the server's instructions with `handle_note` added."""
        has_own = isinstance(instructions, str) and instructions
        return f"{instructions}\n\n{self.handle_note}" if has_own else self.handle_note

    def reserve_server_info(self, server_info: object) -> None:
        """Reserve room in pages for the `serverInfo` that the server adds to every result."""
        self._envelope_bytes = _ENVELOPE_BYTES + len(encode(server_info))

    def _build_tools(self, prefix: str) -> None:
        self.tools = OutputTools(
            self.store,
            prefix=prefix,
            journal=self._has_journal,
            capabilities=self.capabilities,
            has_references=self._resolver is not None,
            export_roots=self._export_roots,
        )
        self.app = ViewerApp(self.tools.readers)
        self.pipeline = Pipeline(
            self.store,
            self.tools.fetch_tool,
            resource_links=self._has_links,
            has_export=self._export_roots is not None,
        )

    def learn_tools(self, tools: Iterable[Any], *, is_complete: bool = True) -> None:
        """Remember tools of the server, and rename our tools if the server has a tool of the same name.

        A name that the server once used is never used for our tools again. Entries without a name are ignored. Of very
        many tools, those that were listed longest ago are forgotten.
        """
        definitions: dict[str, bytes] = {}

        def encode_each() -> Iterator[Any]:
            # One tool at a time: `tools` may parse each when its turn comes, and all of them would take much memory.
            for tool in tools:
                if (name := get_tool_name(tool)) is not None:
                    definitions[name] = encode_definition(tool)
                yield tool

        with self._tools_lock:
            self.capabilities.learn_tools(encode_each(), is_complete=is_complete)
            self.capabilities.forget_tools(self._known_tools.add(definitions))
            self.knows_tools = self.knows_tools or is_complete
            prefix = self.tools.prefix
            while any(f"{prefix}{name}" in self._known_tools for name in self.tools.base_names):
                prefix = _CLASH_PREFIX + prefix
            if prefix != self.tools.prefix:
                self._build_tools(prefix)

    def get_input_schema(self, tool: str) -> Mapping[str, Any] | None:
        """Return the input schema of a tool, or `None` if it is not known."""
        schema = (self._known_tools.get(tool) or {}).get("inputSchema")
        return schema if isinstance(schema, Mapping) else None

    def must_list_tools(self, tool: str) -> bool:
        """Return whether the server's tools must be listed before a call of this tool is handled."""
        return not self.knows_tools or (self._is_filtering and not self.capabilities.knows_tool(tool))

    def list_visible(
        self, tools: Iterable[Any], expanded_tools: Collection[str] = (), *, shows_apps: bool = False
    ) -> list[Any]:
        """Return the rewritten definitions of the server's tools, without hidden and denied tools.

        Entries without a name are listed unchanged if there is no filter, and left out if there is one.
        """
        visible = (tool for tool in tools if self._is_visible(get_tool_name(tool), expanded_tools))
        return self.rewrite_tools(visible, shows_apps=shows_apps)

    def _is_visible(self, name: str | None, expanded_tools: Collection[str]) -> bool:
        return not self._is_filtering if name is None else self.capabilities.is_listed(name, expanded_tools)

    def rewrite_tools(self, tools: Iterable[Any], *, shows_apps: bool = False) -> list[Any]:
        """Return the rewritten definitions of the server's tools, including hidden and denied ones."""
        return [
            tool if get_tool_name(tool) is None else self._rewrite_tool(tool, shows_apps=shows_apps) for tool in tools
        ]

    def _rewrite_tool(self, tool: Mapping[str, Any], *, shows_apps: bool) -> dict[str, Any]:
        rewritten = self._listing.rewrite_tool(tool)
        # A host shows the app for every result of a tool, and there is nothing to view in one that goes inline.
        if shows_apps and self._listing.find_mode(tool["name"]).stores_all:
            return self.app.add_to_tool(rewritten)
        return rewritten

    def list_own_tools(self, *, shows_apps: bool = False) -> list[dict[str, Any]]:
        """Return the definitions of our tools for `tools/list`."""
        definitions = self.tools.list_definitions()
        if not shows_apps:
            return definitions
        return [self.app.add_to_tool(tool) if tool["name"] == self.tools.fetch_tool else tool for tool in definitions]

    def resolve_mode(
        self, tool: str, arguments: Mapping[str, Any], meta: Mapping[str, Any] = _NO_META, client: Client | None = None
    ) -> tuple[Mode, Mapping[str, Any]]:
        """Return the mode of a call, and the arguments to pass to the tool.

        `meta` is the request's `_meta`, which may choose the mode, too. In mode `auto`, a result goes inline only if
        the client shows it whole.
        """
        max_bytes = None if client is None or self._page_limit is not None else client.max_result_bytes
        mode, tool_arguments = self._listing.find_mode(tool, max_bytes), arguments
        if self._listing.has_mode_arguments:
            mode, tool_arguments = self._listing.choose_mode(mode, tool, self._known_tools.get, arguments)
        if meta and meta.get(MODE_META_KEY) == "inline":
            mode = mode.allow_inline()
        return mode, tool_arguments

    @property
    def rewrites_arguments(self) -> bool:
        """Whether arguments of calls may have to be changed before they are sent to the server."""
        return self._listing.has_mode_arguments or self._resolver is not None

    def find_denial(self, tool: str) -> CapabilityDisabled | None:
        """Return the error if a tool is denied, else `None`. Our own tools are never denied: handles stay readable."""
        if not self._is_filtering or tool in self.tools.names:
            return None
        return self.capabilities.find_denial(tool)

    def refuse_disabled(self, tool: str, principal: str | None = None) -> Result | None:
        """Record a call of a denied tool and return its error result; return `None` if the tool is allowed."""
        if (error := self.find_denial(tool)) is None:
            return None
        record_denial(self.store.journal, error, principal)
        return error_result(error)

    def count_call(self, tool: str, principal: str | None = None) -> None:
        """Count a call of one of the server's tools, for `forebay stats`."""
        self.store.call_counts.add(tool, principal, calls=1)

    def get_expanded_tools(self, connection: object) -> set[str] | None:
        """Return the hidden tools that `expand_tools` has shown to a connection, or `None` without a connection."""
        return None if connection is None else self._expanded_tools.setdefault(connection, set())

    def call_own_tool(self, arguments: object, caller: Caller, call: ToolCall) -> Result:
        """Call one of our tools. A large result of `expand_tools` becomes a handle."""
        result = self.tools.call(call.tool, arguments, caller)
        mode = Mode("auto" if call.tool == self.tools.expand_tool else "inline", self._inline_limit)
        if self.pipeline.is_inline(result, mode, call):
            return result
        return self.pipeline.store_result(result, call)

    def has_references(self, arguments: object) -> bool:
        """Return whether arguments contain references that must be resolved. Resolving them may read files."""
        return self._resolver is not None and contains_references(arguments)

    def resolve_references(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        principal: str | None = None,
        *,
        convert: Callable[[Any], Any] = to_objects,
    ) -> Any:
        """Return the arguments with each reference replaced by its content, converted by `convert`.

        Raises a `ForebayError` if a reference cannot be resolved; the tool must not be called then.
        """
        if self._resolver is None:
            return arguments
        resolved = self._resolver.resolve(arguments, self.get_input_schema(tool), principal, tool=tool)
        return arguments if resolved is arguments else convert(resolved)

    def needs_long_handles(self, request: object) -> bool:
        """Return whether handles must be hard to guess: over HTTP, unless the operator chose short handles."""
        return request is not None and self.handle_length != SHORT_HANDLE_LENGTH

    def make_context(
        self,
        principal: str | None,
        handle_length: int | None,
        *,
        is_ascii: bool = False,
        limits: ResponseLimits | None = None,
        fetch_with: str | None = None,
    ) -> ResponseContext:
        """Return the context for tools that call `wrap_response` themselves."""
        max_bytes = None if limits is None else limits.max_bytes
        fetch_tool = fetch_with or self.tools.fetch_tool
        return ResponseContext(self.store, principal, handle_length, fetch_tool, is_ascii, max_bytes)

    @property
    def suggests_auto(self) -> bool:
        """Whether `suggest_auto` must see results that go inline."""
        return self._has_no_mode and not _has_suggested_auto.is_set()

    def suggest_auto(self, tool: str, result: Result, *, is_ascii: bool = False) -> None:
        """Log once per process that a large result was sent inline because no mode was chosen."""
        if not self.suggests_auto:
            return
        # The server itself reports a result that cannot be serialized.
        with contextlib.suppress(TypeError, ValueError):
            if exceeds_limit(result, self._inline_limit, is_ascii=is_ascii):
                _has_suggested_auto.set()
                _log.warning(
                    "forebay: a result of %.64s with more than %s bytes was sent inline; "
                    'with output_mode="auto" it would be stored, and the client would get a handle of at most 4 KB',
                    tool,
                    f"{self._inline_limit:,}",
                )

    def record_response(
        self,
        tool: str,
        result: object,
        mode: Mode | None = None,
        *,
        is_inline: bool = True,
        principal: str | None = None,
        connection: object = None,
        request_id: str | int | None = None,
        is_ascii: bool = False,
    ) -> None:
        """Record the size of a response, if there is a monitor. Results of our own tools have no mode."""
        if self.monitor is None or not isinstance(result, dict):
            return
        # The server itself reports a result that cannot be serialized.
        with contextlib.suppress(TypeError, ValueError):
            message = {"jsonrpc": "2.0", "id": request_id, "result": result}
            size = escaped_size(encode(message), 0, is_ascii=is_ascii)
            self.record_size(tool, size, mode, is_inline=is_inline, principal=principal, connection=connection)

    def record_size(
        self,
        tool: str,
        size: int,
        mode: Mode | None = None,
        *,
        is_inline: bool = True,
        principal: str | None = None,
        connection: object = None,
    ) -> None:
        """Record a response of this size, if there is a monitor."""
        if self.monitor is not None:
            mode_name, budget = ("inline", self._inline_limit) if mode is None else get_response_budget(mode, is_inline)
            self.monitor.record(tool, size, mode=mode_name, budget=budget, principal=principal, connection=connection)

    def close(self) -> None:
        """Close the store, unless it was passed in by the caller."""
        if self.owns_store:
            self.store.close()


_OPTION_NAMES = [
    name
    for name, parameter in inspect.signature(OutputPolicy).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY
]


def copy_parameters(
    source: Callable[_P, object],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, _P], None]]:
    """Return a decorator that gives an `__init__` the parameters of another class, for type checkers and `inspect`."""
    init: Any = cast("Any", source).__init__
    return cast("Callable[[Callable[..., None]], Callable[Concatenate[Any, _P], None]]", functools.wraps(init))
