"""Inline, handle or auto: the one place where it is decided what a client gets of a result."""

import dataclasses
import logging
from collections.abc import Sequence
from typing import Any

import orjson

from headgate import _core
from headgate.contract.place import Place
from headgate.errors import HeadgateError, RedactionFailed
from headgate.handles import Descriptor
from headgate.servers.contracts import Contracts, by_contract
from headgate.servers.modes import Mode
from headgate.servers.resources import link
from headgate.servers.result import Found, Result, exceeds, own_meta, payload_of
from headgate.servers.tools import error_result, text_result
from headgate.store import Store

__all__ = ["MESSAGE", "Call", "Pipeline"]

_log = logging.getLogger("headgate")

MESSAGE = 4096
"""What a message with a descriptor may weigh, whole."""

_VIEW = 1024
"""How much is shown of what could not be stored."""

_MOST_META = 512
"""How much of a message a tool's own `_meta` may take; more of it is stored with the rest."""

_LESS: tuple[dict[str, Any], ...] = ({}, {"outline": None}, {"outline": None, "items_path": None})
"""What a descriptor can do without, where even without a preview it is too long."""

_HAS_LINKS = "2025-06-18"
"""The first version of the protocol with `resource_link`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """What of a `tools/call` its answer depends on, beside the result."""

    tool: str
    principal: str | None = None
    protocol_version: str = "2025-11-25"
    request_id: str | int | None = None
    handle_length: int | None = None
    made: Sequence[str] = ()
    """What the tool answered by the contract itself."""


class Pipeline:
    """Puts what is too large into the store, and a descriptor in its place."""

    def __init__(self, store: Store, fetch_with: str, contracts: Contracts | None = None) -> None:
        self._store = store
        self._fetch_with = fetch_with
        self._contracts = contracts or Contracts(False)

    def is_inline(self, result: Result, mode: Mode) -> bool:
        """Whether a result goes to the client as it is: most do, and cost no more than this."""
        if not isinstance(result.get("content"), list):
            return True
        if mode.output_mode == "inline" or mode.contract is not None:
            return mode.contract is None
        return mode.output_mode == "auto" and not exceeds(result, mode.output_inline_limit_bytes)

    def stored(self, result: Result, call: Call) -> Result:
        """What a client gets in place of a result: what it is, and how to read it."""
        keeps_meta = len(orjson.dumps(own_meta(result))) <= _MOST_META
        found = payload_of(result, with_meta=not keeps_meta)
        kept = _protocol_s(result, keeps_meta)
        limits = self._contracts.of(call.tool)
        if limits is not None:
            place = Place(self._store, call.principal, call.handle_length, self._fetch_with)
            return by_contract(found, result, kept, call, limits, place)
        try:
            descriptor = self._store.put(
                found.payload,
                mime_type=found.mime_type,
                source_tool=call.tool[:1024],
                principal=call.principal,
                handle_length=call.handle_length,
            )
        except HeadgateError as error:
            _log.warning("headgate: the result of %.64s was not stored: %s", call.tool, error)
            return {**_not_stored(error, found), **kept}
        descriptor = dataclasses.replace(descriptor, fetch_with=self._fetch_with)
        return _fitted(descriptor, result, kept, call)


def _protocol_s(result: Result, keeps_meta: bool) -> dict[str, Any]:
    """What of a result is about the protocol, and stays."""
    kept: dict[str, Any] = {key: result[key] for key in ("resultType", "_meta") if key in result}
    if not keeps_meta:
        own = own_meta(result)
        kept["_meta"] = {key: value for key, value in result["_meta"].items() if key not in own}
    return kept


def _not_stored(error: HeadgateError, found: Found) -> Result:
    """What can be said of a result that could not be stored: why, and the start of it."""
    if isinstance(error, RedactionFailed):
        return error_result(error)
    return error_result(error, preview=_core.preview(found.payload, _VIEW))


def _fitted(descriptor: Descriptor, result: Result, kept: dict[str, Any], call: Call) -> Result:
    """The answer, with as much of the preview as the message has room for; if need be, without the outline."""
    for less in _LESS:
        bare = dataclasses.replace(descriptor, preview="", **less)
        room = MESSAGE - len(_message(_answer(bare, result, kept, call), call))
        if room >= 0:
            break
    preview = descriptor.preview
    if preview is not None:
        preview = _core.preview(preview, 2048, max_escaped_bytes=max(0, room), escape_levels=2)
    return _answer(dataclasses.replace(bare, preview=preview), result, kept, call)


def _answer(descriptor: Descriptor, result: Result, kept: dict[str, Any], call: Call) -> Result:
    answer = text_result(descriptor.to_json(), is_error=bool(result.get("isError", False)))
    if call.protocol_version >= _HAS_LINKS:
        answer["content"].append(link(descriptor))
    if "structuredContent" in result:
        # Whoever has an output schema has to answer by it, and lists one that takes this.
        answer["structuredContent"] = {
            "output_handle": descriptor.output_handle,
            "fetch_with": descriptor.fetch_with,
        }
    return {**answer, **kept}


def _message(answer: Result, call: Call) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": call.request_id, "result": answer})
