"""Handler that replaces large results by handles, and adds entries of forebay to the server's lists."""

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from forebay.errors import UpstreamFailed
from forebay.outputs.app.resource import EXTENSION_KEY
from forebay.outputs.handle_response import MAX_MESSAGE_BYTES
from forebay.outputs.policy import OutputPolicy
from forebay.outputs.result import TASK_RESULT_METHODS, get_task_result, set_task_result, strip_wrap_result
from forebay.outputs.tool_call import ToolCall
from forebay.outputs.tools import RESOURCE_TEMPLATE
from forebay.proxy.calls import make_response, make_tool_call, record_size
from forebay.proxy.list_pages import ListPage, open_page, parse_tools
from forebay.proxy.session import PendingRequest, Session
from forebay.wire.framing import Message
from forebay.wire.lazy_json import LazyJSON, as_lazy, dump, dump_size, open_container, parse_lazy
from forebay.wire.messages import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    dump_message,
    make_error_message,
    make_optional_key,
    make_result_message,
)
from forebay.wire.protocol import SERVER_INFO_KEY, PageLinks, is_modern, next_cursor

__all__ = ["ResponseHandler"]

_log = logging.getLogger("forebay")

_MAX_STRAY_BYTES = 256
"""Maximum bytes of stray members to send beside a handle. With more, they are stored together with the result."""

_MAX_HANDSHAKE_BYTES = 1 << 20
"""Maximum bytes of a handshake to parse, which takes many times the memory. A larger one is forwarded unchanged."""

_Handler = Callable[[PendingRequest, dict[str, Any], Message], Message | None]


