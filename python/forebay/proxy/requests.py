"""What becomes of a client's request: it is answered here, goes on changed, or goes on as it came."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from forebay.errors import ForebayError
from forebay.outputs import resources
from forebay.outputs.pipeline import Call
from forebay.outputs.policy import Gate
from forebay.outputs.references.resolved import as_fragments
from forebay.outputs.tasks import ASKING
from forebay.outputs.tools import Caller, error_result
from forebay.proxy.lists import parsed
from forebay.proxy.pending import Pending
from forebay.proxy.session import Session
from forebay.wire.lazy_json import written
from forebay.wire.lines import Kept
from forebay.wire.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    enveloped,
    error_message,
    is_modern,
    meta_of,
    result_message,
    version_of,
)

__all__ = ["Forwarded", "Requests", "call_of", "refused"]

_CHANGED = written({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})

_Params = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Forwarded:
    """A request that the server is to answer."""

    pending: Pending
    line: bytes | None = None
    """What it is sent, if not what came."""


class Requests:
    """Tells apart what is asked of the server and what is asked of forebay."""

    def __init__(
        self,
        gate: Gate,
        session: Session,
        stamp: dict[str, Any],
        all_tools: Callable[[Mapping[str, Any]], list[Any]],
    ) -> None:
        self._gate = gate
        self._session = session
        self._stamp = stamp
        self._all_tools = all_tools

    def needs_tools(self, method: str, params: _Params) -> bool:
        """Whether a request cannot be understood before it is known what tools the server has."""
        gate = self._gate
        if method == "tools/list":
            return gate.capabilities.is_filter and not gate.has_learnt
        if method != "tools/call" or not isinstance(params.get("name"), str):
            return False
        # Most calls are the server's own, whatever it lists.
        is_looked_at = gate.capabilities.is_filter or gate.looks_at_arguments or params["name"] in gate.tools
        return is_looked_at and gate.must_learn(params["name"])

    def takes_long(self, method: str, params: _Params) -> bool:
        """Whether others should not wait for it: it reads from the store, or from files."""
        if method == "tools/call" and isinstance(params.get("name"), str):
            return params["name"] in self._gate.tools or self._gate.looks_at_arguments
        return self._is_address(method, params)

    def _is_address(self, method: str, params: _Params) -> bool:
        return method == "resources/read" and resources.is_address(params.get("uri"))

    def __call__(self, request: dict[str, Any], line: Kept) -> list[bytes] | Forwarded:
        """What the client is told, or what goes on to the server."""
        method, params = request["method"], request.get("params")
        params = params if isinstance(params, dict) else {}
        pending = Pending(
            method,
            request["id"],
            version_of(params) or self._session.version,
            cursor=params.get("cursor"),
            token=meta_of(params).get("progressToken"),
        )
        try:
            if self._is_address(method, params):
                page = resources.read(self._gate.store, params["uri"], self._gate.most_bytes, None)
                return [self._answered(pending, page)]
            if method == "tools/call" and isinstance(params.get("name"), str):
                pending = dataclasses.replace(pending, tool=params["name"])
                if pending.tool in self._gate.tools:
                    return self._own(pending, params)
                return self._call(pending, line)
        except ForebayError as error:
            return [self.failed(pending, error)]
        if method in ASKING:
            tool, mode = self._gate.tasks.call_of(params) or ("", self._gate.mode_of("", {})[0])
            pending = dataclasses.replace(pending, tool=tool, mode=mode)
        return Forwarded(pending)

    def failed(self, pending: Pending, error: ForebayError, **more: Any) -> bytes:
        """The answer to a request that failed here: a model acts on a tool's error, a client on any other."""
        if pending.method == "tools/call":
            return self._answered(pending, error_result(error, **more))
        code = INVALID_PARAMS if isinstance(error, LookupError | ValueError) else INTERNAL_ERROR
        return error_message(pending.id, code, str(error), {**error.to_dict()["error"], **more})

    def _answered(self, pending: Pending, result: dict[str, Any]) -> bytes:
        return result_message(pending.id, enveloped(pending.method, result, pending.version, self._stamp))

    def _own(self, pending: Pending, params: dict[str, Any]) -> list[bytes]:
        """What a tool of ours answers; before it, that there are other tools now."""
        gate, caller = self._gate, Caller()
        if pending.tool == gate.tools.expand_with:
            lasting = None if is_modern(pending.version) else self._session
            tools = gate.relisted(self._all_tools(meta_of(params)))
            caller = dataclasses.replace(caller, tools=tools, expanded=gate.expanded(lasting))
        before = set(caller.expanded or ())
        answer = self._answered(pending, gate.called(params.get("arguments"), caller, call_of(pending, gate)))
        gate.watch_size(pending.tool, len(answer), connection=self._session)
        return [answer] if before == (caller.expanded or set()) else [_CHANGED, answer]

    def _call(self, pending: Pending, line: Kept) -> list[bytes] | Forwarded:
        gate = self._gate
        if (refusal := gate.refused(pending.tool)) is not None:
            return [self._answered(pending, refusal)]
        if not gate.looks_at_arguments:
            return Forwarded(dataclasses.replace(pending, mode=gate.mode_of(pending.tool, {})[0]))
        # All of it, and once more, so that what Python has no room for goes on as it came.
        request = parsed(line)
        given = request["params"].get("arguments")
        mode, arguments = gate.mode_of(pending.tool, given if isinstance(given, Mapping) else {})
        pending = dataclasses.replace(pending, mode=mode)
        if not isinstance(given, Mapping):
            return Forwarded(pending)
        if gate.has_references(arguments):
            arguments = gate.resolved(pending.tool, arguments, finish=as_fragments)
        if arguments is given:
            return Forwarded(pending)
        return Forwarded(pending, written({**request, "params": {**request["params"], "arguments": arguments}}))


def refused(message: Any) -> bytes | None:
    """Why a message is not let through where tools are filtered: what cannot be understood could be any call."""
    if not isinstance(message, dict):
        return error_message(None, PARSE_ERROR, "this is no message that can be read; tools are filtered here")
    if _is_understood(message):
        return None
    return error_message(message.get("id"), INVALID_REQUEST, "this cannot be understood; tools are filtered here")


def _is_understood(message: dict[str, Any]) -> bool:
    if _has_double(message, ("id", "method", "params")):
        return False
    if "method" not in message:
        return True
    method, params = message["method"], message.get("params", {})
    if not isinstance(method, str) or not isinstance(params, dict):
        return False
    return method != "tools/call" or (isinstance(params.get("name"), str) and not _has_double(params, ("name",)))


def _has_double(members: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Whether there is one of these in other letters, such as `Name`: some servers take that for it."""
    return any(key not in names and key.casefold() in names for key in members)


def call_of(pending: Pending, gate: Gate) -> Call:
    """What of a request its answer depends on."""
    return Call(
        tool=pending.tool or pending.method,
        protocol_version=pending.version,
        # Whatever it is, it is only written again.
        request_id=cast("str | int | None", pending.id),
        handle_length=gate.handle_length,
        contract=pending.mode.contract,
    )
