"""Operations of an HTTP API, built from its OpenAPI document.

from forebay.operations import OperationRegistry
from forebay.operations.openapi import from_openapi

async with await from_openapi("https://api.example.com/openapi.json", security={"api_key": key}) as operations:
    registry = operations.register_into(OperationRegistry())
    envelope = await registry.execute("example.getUser", {"id": 7})

Real documents are often slightly invalid, so the document is not validated. An error that concerns no operation is
ignored; an operation with an error is left out with a warning.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from forebay.operations.openapi.parameters import check_header_value
from forebay.operations.openapi.security import AppliedSecurity, Credential, Security
from forebay.operations.openapi.transport import (
    BodySpools,
    LargeBodyStore,
    ResponseLimits,
    carries_identity,
    iter_decoded,
    new_client,
    new_request,
    send,
)
from forebay.operations.registry import OperationRegistry
from forebay.operations.spec import Operation

if TYPE_CHECKING:
    from forebay.store import Store
    from forebay.wire.framing import Spool

__all__ = ["Credential", "HTTPOperations", "Include", "from_openapi"]


class HTTPOperations(Sequence[Operation]):
    """The operations of one API and the HTTP client they share.

    `aclose` unregisters the operations. It closes the client only if `from_openapi` created it.
    """

    def __init__(self, operations: Iterable[Operation], own_client: httpx2.AsyncClient | None) -> None:
        self._operations = tuple(operations)
        self._own_client = own_client
        self._registrations: list[tuple[OperationRegistry, Operation]] = []

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
        """Register all operations, or raise `InvalidArgument` and register none if an id is already in use."""
        operation_ids = (operation.spec.id for operation in self._operations)
        duplicate = next((name for name in operation_ids if registry.get_handler(name) is not None), None)
        if duplicate is not None:
            raise InvalidArgument(f"{duplicate} is registered already; unregister it first, or use another namespace")
        for operation in self._operations:
            registry.register(operation.spec, operation.handler)
            self._registrations.append((registry, operation))
        return registry

    async def aclose(self) -> None:
        """Unregister the operations from every registry, then close the client if `from_openapi` created it."""
        while self._registrations:
            registry, operation = self._registrations.pop()
            # Leave the id alone if it was registered again with another handler.
            if registry.get_handler(operation.spec.id) is operation.handler:
                registry.unregister(operation.spec.id)
        if self._own_client is not None:
            await self._own_client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
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
    make_spool: "Callable[[], Spool] | None" = None,
    spool_over: int = 8 << 20,
    cross_host_redirects: bool = False,
) -> HTTPOperations:
    """Build the operations of an API from its OpenAPI document: a dict, a string, bytes, a `Path` or a URL.

    - `base_url` replaces the servers that the document names.
    - `security` maps names of the document's security schemes to a key or token, a `(user, password)` pair, or a
      function that returns one of these. `headers` are added to every request. If the document was fetched, both are
      sent only to the origin it came from, or to `base_url`.
    - `timeout` bounds a whole call, in seconds.
    - `include(method, path, operation)` selects operations; it is called in a thread.
    - An error shows at most `max_error_bytes` of the response. A body larger than `max_body_bytes` is an error.
    - With a `store`, a body larger than `store_over` bytes is streamed into the store, and the data of the envelope is
      the store's descriptor as a dict. Stored bodies are not parsed, so the operations have no output schema. The
      store's quotas apply instead of `max_body_bytes`.
    - With `make_spool`, a body larger than `spool_over` bytes that need not be decoded goes to a temporary file, and
      the data of the envelope is a `Body`, whatever its type. Images, audio, bodies of operations with an output
      schema and texts in another charset than UTF-8 are decoded.
    - A redirect to another host is an error, unless `cross_host_redirects` is true. Credentials and bodies are never
      sent to another host.

    Raises `InvalidArgument` for an unusable document, `CallError` if the document cannot be fetched.
    """
    _check_options(client, security, headers, timeout)
    extra_headers = {name: check_header_value(name, value) for name, value in (headers or {}).items()}
    is_own_client = client is None
    client = client or new_client()
    try:
        document = await _load_document(
            document_or_url, client, extra_headers, timeout, cross_host_redirects=cross_host_redirects
        )
        # A base URL of the user's client replaces the document's servers too, as `base_url` does.
        base = base_url or str(client.base_url)
        # In a thread, because reading a large document, or a small one with many aliases, takes seconds.
        descriptions = await asyncio.to_thread(
            read_operations,
            document,
            namespace or _get_default_namespace(document),
            check_base_url(base) if base else None,
            include,
            has_output_schemas=store is None,
        )
        if is_url(document_or_url) and not base and (headers or security or carries_identity(client)):
            check_same_origin(str(document_or_url), (description.base_url for description in descriptions))
        schemes = Security(document, security, extra_headers)
        limits = ResponseLimits(max_error_bytes, max_body_bytes)
        large_bodies: LargeBodyStore | BodySpools | None = None
        if store is not None:
            large_bodies = LargeBodyStore(store, store_over)
        elif make_spool is not None:
            large_bodies = BodySpools(make_spool, min(spool_over, max_body_bytes))
        operations = [
            Operation(
                description.spec,
                HTTPCall(
                    description,
                    client,
                    schemes,
                    extra_headers,
                    timeout,
                    limits,
                    large_bodies,
                    cross_host_redirects=cross_host_redirects,
                ),
            )
            for description in descriptions
        ]
    except BaseException as error:
        if is_own_client:
            await client.aclose()
        if isinstance(error, RecursionError):
            raise InvalidArgument("this document is nested too deeply") from None
        raise
    return HTTPOperations(operations, client if is_own_client else None)


def _check_options(client: object, security: object, headers: object, timeout: object) -> None:
    if client is not None and not isinstance(client, httpx2.AsyncClient):
        raise InvalidArgument(f"client is an httpx2.AsyncClient, not {type(client).__name__}")
    # The error messages show the values of neither `security` nor `headers`, because they are secrets.
    if security is not None and not isinstance(security, Mapping):
        raise InvalidArgument('security is a dict of credentials by the names of schemes, such as {"api_key": key}')
    if headers is not None and not _is_string_mapping(headers):
        raise InvalidArgument('headers is a dict of texts, such as {"X-Tenant": "7"}')
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if timeout is not None and not (is_number and timeout > 0):  # type: ignore[operator]
        raise InvalidArgument(f"timeout is a number of seconds above 0, or None, not {short_repr(timeout)}")
    # Fail now if the timeout is too large; otherwise, every call would fail.
    deadline_after(timeout)  # type: ignore[arg-type]


def _is_string_mapping(headers: object) -> bool:
    return isinstance(headers, Mapping) and all(isinstance(text, str) for pair in headers.items() for text in pair)


async def _load_document(
    source: object,
    client: httpx2.AsyncClient,
    headers: Mapping[str, str],
    timeout: float | None,
    *,
    cross_host_redirects: bool,
) -> Document:
    if not is_url(source):
        return Document(await read_document(source))
    check_no_userinfo(source)
    label = "fetching the document"
    async with DeadlineScope(deadline_after(timeout), label):
        request = new_request(client, "GET", str(source), httpx2.Headers(headers, encoding="utf-8"))
        applied = AppliedSecurity.from_headers(headers)
        async with send(
            client, request, applied, label, address_name="its URL", cross_host_redirects=cross_host_redirects
        ) as response:
            if response.status_code >= 400:
                raise CallError(
                    "EXECUTION_ERROR", f"{label} was answered {response.status_code}", {"status": response.status_code}
                )
            content = bytearray()
            async for chunk in iter_decoded(response, label):
                content += chunk
                if len(content) > MAX_DOCUMENT_BYTES:
                    raise InvalidArgument(f"a document has at most {MAX_DOCUMENT_BYTES} bytes; this one has more")
            url = str(response.request.url)
    return Document(await read_document(bytes(content)), url)


def _get_default_namespace(document: Document) -> str:
    info = document.root.get("info")
    title = str(info.get("title") or "") if isinstance(info, Mapping) else ""
    return re.sub(r"[^a-z0-9]+", "_", title.lower()).strip("_")[:64] or "http"
