"""Versions of MCP, and the rules that differ between them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from forebay.wire.errors import RequestFailed
from forebay.wire.lazy_json import LazyJSON, as_lazy, dump
from forebay.wire.messages import INVALID_PARAMS, INVALID_REQUEST, get_meta

__all__ = [
    "ACKNOWLEDGED_METHOD",
    "CANCELLED_METHOD",
    "CLIENT_CAPABILITIES_KEY",
    "CLIENT_INFO_KEY",
    "CLIENT_NOTIFICATIONS",
    "CLIENT_REQUESTS",
    "HANDSHAKE_VERSIONS",
    "INPUT_METHODS",
    "LEGACY_VERSION",
    "LIST_CHANGED_KEYS",
    "LIST_METHODS",
    "LOG_LEVELS",
    "LOG_LEVEL_KEY",
    "LOG_METHOD",
    "MAX_LIST_BYTES",
    "MAX_LIST_ITEMS",
    "MAX_LIST_PAGES",
    "MISSING_CAPABILITY",
    "MODERN_VERSION",
    "PROGRESS_METHOD",
    "PROTOCOL_VERSION_KEY",
    "REQUEST_TIMEOUT",
    "RESOURCE_LINK_VERSION",
    "SERVER_BUSY",
    "SERVER_INFO_KEY",
    "SUBSCRIPTION_ID_KEY",
    "TOOLS_CHANGED_METHOD",
    "UNSUPPORTED_VERSION",
    "UPDATED_METHOD",
    "Fault",
    "PageCursors",
    "PageLinks",
    "add_result_fields",
    "check_input_request",
    "check_request",
    "find_envelope_fault",
    "find_version_fault",
    "get_client_name",
    "get_required_capability",
    "is_modern",
    "matches_template",
    "next_cursor",
    "normalize_capabilities",
    "protocol_version",
    "supports_request",
]

RESOURCE_LINK_VERSION = "2025-06-18"
"""First version with resource links in tool results."""

LEGACY_VERSION = "2025-11-25"
"""Last version with a handshake."""

MODERN_VERSION = "2026-07-28"
"""First version without a handshake: each request names its version in `_meta`."""

CLIENT_CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO_KEY = "io.modelcontextprotocol/clientInfo"
PROTOCOL_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID_KEY = "io.modelcontextprotocol/subscriptionId"
LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", LEGACY_VERSION)
"""Versions with a handshake."""

SERVER_BUSY, REQUEST_TIMEOUT, MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32000, -32001, -32021, -32022

CANCELLED_METHOD, PROGRESS_METHOD = "notifications/cancelled", "notifications/progress"
LOG_METHOD, UPDATED_METHOD = "notifications/message", "notifications/resources/updated"
TOOLS_CHANGED_METHOD = "notifications/tools/list_changed"
ACKNOWLEDGED_METHOD = "notifications/subscriptions/acknowledged"

LIST_CHANGED_KEYS = {
    TOOLS_CHANGED_METHOD: "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}
"""Notifications of changed lists, and the keys that select them in `subscriptions/listen`."""

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

INPUT_METHODS = ("tools/call", "prompts/get", "resources/read")
"""Requests that a server may answer with `input_required`, since `MODERN_VERSION`."""

CLIENT_REQUESTS = frozenset(
    {
        "completion/complete",
        "initialize",
        "logging/setLevel",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "resources/unsubscribe",
        "server/discover",
        "subscriptions/listen",
        "tasks/cancel",
        "tasks/get",
        "tasks/list",
        "tasks/result",
        "tasks/update",
        "tools/call",
        "tools/list",
    }
)
"""Methods of the requests that a client may send, in any version."""

CLIENT_NOTIFICATIONS = frozenset(
    {
        "notifications/cancelled",
        "notifications/initialized",
        "notifications/progress",
        "notifications/roots/list_changed",
        "notifications/tasks/status",
    }
)
"""Methods of the notifications that a client may send, in any version."""

LIST_METHODS = {
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resourceTemplates", "resources"),
    "prompts/list": ("prompts", "prompts"),
}
"""The result key of each list method, and the capability of servers that have such a list."""

MAX_LIST_PAGES = 1000
"""Maximum number of pages of a list to request."""

MAX_LIST_BYTES = 4 << 20
"""Maximum bytes of a page of a list that forebay reads, and of all pages together that it requests itself."""

MAX_LIST_ITEMS = 10_000
"""Maximum number of items, likewise."""

_CACHEABLE_METHODS = {"tools/list", "resources/list", "resources/templates/list", "resources/read", "prompts/list"}
"""Methods whose results must state how long they may be cached, since `MODERN_VERSION`."""


Fault = tuple[int, str, object]
"""Code, message and data of an error."""


def check_request(message: Mapping[str, Any]) -> None:
    """Raise `RequestFailed` if a message is not a request of JSON-RPC 2.0."""
    request_id, params = message["id"], message.get("params")
    is_valid_id = isinstance(request_id, str | int | float | LazyJSON) and not isinstance(request_id, bool)
    is_valid = message.get("jsonrpc") == "2.0" and is_valid_id and isinstance(message["method"], str)
    if not is_valid or not isinstance(params, dict | LazyJSON | None):
        text = "not a valid JSON-RPC 2.0 request: check jsonrpc, id, method and params"
        raise RequestFailed(INVALID_REQUEST, text)
    if isinstance(params, dict) and not isinstance(params.get("_meta"), dict | LazyJSON | None):
        raise RequestFailed(INVALID_PARAMS, "params._meta must be an object if present")


def find_envelope_fault(meta: Mapping[str, Any]) -> Fault | None:
    """Return what is wrong with the `_meta` of a request since `MODERN_VERSION`."""
    missing = [key for key in (PROTOCOL_VERSION_KEY, CLIENT_CAPABILITIES_KEY) if key not in meta]
    if missing:
        return INVALID_PARAMS, f"params._meta is missing the required envelope key(s): {', '.join(missing)}", None
    version = meta[PROTOCOL_VERSION_KEY]
    if not isinstance(version, str):
        return INVALID_PARAMS, "the protocol-version envelope value must be a string", None
    return find_version_fault(version)


def find_version_fault(version: str) -> Fault | None:
    """Return the error for a request of another version than `MODERN_VERSION`."""
    if version == MODERN_VERSION:
        return None
    data = {"supported": [MODERN_VERSION], "requested": version}
    return UNSUPPORTED_VERSION, "Unsupported protocol version", data


def protocol_version(params: object) -> str | None:
    """Return the protocol version in the `_meta` of a request, as sent since `MODERN_VERSION`; `None` if missing."""
    version = get_meta(params).get(PROTOCOL_VERSION_KEY)
    return version if isinstance(version, str) else None


def is_modern(version: str) -> bool:
    """Return whether a protocol version works without a handshake."""
    return version >= MODERN_VERSION


def add_result_fields(
    method: str, result: dict[str, Any], version: str, server_info: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a result with the fields that a protocol version requires."""
    if not is_modern(version):
        return result
    caching = {"ttlMs": 0, "cacheScope": "private"} if method in _CACHEABLE_METHODS else {}
    meta = {SERVER_INFO_KEY: server_info, **(result.get("_meta") or {})}
    return {**result, "resultType": "complete", **caching, "_meta": meta}


