"""Operations of an HTTP API, from its OpenAPI document.

from forebay.operations import OperationRegistry
from forebay.operations.openapi import from_openapi

async with await from_openapi("https://api.example.com/openapi.json", security={"api_key": key}) as operations:
    registry = operations.register_into(OperationRegistry())
    envelope = await registry.execute("example.getUser", {"id": 7})

It is awaited whatever the document is: one that is fetched has to be, and there is one way to call it.

The document is read leniently, as plain data. Documents in use are often slightly invalid, and what is wrong with a
part that nobody calls is nobody's concern; what an operation needs and is missing is an error that names it.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, overload

import httpx2

from forebay.arguments import short_repr
from forebay.errors import InvalidArgument
from forebay.operations.deadlines import DeadlineScope, deadline_after
from forebay.operations.errors import CallError
from forebay.operations.openapi.document import (
    MAX_DOCUMENT_BYTES,
    Document,
    check_base_url,
    check_no_userinfo,
    check_same_origin,
    is_url,
    read_document,
)
from forebay.operations.openapi.operations import HTTPCall, Include, read_operations
from forebay.operations.openapi.responses import LargeBodyStore, ResponseLimits
from forebay.operations.openapi.security import AppliedSecurity, Credential, Security
from forebay.operations.openapi.styles import check_header_value
from forebay.operations.openapi.transport import carries_identity, iter_decoded, new_client, new_request, send
from forebay.operations.registry import OperationRegistry
from forebay.operations.spec import Operation

if TYPE_CHECKING:
    from forebay.store import Store

__all__ = ["Credential", "HTTPOperations", "Include", "from_openapi"]


class HTTPOperations(Sequence[Operation]):
    """The operations of an API. `aclose` takes them out again, and ends their client, unless it was given."""

    def __init__(self, operations: Iterable[Operation], own_client: httpx2.AsyncClient | None) -> None:
        self._operations = tuple(operations)
        self._own_client = own_client
        self._registered: list[tuple[OperationRegistry, Operation]] = []

    @overload
    def __getitem__(self, index: int) -> Operation: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Operation]: ...
    def __getitem__(self, index: int | slice) -> Operation | Sequence[Operation]:
        return self._operations[index]

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._operations)

    def __len__(self) -> int:
        return len(self._operations)

    def register_into(self, registry: OperationRegistry) -> OperationRegistry:
        """Registers all of them, or none if one of their ids is taken."""
        ids = [operation.spec.id for operation in self._operations]
        taken = next((each for each in ids if registry.get_handler(each) is not None), None)
        if taken is not None:
            raise InvalidArgument(f"{taken} is registered already; unregister it first, or use another namespace")
        for operation in self._operations:
            registry.register(operation.spec, operation.handler)
            self._registered.append((registry, operation))
        return registry

    async def aclose(self) -> None:
        """Ends the connections, and takes the operations out of the registries that they were registered into."""
        while self._registered:
            registry, operation = self._registered.pop()
            # Someone may have put another in its place.
            if registry.get_handler(operation.spec.id) is operation.handler:
                registry.unregister(operation.spec.id)
        await _close_client(self._own_client)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def from_openapi(
    document_or_url: object,
    client: httpx2.AsyncClient | None = None,
    *,
    namespace: str | None = None,
    base_url: str | None = None,
    security: Mapping[str, Credential] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float | None = 60.0,
    max_error_bytes: int = 4096,
    max_body_bytes: int = 256 * 1024 * 1024,
    include: Include | None = None,
    store: "Store | None" = None,
    store_over: int = 1_000_000,
) -> HTTPOperations:
    """The operations of an API, from a dict, a text, bytes, a `Path` or a URL with its OpenAPI document.

    `base_url` stands for whatever servers the document names. `security` has a key or token, `(user, password)`, or a
    function that gives one, by the names of the document's security schemes; `headers` go with every request. Neither
    goes to another host than the one that a document was fetched from, unless `base_url` names it.
    `timeout` is for a whole call, in seconds. `include(method, path, operation)`, called in
    a thread, says which operations are wanted. Of an error no more than `max_error_bytes` are told, and a body of more
    than `max_body_bytes` is an error.

    With a `store`, a body of more than `store_over` bytes goes there as it comes in, and the data is its descriptor,
    as a dict; nothing is parsed then, so the operations have no output schema. What it may hold is then the store's
    to say, by its quotas, and not for `max_body_bytes`.

    Raises `InvalidArgument` for a document that cannot be used, `CallError` if it cannot be fetched.
    """
    _check_options(client, security, headers, timeout)
    sent_headers = {name: check_header_value(name, value) for name, value in (headers or {}).items()}
    own_client = new_client() if client is None else None
    used_client = client or own_client or new_client()
    try:
        document = await _load_document(document_or_url, used_client, sent_headers, timeout)
        # A client that has a base URL was given one on purpose, too.
        base = base_url or str(used_client.base_url)
        # A large document takes seconds, and so does a small one whose aliases stand for a large one.
        found = await asyncio.to_thread(
            read_operations,
            document,
            namespace or _default_namespace(document),
            check_base_url(base) if base else None,
            include,
            has_output=store is None,
        )
        if is_url(document_or_url) and not base and (headers or security or carries_identity(used_client)):
            check_same_origin(str(document_or_url), (each.base_url for each in found))
        known = Security(document, security, sent_headers)
        limits = ResponseLimits(max_error_bytes, max_body_bytes)
        stored = LargeBodyStore(store, store_over) if store is not None else None
        operations = [
            Operation(each.spec, HTTPCall(each, used_client, known, sent_headers, timeout, limits, stored))
            for each in found
        ]
    except RecursionError:
        await _close_client(own_client)
        raise InvalidArgument("this document is nested too deeply") from None
    except BaseException:
        await _close_client(own_client)
        raise
    return HTTPOperations(operations, own_client)


def _check_options(client: object, security: object, headers: object, timeout: object) -> None:
    if client is not None and not isinstance(client, httpx2.AsyncClient):
        raise InvalidArgument(f"client is an httpx2.AsyncClient, not {type(client).__name__}")
    # Neither is shown: they are secrets.
    if security is not None and not isinstance(security, Mapping):
        raise InvalidArgument('security is a dict of credentials by the names of schemes, such as {"api_key": key}')
    if headers is not None and not _is_string_mapping(headers):
        raise InvalidArgument('headers is a dict of texts, such as {"X-Tenant": "7"}')
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if timeout is not None and not (is_number and timeout > 0):  # type: ignore[operator]
        raise InvalidArgument(f"timeout is a number of seconds above 0, or None, not {short_repr(timeout)}")
    # Now, and not at every call.
    deadline_after(timeout)  # type: ignore[arg-type]


def _is_string_mapping(headers: object) -> bool:
    return isinstance(headers, Mapping) and all(isinstance(each, str) for pair in headers.items() for each in pair)


async def _close_client(client: httpx2.AsyncClient | None) -> None:
    if client is not None:
        await client.aclose()


async def _load_document(
    source: object, client: httpx2.AsyncClient, headers: Mapping[str, str], timeout: float | None
) -> Document:
    if not is_url(source):
        return Document(await read_document(source))
    check_no_userinfo(source)
    what = "fetching the document"
    async with DeadlineScope(deadline_after(timeout), what):
        request = new_request(client, "GET", str(source), httpx2.Headers(headers, encoding="utf-8"))
        async with send(client, request, AppliedSecurity.from_headers(headers), what) as response:
            if response.status_code >= 400:
                raise CallError(
                    "EXECUTION_ERROR", f"{what} was answered {response.status_code}", {"status": response.status_code}
                )
            content = bytearray()
            async for chunk in iter_decoded(response, what):
                content += chunk
                if len(content) > MAX_DOCUMENT_BYTES:
                    raise InvalidArgument(f"a document has at most {MAX_DOCUMENT_BYTES} bytes; this one has more")
            url = str(response.request.url)
    return Document(await read_document(bytes(content)), url)


def _default_namespace(document: Document) -> str:
    info = document.root.get("info")
    title = str(info.get("title") or "") if isinstance(info, Mapping) else ""
    return re.sub(r"[^a-z0-9]+", "_", title.lower()).strip("_")[:64] or "http"
