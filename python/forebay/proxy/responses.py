"""What a client gets in place of a server's answer. `None` means the answer as it came: most of them."""

import dataclasses
import logging
import time
from collections.abc import Callable
from typing import Any

from forebay.outputs import resources
from forebay.outputs.listing import without_wrap
from forebay.outputs.policy import Gate
from forebay.outputs.tasks import ASKING, filled, result_in
from forebay.proxy.lists import parsed, with_ours
from forebay.proxy.pending import Pending
from forebay.proxy.requests import call_of
from forebay.proxy.session import Session
from forebay.wire.lazy_json import LazyJSON, parse_lazy, written
from forebay.wire.lines import Kept
from forebay.wire.messages import METHOD_NOT_FOUND, SERVER_INFO, enveloped, is_modern, next_cursor, result_message
from forebay.wire.spool import Spool

__all__ = ["Answers"]

_log = logging.getLogger("forebay")

_Whole = bytes | bytearray
_Step = Callable[[Pending, dict[str, Any], Kept], bytes | None]


class Answers:
    """Steps in where the answer to a request is not the client's as it is."""

    def __init__(self, gate: Gate, session: Session, stamp: dict[str, Any]) -> None:
        self._gate = gate
        self._session = session
        self._stamp = stamp
        self._steps: dict[str, _Step] = {
            "tools/call": self._call,
            **dict.fromkeys(ASKING, self._call),
            "tools/list": self._tools,
            "initialize": self._hello,
            "server/discover": self._hello,
            "resources/list": self._resources,
            "resources/templates/list": self._templates,
        }

    def __call__(self, pending: Pending, message: dict[str, Any], line: Kept) -> bytes | None:
        """What to send in place of `line`."""
        step = self._steps.get(pending.method)
        return None if step is None else step(pending, message, line)

    def _call(self, pending: Pending, message: dict[str, Any], line: Kept) -> bytes | None:
        whole, gate = message.get("result"), self._gate
        gate.tasks.note(whole, pending.tool, pending.mode)
        result = result_in(pending.method, whole)
        if not isinstance(result, dict | LazyJSON):
            return None

        def answered(answer: object) -> bytes:
            return written({**message, "result": self._stamped(filled(pending.method, whole, answer))})

        size = len(line) - len(written({**message, "result": filled(pending.method, whole, 0)})) + 1
        if gate.pipeline.is_inline(result, pending.mode, size=size):
            self._watch(pending, len(line), is_inline=True)
            return None
        started = time.perf_counter()
        result = result if isinstance(result, LazyJSON) else without_wrap(result)
        around = len(written(filled(pending.method, whole, 0))) - 1
        answer = gate.pipeline.stored(result, dataclasses.replace(call_of(pending, gate), around=around))
        if answer is result:
            return None
        made = answered(self._stamped(answer))
        _log.info(
            "forebay: %s answered %d bytes, of which the client gets %d (%.1f ms)",
            (pending.tool or pending.method)[:64],
            len(line),
            len(made),
            (time.perf_counter() - started) * 1e3,
        )
        self._watch(pending, len(made), is_inline=False)
        return made

    def _watch(self, pending: Pending, size: int, *, is_inline: bool) -> None:
        self._gate.watch_size(pending.tool, size, pending.mode, is_inline=is_inline, connection=self._session)

    def _tools(self, pending: Pending, message: dict[str, Any], line: Kept) -> bytes | None:
        found = self._listed(pending, message, line, "tools")
        if found is None:
            return None
        line, message = found
        theirs, gate = message["result"]["tools"], self._gate
        is_last = next_cursor(message["result"]) is None
        gate.learn(theirs, is_all=is_last and pending.cursor is None)
        expanded = () if is_modern(pending.version) else gate.expanded(self._session) or ()
        listed = gate.listed(theirs, expanded)
        return with_ours(line, message, "tools", listed, gate.tools.listed() if is_last else [])

    def _resources(self, pending: Pending, message: dict[str, Any], _line: Kept) -> bytes | None:
        # There is such a list now, if an empty one.
        return self._empty(pending, "resources") if _is_unknown(message) else None

    def _templates(self, pending: Pending, message: dict[str, Any], line: Kept) -> bytes | None:
        found = self._listed(pending, message, line, "resourceTemplates")
        if found is None:
            return None
        line, message = found
        result = message["result"]
        ours = [resources.TEMPLATE] if next_cursor(result) is None else []
        return with_ours(line, message, "resourceTemplates", result["resourceTemplates"], ours)

    def _listed(
        self, pending: Pending, message: dict[str, Any], line: Kept, key: str
    ) -> tuple[_Whole, dict[str, Any]] | None:
        """A page of a server's list, all of it parsed; an empty one where it has no such list."""
        whole = self._empty(pending, key) if _is_unknown(message) else _whole(line)
        message = parsed(whole)
        result = message.get("result")
        return (whole, message) if isinstance(result, dict) and isinstance(result.get(key), list) else None

    def _empty(self, pending: Pending, key: str) -> bytes:
        return result_message(pending.id, enveloped(pending.method, {key: []}, pending.version, self._stamp))

    def _hello(self, pending: Pending, message: dict[str, Any], line: Kept) -> bytes | None:
        """There are tools and resources now, whatever the server had before."""
        result = message.get("result")
        if not isinstance(result, dict):
            return None
        if pending.method == "initialize":
            self._session.is_agreed = True
            version = result.get("protocolVersion")
            self._session.version = version if isinstance(version, str) else self._session.version
        capabilities = result.get("capabilities")
        if not isinstance(capabilities, dict):
            return None
        added = {"tools": {}, "resources": {}, **capabilities}
        if self._gate.tools.expand_with is not None and pending.method == "initialize":
            added["tools"] = {**added["tools"], "listChanged": True}
        if added == capabilities:
            return None
        message = parse_lazy(line)
        return written({**message, "result": {**message["result"], "capabilities": added}})

    def _stamped(self, answer: Any) -> Any:
        """An answer that was made here does not say that the server made it."""
        meta = answer.get("_meta") if isinstance(answer, dict) else None
        if not isinstance(meta, dict) or SERVER_INFO not in meta:
            return answer
        return {**answer, "_meta": {**meta, SERVER_INFO: self._stamp}}


def _is_unknown(message: dict[str, Any]) -> bool:
    match message:
        case {"error": {"code": int(code)}}:
            return code == METHOD_NOT_FOUND
    return False


def _whole(line: Kept) -> _Whole:
    return b"".join(line.pieces()) if isinstance(line, Spool) else line