class ResponseHandler:
    """Handler that replaces large results by handles, and adds forebay's own entries to lists."""

    def __init__(self, policy: OutputPolicy, session: Session, server_info: dict[str, Any]) -> None:
        self._policy = policy
        self._session = session
        self._server_info = server_info
        self._handlers: dict[str, _Handler] = {
            "tools/call": self._handle_call,
            **dict.fromkeys(TASK_RESULT_METHODS, self._handle_call),
            "tools/list": self._handle_tools,
            "initialize": self._handle_initialize,
            "server/discover": self._handle_initialize,
            "resources/list": self._handle_resources,
            "resources/templates/list": self._handle_templates,
        }
        # Rewriting a list of tools takes several times its size in memory, so only one is rewritten at a time.
        self._list_lock = threading.Lock()
        self._page_links: dict[str, PageLinks] = {}

    def __call__(self, pending: PendingRequest, message: dict[str, Any], raw: Message) -> Message | None:
        """Return the bytes to send instead of `raw`; `None` to send `raw` unchanged."""
        handler = self._handlers.get(pending.method)
        try:
            return None if handler is None else handler(pending, message, raw)
        except UpstreamFailed as error:
            return make_error_message(pending.id, INTERNAL_ERROR, str(error), error.to_dict()["error"])

    def _handle_call(self, pending: PendingRequest, message: dict[str, Any], raw: Message) -> Message | None:
        envelope, policy = message.get("result"), self._policy
        if pending.mode.allows_inline(len(raw)):
            # Most responses are this small. They are forwarded, whatever members they have.
            policy.tasks.remember(envelope, pending.tool, pending.mode, self._session.task_owners)
            if policy.monitor is not None and get_task_result(pending.method, envelope) is not None:
                self._record_size(pending, len(raw), is_inline=True)
            return None
        stray = _find_stray_members(message)
        stray_bytes = dump_size(stray) if stray else 0
        if stray_bytes > _MAX_STRAY_BYTES and pending.mode.exceeds_limit(len(raw)):
            return self._handle_message(pending, message, raw)
        policy.tasks.remember(envelope, pending.tool, pending.mode, self._session.task_owners)
        result = get_task_result(pending.method, envelope)
        if result is None:
            return self._handle_error(pending, message, raw, stray_bytes)
        if not isinstance(result, dict | LazyJSON):
            # Not a valid result, but it may be too large, too.
            result = as_lazy(dump(result))
        # Put a single digit in place of the result, to measure the bytes around the result.
        one_digit = set_task_result(pending.method, envelope, 0)
        size = len(raw) - dump_size({**message, "result": one_digit}) + 1
        envelope_bytes = dump_size(self._set_server_info(one_digit)) - 1 + stray_bytes
        call = dataclasses.replace(self._make_call(pending), envelope_bytes=envelope_bytes)
        if policy.pipeline.is_inline(result, pending.mode, call, size=size):
            self._record_size(pending, len(raw), is_inline=True)
            return None
        started = time.perf_counter()
        result = result if isinstance(result, LazyJSON) else strip_wrap_result(result)
        stored = policy.pipeline.store_result(result, call)
        if stored is result:
            return None
        filled = set_task_result(pending.method, envelope, stored)
        response = dump_message({**message, "result": self._set_server_info(filled)})
        return self._record_stored(pending, response, len(raw), started)

    def _handle_message(self, pending: PendingRequest, message: dict[str, Any], raw: Message) -> Message | None:
        """Store all members of a response except its id, because it has large ones besides its result or error."""
        started, policy = time.perf_counter(), self._policy
        members = {key: value for key, value in message.items() if key != "id" and (key, value) != ("jsonrpc", "2.0")}
        empty: dict[str, Any] = {"content": []}
        plain_response = make_result_message(pending.id, empty)
        added_bytes = len(make_response(pending, empty, self._server_info)) - len(plain_response)
        call = dataclasses.replace(self._make_call(pending), envelope_bytes=added_bytes)
        is_small = len(raw) <= max(pending.mode.output_inline_limit_bytes, MAX_MESSAGE_BYTES)
        # A response with a descriptor adds these bytes, so storing the members must save more than that.
        size = dump_size(members) - added_bytes
        if is_small and policy.pipeline.is_inline(members, pending.mode, call, size=size):
            policy.tasks.remember(message.get("result"), pending.tool, pending.mode, self._session.task_owners)
            self._record_size(pending, len(raw), is_inline=True)
            return None
        stored = policy.pipeline.store_result(members, call)
        if stored is members:
            return None
        result = {**stored, "isError": bool(stored.get("isError")) or message.get("error") is not None}
        return self._record_stored(pending, make_response(pending, result, self._server_info), len(raw), started)

    def _record_stored(self, pending: PendingRequest, response: Message, original_size: int, started: float) -> Message:
        """Record and return a response that refers to a stored result."""
        _log.info(
            "forebay: %s answered %d bytes, of which the client gets %d (%.1f ms)",
            (pending.tool or pending.method)[:64],
            original_size,
            len(response),
            (time.perf_counter() - started) * 1e3,
        )
        self._record_size(pending, len(response), is_inline=False)
        return response

    def _handle_error(
        self, pending: PendingRequest, message: dict[str, Any], raw: Message, stray_bytes: int
    ) -> Message | None:
        """Store an error that is too large; the response keeps its code."""
        if message.get("error") is None or not pending.mode.exceeds_limit(len(raw)):
            return None
        call = dataclasses.replace(self._make_call(pending), envelope_bytes=stray_bytes)
        error = self._policy.pipeline.store_error(message["error"], call)
        return None if error is None else dump_message({**message, "error": error})

    def _record_size(self, pending: PendingRequest, size: int, *, is_inline: bool) -> None:
        record_size(self._policy, self._session, pending.tool, size, pending.mode, is_inline=is_inline)

    def _make_call(self, pending: PendingRequest) -> ToolCall:
        call = make_tool_call(pending, self._policy, self._session)
        return dataclasses.replace(call, server_info=self._server_info)

    def _set_server_info(self, result: Any) -> Any:
        """Return a result with forebay's server info in place of the server's, if it has any."""
        meta = result.get("_meta") if isinstance(result, dict) else None
        if not isinstance(meta, dict) or SERVER_INFO_KEY not in meta:
            return result
        return {**result, "_meta": {**meta, SERVER_INFO_KEY: self._server_info}}

    def _handle_tools(self, pending: PendingRequest, message: dict[str, Any], raw: Message) -> bytes | None:
        page, policy = self._open_page(pending, message, raw, "tools"), self._policy
        if page is None:
            if policy.capabilities.is_active and message.get("error") is None:
                raise UpstreamFailed(
                    "the server's list of tools cannot be read, so it cannot be filtered; check the server"
                )
            return None
        with self._list_lock:
            return self._rewrite_page(pending, page)

    def _rewrite_page(self, pending: PendingRequest, page: ListPage) -> bytes:
        policy = self._policy
        is_last = self._is_last_page(pending, page)
        policy.learn_tools(parse_tools(page.items), is_complete=is_last and pending.page_key is None)
        expanded = () if is_modern(pending.version) else policy.get_expanded_tools(self._session.connection) or ()

        def rewrite(item: LazyJSON, tool: Any) -> LazyJSON | bytes | None:
            visible = policy.list_visible([tool], expanded, shows_apps=pending.shows_apps)
            return None if not visible else item if visible[0] == tool else dump(visible[0])

        replacements = map(rewrite, page.items, parse_tools(page.items))
        added = policy.list_own_tools(shows_apps=pending.shows_apps) if is_last else []
        return page.replace_items(replacements, added)

    def _handle_resources(self, pending: PendingRequest, message: dict[str, Any], raw: Message) -> bytes | None:
        if pending.shows_apps:
            # A list that is too large to read is forwarded unchanged: a host also finds the app through the tools.
            with contextlib.suppress(UpstreamFailed):
                return self._add_items(pending, message, raw, "resources", [self._policy.app.define_resource()])
        # forebay announces resources, so the list of resources must exist.
        return self._make_empty_list(pending, "resources") if _is_method_not_found(message) else None

    def _handle_templates(self, pending: PendingRequest, message: dict[str, Any], raw: Message) -> bytes | None:
        return self._add_items(pending, message, raw, "resourceTemplates", [RESOURCE_TEMPLATE])

    def _add_items(
        self, pending: PendingRequest, message: dict[str, Any], raw: Message, key: str, items: list[dict[str, Any]]
    ) -> bytes | None:
        """Return a page of a list; add `items` to the last page."""
        page = self._open_page(pending, message, raw, key)
        if page is None:
            return None
        with self._list_lock:
            is_last = self._is_last_page(pending, page)
        return page.add_items(items if is_last else [])

    def _is_last_page(self, pending: PendingRequest, page: ListPage) -> bool:
        links = self._page_links.setdefault(pending.method, PageLinks())
        return links.follow(pending.page_key, make_optional_key(next_cursor(page.result)))

    def _open_page(self, pending: PendingRequest, message: dict[str, Any], raw: Message, key: str) -> ListPage | None:
        """Return a page of a list like `open_page`; an empty page if the server does not have the list."""
        if _is_method_not_found(message):
            raw = self._make_empty_list(pending, key)
            message = parse_lazy(raw)
        return open_page(message, raw, key)

    def _make_empty_list(self, pending: PendingRequest, key: str) -> bytes:
        return make_response(pending, {key: []}, self._server_info)

    def _handle_initialize(self, pending: PendingRequest, message: dict[str, Any], _raw: Message) -> Message | None:
        """Announce tools and resources, even if the server has none, and say what a handle is."""
        result = _open_handshake(message.get("result"))
        if not isinstance(result, dict):
            return None
        if pending.method == "initialize":
            self._session.is_negotiated = True
            version = result.get("protocolVersion")
            self._session.version = version if isinstance(version, str) else self._session.version
        capabilities = _open_handshake(result.get("capabilities"))
        if not isinstance(capabilities, dict):
            return None
        extended = {**capabilities, **{name: {} for name in ("tools", "resources") if name not in capabilities}}
        if self._policy.tools.expand_tool is not None and pending.method == "initialize":
            extended["tools"] = {**extended["tools"], "listChanged": True}
        if pending.shows_apps:
            extensions = open_container(extended.get("extensions"))
            extended["extensions"] = {**(extensions if isinstance(extensions, dict) else {}), EXTENSION_KEY: {}}
        instructions = self._extend_instructions(result.get("instructions"))
        return dump_message({**message, "result": {**result, "capabilities": extended, "instructions": instructions}})

    def _extend_instructions(self, instructions: Any) -> Any:
        if not isinstance(instructions, LazyJSON):
            return self._policy.extend_instructions(instructions)
        if instructions.is_spooled or not instructions.is_string:
            return instructions
        # A long text: keep its bytes, and write the note before the closing quote.
        return as_lazy(instructions.json()[:-1] + dump(f"\n\n{self._policy.handle_note}")[1:])


def _open_handshake(value: Any) -> Any:
    """Return an object of a handshake that `parse` has left unparsed, unless it is too large."""
    return open_container(value) if isinstance(value, LazyJSON) and len(value) <= _MAX_HANDSHAKE_BYTES else value


def _find_stray_members(message: dict[str, Any]) -> dict[str, Any]:
    """Return the members that a response should not have: all but its id, its version and one result or error."""
    body_key = "error" if message.get("result") is None else "result"
    return {
        key: value
        for key, value in message.items()
        if key not in ("id", body_key) and value is not None and (key, value) != ("jsonrpc", "2.0")
    }


def _is_method_not_found(message: dict[str, Any]) -> bool:
    match message:
        case {"error": {"code": int(code)}}:
            return code == METHOD_NOT_FOUND
    return False
