"""The operations of a document: each with its name, its schemas, and what is needed to call it."""

import dataclasses
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2

from forebay.errors import InvalidArgument
from forebay.operations.deadlines import DeadlineScope, deadline_after, earliest_deadline
from forebay.operations.envelope import ResponseEnvelope
from forebay.operations.envelope.body import is_json_type
from forebay.operations.errors import CallError
from forebay.operations.openapi import parameters
from forebay.operations.openapi.bodies import RequestBody, read_body
from forebay.operations.openapi.document import Document, find_server_url
from forebay.operations.openapi.parameters import BODY_KEY, Parameter, read_parameters
from forebay.operations.openapi.responses import LargeBodyStore, ResponseLimits, read_envelope, read_error
from forebay.operations.openapi.schemas import SchemaBundle, UniqueNames
from forebay.operations.openapi.security import AppliedSecurity, Security
from forebay.operations.openapi.styles import merge_cookies
from forebay.operations.openapi.transport import new_request, send
from forebay.operations.spec import CallContext, OperationSpec
from forebay.operations.validation import Schema

__all__ = ["HTTPCall", "Include", "OperationDescription", "read_operations"]

_log = logging.getLogger("forebay")

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")

_MAX_NAME_CHARS = 128

_BODILESS_STATUSES = ("204", "205")

Include = Callable[[str, str, Mapping[str, Any]], bool]
"""Takes the method, the path and the operation as the document has it; whether it is wanted."""


@dataclasses.dataclass(frozen=True, slots=True)
class OperationDescription:
    """An operation as the document describes it."""

    spec: OperationSpec
    method: str
    base_url: str
    path: str
    parameters: list[Parameter]
    body: RequestBody | None
    security: Any
    """Its security requirements, those of the document where it has none."""


def read_operations(
    document: Document, namespace: str, base_url: str | None, include: Include | None, *, has_output: bool = True
) -> list[OperationDescription]:
    """All operations that are wanted, in the order of the document.

    One that cannot be used is left out, with a warning. Raises `InvalidArgument` if that leaves none.
    """
    names, trouble, found = UniqueNames(), _DocumentErrors(), list[OperationDescription]()
    for path, method, item, operation in _iter_included(document, include, trouble):
        name = names.claim(_to_name(operation.get("operationId") or f"{method}{path}"))
        with trouble.skip_invalid(f"{method.upper()} {path}"):
            each = _read_operation(document, namespace, name, method, path, item, operation, base_url)
            found.append(each if has_output else _drop_output_schema(each))
    if not found and trouble.first is not None:
        raise trouble.first
    return found


def _iter_included(
    document: Document, include: Include | None, trouble: "_DocumentErrors"
) -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]:
    """Path, method, what the path says for all methods, and the operation."""
    for path, node in document.root.get("paths", {}).items():
        if not str(path).startswith("/"):
            continue  # an extension, `x-…`
        item: Mapping[str, Any] = {}
        with trouble.skip_invalid(path):
            item = document.resolve(node or {}, f"the path {path}")
        for method in _METHODS:
            if method not in item:
                continue
            operation: Mapping[str, Any] | None = None
            with trouble.skip_invalid(f"{method.upper()} {path}"):
                operation = document.resolve(item[method], f"{method} {path}")
            if operation is not None and (include is None or include(method, path, operation)):
                yield path, method, item, operation


class _DocumentErrors:
    """What is wrong with parts of a document: told of at once, and the first of it kept."""

    def __init__(self) -> None:
        self.first: InvalidArgument | None = None

    @contextmanager
    def skip_invalid(self, where: str) -> Iterator[None]:
        try:
            yield
        except (InvalidArgument, RecursionError) as error:
            if not isinstance(error, InvalidArgument):
                error = InvalidArgument("this document is nested too deeply")
            self.first = self.first or error
            _log.warning("forebay: %s of this document is left out: %s", where, error)


def _read_operation(
    document: Document,
    namespace: str,
    name: str,
    method: str,
    path: str,
    item: Mapping[str, Any],
    operation: Mapping[str, Any],
    base_url: str | None,
) -> OperationDescription:
    body = read_body(document, operation.get("requestBody"))
    parameters = read_parameters(
        document, path, item.get("parameters"), operation.get("parameters"), has_body=body is not None
    )
    return OperationDescription(
        spec=OperationSpec(
            namespace=namespace,
            name=name,
            type="query" if method in ("get", "head") else "mutation",
            description=_description(operation, item),
            input_schema=_build_input_schema(document, parameters, body),
            output_schema=_build_output_schema(document, operation.get("responses")),
        ),
        method=method.upper(),
        base_url=base_url
        or find_server_url(document, operation.get("servers"), item.get("servers"), document.root.get("servers")),
        path=path,
        parameters=parameters,
        body=body,
        security=operation.get("security", document.root.get("security")),
    )


def _drop_output_schema(described: OperationDescription) -> OperationDescription:
    return dataclasses.replace(described, spec=dataclasses.replace(described.spec, output_schema=None))


def _to_name(wanted: Any) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", str(wanted)).strip("_")[:_MAX_NAME_CHARS] or "operation"


def _description(operation: Mapping[str, Any], item: Mapping[str, Any]) -> str:
    told = [str(operation.get(key) or item.get(key) or "").strip() for key in ("summary", "description")]
    parts = [each for each in dict.fromkeys(told) if each]
    return "\n\n".join(["Deprecated.", *parts] if operation.get("deprecated") is True else parts)


