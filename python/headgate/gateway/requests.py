"""What becomes of a client's request: it is answered here, goes on changed, or goes on as it came."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from headgate.errors import HeadgateError
from headgate.gateway.lines import Kept
from headgate.gateway.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    enveloped,
    error_message,
    meta_of,
    result_message,
    version_of,
)
from headgate.gateway.pending import Pending
from headgate.gateway.raw import taken_apart, written
from headgate.gateway.session import Session
from headgate.servers import resources
from headgate.servers.gate import Gate
from headgate.servers.tools import Caller, error_result

__all__ = ["Forwarded", "Requests"]

_ALL = 1 << 62


@dataclasses.dataclass(frozen=True, slots=True)
class Forwarded:
    """A request that the server is to answer."""

    pending: Pending
    line: bytes | None = None
    """What it is sent, if not what came."""


class Requests:
    """Tells apart what is asked of the server and what is asked of headgate."""

    def __init__(self, gate: Gate, session: Session, stamp: dict[str, Any]) -> None:
        self._gate = gate
        self._session = session
        self._stamp = stamp

    def needs_to_know(self, method: str, params: Mapping[str, Any]) -> bool:
        """Whether a call cannot be understood before the server's tools are known."""
        if method != "tools/call" or self._gate.has_learnt:
            return False
        return params.get("name") in self._gate.tools

    def takes_long(self, method: str, params: Mapping[str, Any]) -> bool:
        """Whether others should not wait for it: it reads from the store."""
        return self._is_own_call(method, params) or self._is_address(method, params)

    def _is_own_call(self, method: str, params: Mapping[str, Any]) -> bool:
        return method == "tools/call" and params.get("name") in self._gate.tools

    def _is_address(self, method: str, params: Mapping[str, Any]) -> bool:
        return method == "resources/read" and resources.is_address(params.get("uri"))

    def __call__(self, request: dict[str, Any], line: Kept) -> bytes | Forwarded:
        """The answer, or what goes on to the server."""
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
            if self._is_own_call(method, params):
                answer = self._answered(
                    pending, self._gate.tools.call(params["name"], params.get("arguments"), Caller())
                )
                self._gate.watch_size(params["name"], len(answer), connection=self._session)
                return answer
            if self._is_address(method, params):
                page = resources.read(self._gate.store, params["uri"], self._gate.most_bytes, None)
                return self._answered(pending, page)
            if method == "tools/call" and isinstance(params.get("name"), str):
                return self._call(pending, params, line)
        except HeadgateError as error:
            return self.failed(pending, error)
        return Forwarded(pending)

    def failed(self, pending: Pending, error: HeadgateError, **more: Any) -> bytes:
        """The answer to a request that failed here: a model acts on a tool's error, a client on any other."""
        if pending.method == "tools/call":
            return self._answered(pending, error_result(error, **more))
        code = INVALID_PARAMS if isinstance(error, LookupError | ValueError) else INTERNAL_ERROR
        return error_message(pending.id, code, str(error), {**error.to_dict()["error"], **more})

    def _answered(self, pending: Pending, result: dict[str, Any]) -> bytes:
        return result_message(pending.id, enveloped(pending.method, result, pending.version, self._stamp))

    def _call(self, pending: Pending, params: dict[str, Any], line: Kept) -> Forwarded:
        tool, given = params["name"], params.get("arguments")
        mode, arguments = self._gate.mode_of(tool, given if isinstance(given, Mapping) else {})
        pending = dataclasses.replace(pending, tool=tool, mode=mode)
        if arguments is given or not isinstance(given, Mapping):
            return Forwarded(pending)
        # Once more, so that what Python has no room for goes on as it came.
        request = taken_apart(line, most_string=_ALL, most_container=_ALL)
        return Forwarded(pending, written({**request, "params": {**request["params"], "arguments": arguments}}))
