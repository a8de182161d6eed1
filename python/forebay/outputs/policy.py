"""What every server has of forebay, whichever SDK it is written with: a store, modes, and tools."""

import contextlib
import inspect
import os
import re
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from forebay.arguments import short_repr
from forebay.errors import CapabilityDisabled, InvalidArgument
from forebay.outputs.capabilities import CORE, CapabilityFilter, get_tool_name, record_denial
from forebay.outputs.contract.context import ResponseContext
from forebay.outputs.contract.limits import ResponseLimits
from forebay.outputs.contract.rules import ContractRules, ToolContracts
from forebay.outputs.listing import ToolListing
from forebay.outputs.modes import Mode, OutputMode, ToolModes
from forebay.outputs.monitor import CONNECTION_LIMIT_BYTES, Monitor
from forebay.outputs.pipeline import Pipeline, ToolCall, response_budget
from forebay.outputs.references.reference import contains_references
from forebay.outputs.references.resolver import MAX_REFERENCE_BYTES, ReferenceResolver, to_objects
from forebay.outputs.result import Result
from forebay.outputs.tasks import TaskCalls
from forebay.outputs.tools import Caller, OutputTools, error_result
from forebay.store import Options, Store, open_store
from forebay.store.handles import SHORT_HANDLE_LENGTH
from forebay.store.options import check_handle_length
from forebay.store.pages import escaped_size
from forebay.store.payload import encode

__all__ = ["OutputPolicy", "ToolRules"]

ToolRules = Mapping[str, OutputMode | Mode | Mapping[str, Any]]
"""Modes of tools, by name or pattern."""

_CLASH_PREFIX = "forebay_"

_ENVELOPE_BYTES = 256
"""What of a message is not the page."""

_MIN_PAGE_BYTES = 1280
"""A page has to say where it is from, however little may go inline."""


_PREFIX_PATTERN = re.compile(r"[A-Za-z0-9._-]{0,64}")


