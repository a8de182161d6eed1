"""What every server has of forebay, whichever SDK it is written with: a store, modes, and tools."""

import contextlib
import inspect
import os
import re
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from forebay.arguments import shown
from forebay.errors import CapabilityDisabled, InvalidArgument
from forebay.outputs.capabilities import CORE, Capabilities, name_of, record_denial
from forebay.outputs.contract.context import Place
from forebay.outputs.contract.limits import ResponseLimits
from forebay.outputs.contract.rules import ContractRules, Contracts
from forebay.outputs.listing import Listing
from forebay.outputs.modes import Mode, Modes, OutputMode
from forebay.outputs.monitor import CONNECTION, Monitor
from forebay.outputs.pipeline import Call, Pipeline, kind_of
from forebay.outputs.references.reference import refers
from forebay.outputs.references.resolved import as_objects
from forebay.outputs.references.resolver import MOST_BYTES, References
from forebay.outputs.result import Result
from forebay.outputs.tasks import Tasks
from forebay.outputs.tools import Caller, Tools, error_result
from forebay.store import Options, Store, open_store
from forebay.store.handles import SHORT
from forebay.store.options import check_handle_length
from forebay.store.pages import weigh
from forebay.store.payload import encoded

__all__ = ["Gate", "ToolRules"]

ToolRules = Mapping[str, OutputMode | Mode | Mapping[str, Any]]
"""Modes of tools, by name or pattern."""

_ON_CLASH = "forebay_"

_ENVELOPE = 256
"""What of a message is not the page."""

_LEAST_PAGE = 1280
"""A page has to say where it is from, however little may go inline."""


_PREFIX = re.compile(r"[A-Za-z0-9._-]{0,64}")