def get_client_name(client_info: object) -> object:
    """Return the name in a `clientInfo`, which may be anything: a client sent it."""
    return client_info.get("name") if isinstance(client_info, Mapping) else None


def next_cursor(page: Mapping[str, Any]) -> Any:
    """Return the cursor of the next page, or `None` after the last page, where some servers send an empty cursor."""
    cursor = page.get("nextCursor")
    return None if cursor == "" else cursor


class PageCursors:
    """Iterator over the params that request each page of a list: `{}` first, then `{"cursor": …}`.

    Call `follow` with each page, in synchronous and asynchronous code alike:

        cursors = PageCursors()
        for params in cursors:
            page = await request("tools/list", params)
            cursors.follow(page)

    Iteration stops after the last page, when a server repeats a cursor, and after `max_pages` pages.
    """

    def __init__(self, max_pages: int = MAX_LIST_PAGES) -> None:
        self._max_pages = max_pages
        self._cursor: Any = None
        # A list, because a server may send a cursor that is not hashable.
        self._requested: list[Any] = []
        self.is_truncated = False
        """Whether iteration stopped at `max_pages` although more pages follow."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        if self._cursor in self._requested:
            raise StopIteration
        if len(self._requested) >= self._max_pages:
            self.is_truncated = True
            raise StopIteration
        self._requested.append(self._cursor)
        return {} if self._cursor is None else {"cursor": self._cursor}

    def follow(self, page: Mapping[str, Any]) -> None:
        """Continue after a page: the next request uses the cursor in this page."""
        self._cursor = next_cursor(page)


class PageLinks:
    """The links between the pages of a server's list, to find its last page even if that page links to an earlier one.

    A page is named by the key of its cursor (`make_id_key`), or `None` for the first page.
    """

    def __init__(self) -> None:
        self._next_pages: dict[bytes | None, bytes] = {}

    def follow(self, page: bytes | None, next_page: bytes | None) -> bool:
        """Record the link of a page, and return whether the page is the last one of its list."""
        # Links of earlier listings are replaced, or forgotten when there are many.
        self._next_pages.pop(page, None)
        if next_page is None:
            return True
        self._next_pages[page] = next_page
        if len(self._next_pages) > MAX_LIST_PAGES:
            del self._next_pages[next(iter(self._next_pages))]
        # Only the page that closes the loop is the last one, so follow the links from the first page up to this one.
        earlier: set[bytes | None] = {None}
        current: bytes | None = None
        while current != page:
            current = self._next_pages.get(current)
            if current in earlier:
                return False
            earlier.add(current)
        return next_page in earlier


def matches_template(template: str, uri: str) -> bool:
    """Return whether a URI matches a template whose variables stand for any text."""
    prefix, *later_literals = re.split(r"\{[^{}]*\}", template)
    if not later_literals or not uri.startswith(prefix):
        return False
    *literals, suffix = later_literals
    position = len(prefix)
    # Variables stand for any text, so the first occurrence of each literal is enough, without backtracking.
    for literal in literals:
        start = uri.find(literal, position)
        if start < 0:
            return False
        position = start + len(literal)
    return uri.endswith(suffix) and len(uri) - len(suffix) >= position


_CAPABILITY_MODES = {"elicitation": ("form", "url"), "sampling": ("context", "tools"), "roots": ()}
"""Capabilities that concern requests of servers, and what a client may declare in each of them."""

_CAPABILITY_BY_METHOD = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}


def normalize_capabilities(capabilities: object) -> dict[str, dict[str, Any]]:
    """Return those of a client's capabilities that concern requests of servers, in one of 40 forms."""
    declared = capabilities if isinstance(capabilities, Mapping) else {}
    normalized: dict[str, dict[str, Any]] = {
        name: {mode: {} for mode in modes if declared[name].get(mode) is not None}
        for name, modes in _CAPABILITY_MODES.items()
        if isinstance(declared.get(name), Mapping)
    }
    if normalized.get("elicitation") == {}:
        # Before there were modes, elicitation was by form.
        normalized["elicitation"] = {"form": {}}
    return normalized