class OutputPolicy:
    """The options of `Forebay` and of `ForebayMiddleware`, and what follows from them."""

    def __init__(
        self,
        store: Store | str | None = None,
        *,
        output_mode: OutputMode = "inline",
        output_inline_limit_bytes: int = 32768,
        tools: ToolRules | None = None,
        per_call: bool = False,
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
        **options: Any,
    ) -> None:
        if isinstance(store, Store) and options:
            raise InvalidArgument(f"this store is open already; give {', '.join(options)} to open_store")
        unknown = options.keys() - set(Options.__slots__)
        if unknown:
            known = ", ".join((*_OPTION_NAMES, *Options.__slots__))
            raise InvalidArgument(f"no such option: {', '.join(sorted(unknown))}; there are {known}")
        if not _PREFIX_PATTERN.fullmatch(prefix):
            raise InvalidArgument(f"a prefix is letters, digits, dots, dashes or underscores, not {short_repr(prefix)}")
        if handle_length is not None:
            check_handle_length(handle_length)
        if file_roots is not None and not file_refs:
            raise InvalidArgument("file_roots are where references may lead; say file_refs=True to have them")
        modes, contracts = ToolModes(Mode(output_mode, output_inline_limit_bytes), tools or {}), ToolContracts(contract)
        self._listing = ToolListing(modes, contracts, per_call=per_call, has_references=file_refs)
        self._prefix = prefix
        self._journal = journal
        self.capabilities = CapabilityFilter(
            tools_only=tools_only,
            disable_tools=disable_tools,
            capabilities=capabilities,
            hidden_tools=hidden_tools,
            default=default_capability,
            known=known_capabilities,
        )
        self._expanded: weakref.WeakKeyDictionary[object, set[str]] = weakref.WeakKeyDictionary()
        self.handle_length = handle_length
        self._inline_limit = output_inline_limit_bytes
        self._envelope_bytes = _ENVELOPE_BYTES
        self.owns_store = not isinstance(store, Store)
        self.store = store if isinstance(store, Store) else open_store(store, **options)
        try:
            self._references = (
                ReferenceResolver(self.store, file_roots, file_ref_max_bytes, secret_files) if file_refs else None
            )
        except BaseException:
            self.close()
            raise
        is_watched = journal or bool(contracts) if monitor is None else monitor
        self.monitor = Monitor(self.store.journal, connection_limit_bytes) if is_watched else None
        """Without a journal or a contract nobody asked, and a small result should cost next to nothing."""
        self._known_tools: dict[str, Mapping[str, Any]] = {}
        self._tools_lock = threading.Lock()
        self.tasks = TaskCalls()
        self.knows_tools = False
        """Until then a call cannot be understood: a tool of that name could be the server's own."""
        self._build_tools(prefix)

    @property
    def max_page_bytes(self) -> int:
        """What a page may weigh, so that its message is no larger than what goes inline."""
        return max(self._inline_limit - self._envelope_bytes, _MIN_PAGE_BYTES)

    def reserve_stamp(self, stamp: object) -> None:
        """For what every result of the newest version says of the server."""
        self._envelope_bytes = _ENVELOPE_BYTES + len(encode(stamp))
        self._build_tools(self.tools.prefix)

    def _build_tools(self, prefix: str) -> None:
        self.tools = OutputTools(
            self.store,
            prefix=prefix,
            journal=self._journal,
            max_bytes=self.max_page_bytes,
            capabilities=self.capabilities,
            has_references=self._references is not None,
        )
        self.pipeline = Pipeline(self.store, self.tools.fetch_tool)

    def learn_tools(self, tools: Iterable[Any], *, is_complete: bool = True) -> None:
        """Remembers what the server's own tools are; ours give way to one of the same name.

        They may be other ones for everyone: whatever was a tool's name once is never one of ours. What is listed and
        is no tool has no name, and is passed over.
        """
        tools = list(tools)
        with self._tools_lock:
            self._known_tools |= {name: tool for tool in tools if (name := get_tool_name(tool)) is not None}
            self.capabilities.learn_tools(tools, is_complete=is_complete)
            self.knows_tools = self.knows_tools or is_complete
            prefix = self._prefix
            while any(f"{prefix}{name}" in self._known_tools for name in self.tools.base_names):
                prefix = _CLASH_PREFIX + prefix
            if prefix != self.tools.prefix:
                self._build_tools(prefix)

    def input_schema(self, tool: str) -> Mapping[str, Any] | None:
        """What the server says a tool takes, once it is known."""
        schema = self._known_tools.get(tool, {}).get("inputSchema")
        return schema if isinstance(schema, Mapping) else None

    def must_list_tools(self, tool: str) -> bool:
        """Whether the server's tools are to be learnt before a call is understood: also one that it has since then."""
        return not self.knows_tools or (self.capabilities.is_active and not self.capabilities.knows_tool(tool))

    def list_visible(self, tools: Iterable[Any], expanded: Collection[str] = ()) -> list[Any]:
        """Those of the server's tools that are to be listed, and as they are to be.

        What is no tool is listed as it came, unless there is a filter: nobody knows what that would be for.
        """
        return self.rewrite_tools(tool for tool in tools if self._is_visible(get_tool_name(tool), expanded))

    def _is_visible(self, name: str | None, expanded: Collection[str]) -> bool:
        return not self.capabilities.is_active if name is None else self.capabilities.is_listed(name, expanded)

    def rewrite_tools(self, tools: Iterable[Any]) -> list[Any]:
        """Tools as they are to be listed, whether or not they are: those that may answer with a handle say so."""
        return [tool if get_tool_name(tool) is None else self._listing.rewrite_tool(tool) for tool in tools]

    def resolve_mode(self, tool: str, arguments: Mapping[str, Any]) -> tuple[Mode, Mapping[str, Any]]:
        """How a call is to be answered, and what the tool is to be called with."""
        return self._listing.resolve_mode(tool, self._known_tools.get(tool), arguments)

    @property
    def rewrites_arguments(self) -> bool:
        """Whether what a tool is called with may be something else than it is called with here."""
        return self._listing.per_call or self._references is not None

    def find_denial(self, tool: str) -> CapabilityDisabled | None:
        """Why a tool cannot be called, if it cannot; ours always can, so that no handle is stranded."""
        return None if tool in self.tools else self.capabilities.find_denial(tool)

    def refuse_disabled(self, tool: str, principal: str | None = None) -> Result | None:
        """What a call is answered with in place of being made, if its tool is switched off; the journal has it then."""
        if (error := self.find_denial(tool)) is None:
            return None
        record_denial(self.store.journal, error, principal)
        return error_result(error)

    def get_expanded(self, connection: object) -> set[str] | None:
        """What of the hidden tools a connection was shown; `None` without one that lasts."""
        return None if connection is None else self._expanded.setdefault(connection, set())

    def call_own_tool(self, arguments: object, caller: Caller, call: ToolCall) -> Result:
        """What a tool of ours answers; tools that `expand_tools` shows may be so many that it is a handle."""
        answer: Result = self.tools.call(call.tool, arguments, caller)
        mode = Mode("auto" if call.tool == self.tools.expand_tool else "inline", self._inline_limit)
        if self.pipeline.is_inline(answer, mode, is_ascii=call.is_ascii):
            return answer
        return self.pipeline.store_result(answer, call)

    def has_references(self, arguments: object) -> bool:
        """Whether a call is to be resolved before the tool sees it, which takes time."""
        return self._references is not None and contains_references(arguments)

    def resolve_references(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        principal: str | None = None,
        *,
        finish: Callable[[Any], Any] = to_objects,
    ) -> Any:
        """What a tool is to be called with: what the references in its arguments name, in place of them.

        `finish` says as what. Raises a `ForebayError`: then the tool must not be called.
        """
        if self._references is None:
            return arguments
        found = self._references.resolve(arguments, self.input_schema(tool), principal, tool=tool)
        return arguments if found is arguments else finish(found)

    def is_public(self, request: object) -> bool:
        """Whether strangers may call: over HTTP, unless whoever set it up makes do with short handles."""
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
        """Where tools store what they answer by the contract themselves."""
        most = None if limits is None else limits.max_bytes
        return ResponseContext(
            self.store, principal, handle_length, fetch_with or self.tools.fetch_tool, is_ascii, most
        )

    def record_response(
        self,
        tool: str,
        answer: object,
        mode: Mode | None = None,
        *,
        is_inline: bool = True,
        principal: str | None = None,
        connection: object = None,
        request_id: str | int | None = None,
        is_ascii: bool = False,
    ) -> None:
        """Notes how large an answer is, if anyone asked for that; what our own tools answer has no mode."""
        if self.monitor is None or not isinstance(answer, dict):
            return
        # An answer that cannot be written is its server's to complain of.
        with contextlib.suppress(TypeError, ValueError):
            message = {"jsonrpc": "2.0", "id": request_id, "result": answer}
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
        """The same of an answer whose size is known."""
        if self.monitor is not None:
            kind, budget = ("inline", self._inline_limit) if mode is None else response_budget(mode, is_inline)
            self.monitor.record(tool, size, mode=kind, budget=budget, principal=principal, connection=connection)

    def close(self) -> None:
        """Closes the store, if it was opened here."""
        if self.owns_store:
            self.store.close()


_OPTION_NAMES = [
    name for name, given in inspect.signature(OutputPolicy).parameters.items() if given.kind is given.KEYWORD_ONLY
]