def _build_input_schema(document: Document, parameters: list[Parameter], body: RequestBody | None) -> Schema:
    bundle = SchemaBundle(document, "sent", takes_files=body is not None and body.kind == "multipart")
    properties = {each.key: _with_description(bundle.convert(each.schema), each.description) for each in parameters}
    required = [each.key for each in parameters if each.is_required]
    if body is not None:
        properties[BODY_KEY] = _with_description(body.input_schema(bundle), body.description)
        required += [BODY_KEY] if body.is_required else []
    found: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        found["required"] = required
    definitions = bundle.definitions
    return {**found, "$defs": definitions} if definitions else found


def _with_description(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description} if description and not isinstance(schema, bool) else schema


def _build_output_schema(document: Document, responses: Any) -> Schema | None:
    """What every success that is JSON fits. None where one of them may be anything: another's schema is not its own."""
    if not isinstance(responses, Mapping):
        return None
    successes = [status for status in responses if re.fullmatch(r"2[0-9X]{2}", str(status).upper())]
    schemas: list[Any] = []
    for status in successes:
        response = document.resolve(responses[status] or {}, f"the response {status}")
        content = response.get("content")
        if isinstance(content, Mapping) and content:
            schemas += _json_schemas(document, content)
        elif str(status) not in _BODILESS_STATUSES:
            return None
    distinct = [each for index, each in enumerate(schemas) if each not in schemas[:index]]
    if not distinct or None in distinct:
        return None
    return SchemaBundle(document, "received").convert_standalone(
        distinct[0] if len(distinct) == 1 else {"anyOf": distinct}
    )


def _json_schemas(document: Document, content: Mapping[str, Any]) -> list[Any]:
    """The schemas of a response that is JSON. It is asked for as such, so what vendors call theirs comes second."""
    offered = {str(kind): media for kind, media in content.items() if is_json_type(str(kind))}
    plain = [kind for kind in offered if kind.partition(";")[0].strip().lower() == "application/json"]
    return [document.resolve(offered[kind] or {}, f"the content {kind}").get("schema") for kind in plain or offered]


_ACCEPT = "application/json, */*;q=0.8"


class HTTPCall:
    """The handler of an operation."""

    def __init__(
        self,
        described: OperationDescription,
        client: httpx2.AsyncClient,
        security: Security,
        headers: Mapping[str, str],
        timeout: float | None,
        limits: ResponseLimits,
        stored: LargeBodyStore | None,
    ) -> None:
        self._description = described
        self._client = client
        self._security = security
        self._headers = headers
        self._timeout = timeout
        self._limits = limits
        self._large_bodies = stored

    def __repr__(self) -> str:
        return f"<Call {self._description.method} {self._description.base_url}{self._description.path}>"

    async def __call__(self, given: Any, context: CallContext) -> ResponseEnvelope[Any]:
        """Sends the request. Raises `CallError` for whatever comes to no result, and for a status of 400 or more."""
        tool = self._description.spec.id
        requirement, wanted = self._security.choose(self._description.security)
        async with DeadlineScope(earliest_deadline(context.deadline, deadline_after(self._timeout)), tool):
            applied = await self._security.apply(requirement)
            request = self._build_request(given or {}, applied)
            async with send(self._client, request, applied, tool) as response:
                if response.status_code >= 400:
                    raise await read_error(response, applied, self._limits, requirement, wanted, tool=tool)
                principal = context.identity.id if context.identity else None
                return await read_envelope(response, self._limits, self._large_bodies, tool=tool, principal=principal)

    def _build_request(self, given: Mapping[str, Any], applied: AppliedSecurity) -> httpx2.Request:
        try:
            return self._assemble_request(given, applied)
        except (TypeError, ValueError, httpx2.InvalidURL) as error:
            # A text with half a character, a value that no JSON can say, or more than a URL can hold.
            raise CallError("VALIDATION_ERROR", f"the input cannot be sent: {error!s:.200}") from None

    def _assemble_request(self, given: Mapping[str, Any], applied: AppliedSecurity) -> httpx2.Request:
        if not isinstance(given, Mapping):
            raise CallError("VALIDATION_ERROR", f"the input is an object, not {type(given).__name__}")
        described = self._description
        filled = parameters.fill_path(described.path, described.parameters, given)
        # Some tell operations of one path apart by a query or a fragment there.
        path, _, said = filled.partition("#")[0].partition("?")
        query = "&".join(filter(None, [said, parameters.build_query(described.parameters, given), *applied.query]))
        cookies = [*parameters.build_cookies(described.parameters, given), *applied.cookies]
        content, content_type = self._encode_body(given)
        headers = httpx2.Headers({"Accept": _ACCEPT}, encoding="utf-8")
        for several in (self._headers, parameters.build_headers(described.parameters, given), applied.headers):
            for name, value in several.items():
                headers[name] = value
        if cookies:
            headers["Cookie"] = merge_cookies("; ".join(cookies), headers.get("Cookie", ""))
        if content_type is not None:
            headers["Content-Type"] = content_type
        url = f"{described.base_url}{path}" + (f"?{query}" if query else "")
        return new_request(self._client, described.method, url, headers, content)

    def _encode_body(self, given: Mapping[str, Any]) -> tuple[bytes | None, str | None]:
        body = self._description.body
        if body is None or parameters.BODY_KEY not in given:
            return None, None
        return body.encode(given[parameters.BODY_KEY])