def get_required_capability(method: str) -> str | None:
    """Return the client capability that a request of a server needs."""
    return _CAPABILITY_BY_METHOD.get(method)


def supports_request(capabilities: object, method: str, params: Mapping[str, Any]) -> bool:
    """Return whether a client with these capabilities accepts this request of a server."""
    declared = normalize_capabilities(capabilities).get(get_required_capability(method) or "")
    if declared is None:
        return False
    if method == "elicitation/create":
        return ("url" if params.get("mode") == "url" else "form") in declared
    if method == "sampling/createMessage" and ("tools" in params or "toolChoice" in params):
        return "tools" in declared
    return True


_INPUT_PARAMS = {
    "elicitation/create": {"message": "string", "requestedSchema": "object"},
    "elicitation/create by URL": {"message": "string", "url": "string", "elicitationId": "string"},
    "sampling/createMessage": {"messages": "array", "maxTokens": "number"},
}
"""Required params of the requests that a server may send to its client, and their types."""


def check_input_request(method: str, params: Mapping[str, Any]) -> None:
    """Raise `RequestFailed` if a server's request lacks what 2026-07-28 requires, so that no client could answer it."""
    by_url = " by URL" if params.get("mode") == "url" else ""
    for name, expected in _INPUT_PARAMS.get(method + by_url, {}).items():
        value = as_lazy(dump(params.get(name)))
        if not getattr(value, f"is_{expected}"):
            article = "an" if expected in ("array", "object") else "a"
            raise RequestFailed(INVALID_PARAMS, f"{method}: params.{name} must be {article} {expected}")