class Gate:
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
        connection_limit_bytes: int = CONNECTION,
        handle_length: int | None = None,
        tools_only: Iterable[str] | None = None,
        disable_tools: Iterable[str] = (),
        capabilities: Mapping[str, str] | None = None,
        hidden_tools: Iterable[str] = (),
        default_capability: str | Callable[[str], str] = CORE,
        known_capabilities: Iterable[str] = (),
        file_refs: bool = False,
        file_roots: Iterable[str | os.PathLike[str]] | None = None,
        file_ref_max_bytes: int = MOST_BYTES,
        secret_files: Iterable[str | os.PathLike[str]] = (),
        **options: Any,
    ) -> None:
        if isinstance(store, Store) and options:
            raise InvalidArgument(f"this store is open already; give {', '.join(options)} to open_store")
        unknown = options.keys() - set(Options.__slots__)
        if unknown:
            known = ", ".join((*_OPTIONS, *Options.__slots__))
            raise InvalidArgument(f"no such option: {', '.join(sorted(unknown))}; there are {known}")
        if not _PREFIX.fullmatch(prefix):
            raise InvalidArgument(f"a prefix is letters, digits, dots, dashes or underscores, not {shown(prefix)}")
        if handle_length is not None:
            check_handle_length(handle_length)
        if file_roots is not None and not file_refs:
            raise InvalidArgument("file_roots are where references may lead; say file_refs=True to have them")
        modes, contracts = Modes(Mode(output_mode, output_inline_limit_bytes), tools or {}), Contracts(contract)
        self._listing = Listing(modes, contracts, per_call=per_call, has_references=file_refs)
        self._prefix = prefix
        self._journal = journal
        self.capabilities = Capabilities(
            tools_only=tools_only,
            disable_tools=disable_tools,
            capabilities=capabilities,
            hidden_tools=hidden_tools,
            default=default_capability,
            known=known_capabilities,
        )
        self._expanded: weakref.WeakKeyDictionary[object, set[str]] = weakref.WeakKeyDictionary()
        self.handle_length = handle_length
        self._limit = output_inline_limit_bytes
        self._envelope = _ENVELOPE
        self.owns_store = not isinstance(store, Store)
        self.store = store if isinstance(store, Store) else open_store(store, **options)
        try:
            self._references = (
                References(self.store, file_roots, file_ref_max_bytes, secret_files) if file_refs else None
            )
        except BaseException:
            self.close()
            raise
        is_watched = journal or bool(contracts) if monitor is None else monitor
        self.monitor = Monitor(self.store.journal, connection_limit_bytes) if is_watched else None
        """Without a journal or a contract nobody asked, and a small result should cost next to nothing."""
        self._listed: dict[str, Mapping[str, Any]] = {}
        self._learning = threading.Lock()
        self.tasks = Tasks()
        self.has_learnt = False
        """Until then a call cannot be understood: a tool of that name could be the server's own."""
        self._name(prefix)

    @property
    def most_bytes(self) -> int:
        """What a page may weigh, so that its message is no larger than what goes inline."""
        return max(self._limit - self._envelope, _LEAST_PAGE)

    def leave_room(self, stamp: object) -> None:
        """For what every result of the newest version says of the server."""
        self._envelope = _ENVELOPE + len(encoded(stamp))
        self._name(self.tools.prefix)

    def _name(self, prefix: str) -> None:
        self.tools = Tools(
            self.store,
            prefix=prefix,
            journal=self._journal,
            most_bytes=self.most_bytes,
            capabilities=self.capabilities,
            has_references=self._references is not None,
        )
        self.pipeline = Pipeline(self.store, self.tools.fetch_with)

    def learn(self, tools: Iterable[Any], *, is_all: bool = True) -> None:
        """Remembers what the server's own tools are; ours give way to one of the same name.

        They may be other ones for everyone: whatever was a tool's name once is never one of ours. What is listed and
        is no tool has no name, and is passed over.
        """
        tools = list(tools)
        with self._learning:
            self._listed |= {name: tool for tool in tools if (name := name_of(tool)) is not None}
            self.capabilities.learn(tools, is_all=is_all)
            self.has_learnt = self.has_learnt or is_all
            prefix = self._prefix
            while any(f"{prefix}{name}" in self._listed for name in self.tools.names):
                prefix = _ON_CLASH + prefix
            if prefix != self.tools.prefix:
                self._name(prefix)

    def input_schema_of(self, tool: str) -> Mapping[str, Any] | None:
        """What the server says a tool takes, once it is known."""
        schema = self._listed.get(tool, {}).get("inputSchema")
        return schema if isinstance(schema, Mapping) else None

    def must_learn(self, tool: str) -> bool:
        """Whether the server's tools are to be learnt before a call is understood: also one that it has since then."""
        return not self.has_learnt or (self.capabilities.is_filter and not self.capabilities.knows(tool))

    def listed(self, tools: Iterable[Any], expanded: Collection[str] = ()) -> list[Any]:
        """Those of the server's tools that are to be listed, and as they are to be.

        What is no tool is listed as it came, unless there is a filter: nobody knows what that would be for.
        """
        return self.relisted(tool for tool in tools if self._is_shown(name_of(tool), expanded))

    def _is_shown(self, name: str | None, expanded: Collection[str]) -> bool:
        return not self.capabilities.is_filter if name is None else self.capabilities.is_shown(name, expanded)

    def relisted(self, tools: Iterable[Any]) -> list[Any]:
        """Tools as they are to be listed, whether or not they are: those that may answer with a handle say so."""
        return [tool if name_of(tool) is None else self._listing.of(tool) for tool in tools]

    def mode_of(self, tool: str, arguments: Mapping[str, Any]) -> tuple[Mode, Mapping[str, Any]]:
        """How a call is to be answered, and what the tool is to be called with."""
        return self._listing.asked(tool, self._listed.get(tool), arguments)

    @property
    def looks_at_arguments(self) -> bool:
        """Whether what a tool is called with may be something else than it is called with here."""
        return self._listing.per_call or self._references is not None

    def denied(self, tool: str) -> CapabilityDisabled | None:
        """Why a tool cannot be called, if it cannot; ours always can, so that no handle is stranded."""
        return None if tool in self.tools else self.capabilities.denied(tool)

    def refused(self, tool: str, principal: str | None = None) -> Result | None:
        """What a call is answered with in place of being made, if its tool is switched off; the journal has it then."""
        if (error := self.denied(tool)) is None:
            return None
        record_denial(self.store.journal, error, principal)
        return error_result(error)

    def expanded(self, connection: object) -> set[str] | None:
        """What of the hidden tools a connection was shown; `None` without one that lasts."""
        return None if connection is None else self._expanded.setdefault(connection, set())

    def called(self, arguments: object, caller: Caller, call: Call) -> Result:
        """What a tool of ours answers; tools that `expand_tools` shows may be so many that it is a handle."""
        answer: Result = self.tools.call(call.tool, arguments, caller)
        mode = Mode("auto" if call.tool == self.tools.expand_with else "inline", self._limit)
        if self.pipeline.is_inline(answer, mode, is_ascii=call.is_ascii):
            return answer
        return self.pipeline.stored(answer, call)

    def has_references(self, arguments: object) -> bool:
        """Whether a call is to be resolved before the tool sees it, which takes time."""
        return self._references is not None and refers(arguments)

    def resolved(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        principal: str | None = None,
        *,
        finish: Callable[[Any], Any] = as_objects,
    ) -> Any:
        """What a tool is to be called with: what the references in its arguments name, in place of them.

        `finish` says as what. Raises a `ForebayError`: then the tool must not be called.
        """
        if self._references is None:
            return arguments
        found = self._references.resolve(arguments, self.input_schema_of(tool), principal, tool=tool)
        return arguments if found is arguments else finish(found)

    def is_open(self, request: object) -> bool:
        """Whether strangers may call: over HTTP, unless whoever set it up makes do with short handles."""
        return request is not None and self.handle_length != SHORT

    def place(
        self,
        principal: str | None,
        handle_length: int | None,
        *,
        is_ascii: bool = False,
        limits: ResponseLimits | None = None,
        fetch_with: str | None = None,
    ) -> Place:
        """Where tools store what they answer by the contract themselves."""
        most = None if limits is None else limits.max_bytes
        return Place(self.store, principal, handle_length, fetch_with or self.tools.fetch_with, is_ascii, most)

    def watch(
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
            size = weigh(encoded(message), 0, is_ascii=is_ascii)
            self.watch_size(tool, size, mode, is_inline=is_inline, principal=principal, connection=connection)

    def watch_size(
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
            kind, budget = ("inline", self._limit) if mode is None else kind_of(mode, is_inline)
            self.monitor.record(tool, size, mode=kind, budget=budget, principal=principal, connection=connection)

    def close(self) -> None:
        """Closes the store, if it was opened here."""
        if self.owns_store:
            self.store.close()


_OPTIONS = [name for name, given in inspect.signature(Gate).parameters.items() if given.kind is given.KEYWORD_ONLY]
