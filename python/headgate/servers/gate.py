"""What every server has of headgate, whichever SDK it is written with: a store, modes, and tools."""

import contextlib
import dataclasses
import functools
import inspect
import re
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from headgate.arguments import shown
from headgate.contract.limits import ResponseLimits
from headgate.contract.place import Place
from headgate.errors import InvalidArgument
from headgate.fetch import weigh
from headgate.handles import SHORT
from headgate.payload import encoded
from headgate.servers.contracts import CONTRACT_SCHEMA, ContractRules, Contracts
from headgate.servers.modes import ARGUMENTS, Mode, Modes, OutputMode, added_arguments, asked
from headgate.servers.monitor import CONNECTION, Monitor
from headgate.servers.pipeline import MESSAGE, Pipeline
from headgate.servers.schemas import or_else, or_handle
from headgate.servers.tools import Tools
from headgate.store import Options, Store, open_store
from headgate.store.options import check_handle_length

__all__ = ["Gate", "ToolRules"]

ToolRules = Mapping[str, OutputMode | Mode | Mapping[str, Any]]
"""Modes of tools, by name or pattern."""

_ON_CLASH = "headgate_"

_ENVELOPE = 256
"""What of a message is not the page."""

_MOST_MODES = 512
"""How many tools' modes are kept: callers make up names."""

_LEAST_PAGE = 1280
"""A page has to say where it is from, however little may go inline."""


_PREFIX = re.compile(r"[A-Za-z0-9._-]{0,64}")


class Gate:
    """The options of `Headgate` and of `HeadgateMiddleware`, and what follows from them."""

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
        default = Mode(output_mode, output_inline_limit_bytes)
        self._modes = Modes(default, tools or {})
        self._per_call = per_call
        self._prefix = prefix
        self._journal = journal
        self._contracts = Contracts(contract)
        self._mode_of = functools.lru_cache(_MOST_MODES)(self._looked_up)
        self.handle_length = handle_length
        self._limit = output_inline_limit_bytes
        self._envelope = _ENVELOPE
        self.owns_store = not isinstance(store, Store)
        self.store = store if isinstance(store, Store) else open_store(store, **options)
        is_watched = journal or bool(self._contracts) if monitor is None else monitor
        self.monitor = Monitor(self.store.journal, connection_limit_bytes) if is_watched else None
        """Without a journal or a contract nobody asked, and a small result should cost next to nothing."""
        self._listed: dict[str, Mapping[str, Any]] = {}
        self._learning = threading.Lock()
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
        self.tools = Tools(self.store, prefix=prefix, journal=self._journal, most_bytes=self.most_bytes)
        self.pipeline = Pipeline(self.store, self.tools.fetch_with)

    def learn(self, tools: Iterable[Mapping[str, Any]], *, is_all: bool = True) -> None:
        """Remembers what the server's own tools are; ours give way to one of the same name.

        They may be other ones for everyone: whatever was a tool's name once is never one of ours.
        """
        with self._learning:
            self._listed |= {str(tool.get("name")): tool for tool in tools}
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

    def listed(self, tools: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The server's tools as they are to be listed: those that may answer with a handle say so."""
        return [self._tool(dict(tool)) for tool in tools]

    def _tool(self, tool: dict[str, Any]) -> dict[str, Any]:
        name = str(tool.get("name"))
        mode = self._mode_of(name)
        may_ask = self._may_ask(tool)
        if may_ask:
            tool["inputSchema"] = added_arguments(tool.get("inputSchema") or {}, mode)
        schema = tool.get("outputSchema")
        if isinstance(schema, dict) and mode.contract is not None:
            tool["outputSchema"] = or_else(schema, CONTRACT_SCHEMA)
        elif isinstance(schema, dict) and (may_ask or mode.output_mode != "inline"):
            tool["outputSchema"] = or_handle(schema)
        return tool

    def _looked_up(self, tool: str) -> Mode:
        mode, limits = self._modes.of(tool), self._contracts.of(tool)
        return mode if limits is None else dataclasses.replace(mode, contract=limits)

    def _may_ask(self, tool: Mapping[str, Any]) -> bool:
        """Whether calls of a tool may choose its mode: not with a contract, or arguments of that name."""
        if self._contracts.of(str(tool.get("name"))) is not None:
            return False
        properties = (tool.get("inputSchema") or {}).get("properties") or {}
        return self._per_call and not any(name in properties for name in ARGUMENTS)

    def mode_of(self, tool: str, arguments: Mapping[str, Any]) -> tuple[Mode, Mapping[str, Any]]:
        """How a call is to be answered, and what the tool is to be called with."""
        mode = self._mode_of(tool)
        if not self._per_call:
            return mode, arguments
        # What is not known may have arguments of that name itself.
        listed = self._listed.get(tool)
        if listed is not None and any(name in arguments for name in ARGUMENTS) and self._may_ask(listed):
            return asked(mode, arguments)
        return mode, arguments

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
        kind, budget = ("inline", self._limit) if mode is None else _kind(mode, is_inline)
        # An answer that cannot be written is its server's to complain of.
        with contextlib.suppress(TypeError, ValueError):
            message = {"jsonrpc": "2.0", "id": request_id, "result": answer}
            size = weigh(encoded(message), 0, is_ascii=is_ascii)
            self.monitor.record(tool, size, mode=kind, budget=budget, principal=principal, connection=connection)

    def close(self) -> None:
        """Closes the store, if it was opened here."""
        if self.owns_store:
            self.store.close()


_OPTIONS = [name for name, given in inspect.signature(Gate).parameters.items() if given.kind is given.KEYWORD_ONLY]


def _kind(mode: Mode, is_inline: bool) -> tuple[str, int]:
    """What kind of an answer it is, and what it may weigh."""
    if mode.contract is not None:
        return "contract", mode.contract.max_bytes
    if not is_inline:
        return "handle", MESSAGE
    # Where nothing is ever stored, nobody chose a limit.
    return "inline", mode.output_inline_limit_bytes if mode.output_mode == "auto" else ResponseLimits().max_bytes
