"""Operations of a document: their names and schemas, and the handlers that call them over HTTP."""

import dataclasses
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2

from forebay.envelope import ResponseEnvelope
from forebay.envelope.body import get_media_type, is_json_type
from forebay.errors import InvalidArgument
from forebay.operations.deadlines import DeadlineScope, deadline_after, earliest_deadline
from forebay.operations.errors import CallError
from forebay.operations.openapi.bodies import RequestBody, read_body
from forebay.operations.openapi.document import Document, find_server_url
from forebay.operations.openapi.parameters import (
    BODY_KEY,
    Parameter,
    build_cookies,
    build_headers,
    build_query,
    fill_path,
    read_parameters,
)
from forebay.operations.openapi.schemas import SchemaBundle, UniqueNames
from forebay.operations.openapi.security import AppliedSecurity, Security
from forebay.operations.openapi.transport import (
    BodySpools,
    LargeBodyStore,
    ResponseLimits,
    merge_cookies,
    new_request,
    read_envelope,
    read_error,
    send,
)
from forebay.operations.spec import CallContext, OperationSpec
from forebay.operations.validation import Schema, has_rules
from forebay.telemetry import inject_context

__all__ = ["HTTPCall", "Include", "OperationDescription", "read_operations"]

_log = logging.getLogger("forebay")

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")

_MAX_NAME_CHARS = 128

_BODILESS_STATUSES = ("204", "205")

_ACCEPT = "application/json, */*;q=0.8"

Include = Callable[[str, str, Mapping[str, Any]], bool]
"""Function of the method, the path and the operation object that returns whether to include the operation."""


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
    """Security requirements of the operation, or of the document if the operation has none."""


def read_operations(
    document: Document,
    namespace: str,
    base_url: str | None,
    include: Include | None,
    *,
    has_output_schemas: bool = True,
) -> list[OperationDescription]:
    """Read the operations that `include` selects, in the order of the document.

    Invalid operations are skipped with a warning. Raises `InvalidArgument` if all operations are invalid.
    """
    names, errors, descriptions = UniqueNames(), _DocumentErrors(), list[OperationDescription]()
    for path, method, path_item, operation in _iter_included_operations(document, include, errors):
        name = names.claim(_to_operation_name(operation.get("operationId") or f"{method}{path}"))
        with errors.skip_invalid(f"{method.upper()} {path}"):
            description = _read_operation(document, namespace, name, method, path, path_item, operation, base_url)
            descriptions.append(description if has_output_schemas else _drop_output_schema(description))
    errors.log(namespace, logging.WARNING if descriptions else logging.DEBUG)
    if not descriptions and errors.first is not None:
        raise errors.first
    return descriptions


def _iter_included_operations(
    document: Document, include: Include | None, errors: "_DocumentErrors"
) -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]:
    """Yield the path, method, path item and operation object of each selected operation."""
    for path, node in document.root.get("paths", {}).items():
        if not str(path).startswith("/"):
            continue  # an extension, `x-…`
        path_item: Mapping[str, Any] = {}
        with errors.skip_invalid(path):
            path_item = document.resolve(node or {}, f"the path {path}")
        for method in _METHODS:
            if method not in path_item:
                continue
            operation: Mapping[str, Any] | None = None
            with errors.skip_invalid(f"{method.upper()} {path}"):
                operation = document.resolve(path_item[method], f"{method} {path}")
            if operation is not None and (include is None or include(method, path, operation)):
                yield path, method, path_item, operation


class _DocumentErrors:
    """The errors in a document. Parts with the same error, such as a missing server, are logged as one."""

    def __init__(self) -> None:
        self.first: InvalidArgument | None = None
        self._labels_by_message: dict[str, list[str]] = {}

    @contextmanager
    def skip_invalid(self, label: str) -> Iterator[None]:
        """Suppress an error in the part of the document that `label` names, and keep it for `log`."""
        try:
            yield
        except (InvalidArgument, RecursionError) as error:
            if not isinstance(error, InvalidArgument):
                error = InvalidArgument("this document is nested too deeply")
            self.first = self.first or error
            self._labels_by_message.setdefault(str(error), []).append(label)

    def log(self, namespace: str, level: int) -> None:
        """Log each error once."""
        for message, (label, *others) in self._labels_by_message.items():
            labels = f"{label} and {len(others)} more are" if others else f"{label} is"
            _log.log(level, "forebay: %s: %s left out: %s", namespace, labels, message)


def _read_operation(
    document: Document,
    namespace: str,
    name: str,
    method: str,
    path: str,
    path_item: Mapping[str, Any],
    operation: Mapping[str, Any],
    base_url: str | None,
) -> OperationDescription:
    body = read_body(document, operation.get("requestBody"))
    parameters = read_parameters(
        document, path, path_item.get("parameters"), operation.get("parameters"), has_body=body is not None
    )
    return OperationDescription(
        spec=OperationSpec(
            namespace=namespace,
            name=name,
            type="query" if method in ("get", "head") else "mutation",
            description=_build_description(operation, path_item),
            input_schema=_build_input_schema(document, parameters, body),
            output_schema=_build_output_schema(document, operation.get("responses")),
        ),
        method=method.upper(),
        base_url=base_url
        or find_server_url(document, operation.get("servers"), path_item.get("servers"), document.root.get("servers")),
        path=path,
        parameters=parameters,
        body=body,
        security=operation.get("security", document.root.get("security")),
    )


def _drop_output_schema(description: OperationDescription) -> OperationDescription:
    return dataclasses.replace(description, spec=dataclasses.replace(description.spec, output_schema=None))


def _to_operation_name(operation_id: Any) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", str(operation_id)).strip("_")[:_MAX_NAME_CHARS] or "operation"


def _build_description(operation: Mapping[str, Any], path_item: Mapping[str, Any]) -> str:
    texts = [str(operation.get(key) or path_item.get(key) or "").strip() for key in ("summary", "description")]
    paragraphs = [text for text in dict.fromkeys(texts) if text]
    return "\n\n".join(["Deprecated.", *paragraphs] if operation.get("deprecated") is True else paragraphs)


def _build_input_schema(document: Document, parameters: list[Parameter], body: RequestBody | None) -> Schema:
    bundle = SchemaBundle(document, "request", takes_files=body is not None and body.body_type == "multipart")
    properties = {
        parameter.key: _with_description(bundle.convert(parameter.schema), parameter.description)
        for parameter in parameters
    }
    required = [parameter.key for parameter in parameters if parameter.is_required]
    if body is not None:
        properties[BODY_KEY] = _with_description(body.input_schema(bundle), body.description)
        required += [BODY_KEY] if body.is_required else []
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    definitions = bundle.definitions
    return {**schema, "$defs": definitions} if definitions else schema


def _with_description(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description} if description and not isinstance(schema, bool) else schema


def _build_output_schema(document: Document, responses: Any) -> Schema | None:
    """Return one schema for all successful JSON responses, or `None` if there are none or one has no schema."""
    if not isinstance(responses, Mapping):
        return None
    successes = [status for status in responses if re.fullmatch(r"2[0-9X]{2}", str(status).upper())]
    schemas: list[Any] = []
    for status in successes:
        response = document.resolve(responses[status] or {}, f"the response {status}")
        content = response.get("content")
        if isinstance(content, Mapping) and content:
            schemas += _find_json_schemas(document, content)
        elif str(status) not in _BODILESS_STATUSES:
            return None
    # Schemas are dicts, which have no hash, so duplicates are found by comparison.
    distinct = [schema for index, schema in enumerate(schemas) if schema not in schemas[:index]]
    if not distinct or None in distinct:
        return None
    return SchemaBundle(document, "response").convert_standalone(
        distinct[0] if len(distinct) == 1 else {"anyOf": distinct}
    )


def _find_json_schemas(document: Document, content: Mapping[str, Any]) -> list[Any]:
    """Return the schema of `application/json`, the first choice of requests, or else those of all other JSON types."""
    json_types = {str(name): media for name, media in content.items() if is_json_type(str(name))}
    preferred = [name for name in json_types if get_media_type(name) == "application/json"]
    return [
        document.resolve(json_types[name] or {}, f"the content {name}").get("schema")
        for name in preferred or json_types
    ]


class HTTPCall:
    """The handler of an operation: sends the request and reads the response."""

    def __init__(
        self,
        operation: OperationDescription,
        client: httpx2.AsyncClient,
        security: Security,
        headers: Mapping[str, str],
        timeout: float | None,
        limits: ResponseLimits,
        large_bodies: LargeBodyStore | BodySpools | None,
        *,
        cross_host_redirects: bool = False,
    ) -> None:
        self._operation = operation
        self._client = client
        self._security = security
        self._headers = headers
        self._timeout = timeout
        self._limits = limits
        # A body that has to be parsed for its schema is needed in memory.
        is_parsed = has_rules(operation.spec.output_schema)
        self._large_bodies = None if is_parsed and isinstance(large_bodies, BodySpools) else large_bodies
        self._cross_host_redirects = cross_host_redirects

    def __repr__(self) -> str:
        return f"<Call {self._operation.method} {self._operation.base_url}{self._operation.path}>"

    async def __call__(self, arguments: Any, context: CallContext) -> ResponseEnvelope[Any]:
        """Send the request. Raises `CallError` if the request fails or the status is 400 or more."""
        operation_id = self._operation.spec.id
        requirement, alternatives = self._security.choose(self._operation.security)
        async with DeadlineScope(earliest_deadline(context.deadline, deadline_after(self._timeout)), operation_id):
            applied = await self._security.apply(requirement)
            request = self._build_request(arguments or {}, applied)
            async with send(
                self._client, request, applied, operation_id, cross_host_redirects=self._cross_host_redirects
            ) as response:
                if response.status_code >= 400:
                    raise await read_error(
                        response, applied, self._limits, requirement, alternatives, operation_id=operation_id
                    )
                principal = context.identity.id if context.identity else None
                return await read_envelope(
                    response, self._limits, self._large_bodies, operation_id=operation_id, principal=principal
                )

    def _build_request(self, arguments: Any, applied_security: AppliedSecurity) -> httpx2.Request:
        try:
            return self._assemble_request(arguments, applied_security)
        except (TypeError, ValueError, httpx2.InvalidURL) as error:
            # The input has a lone surrogate or a value that JSON cannot express, or it makes the URL too long.
            raise CallError("VALIDATION_ERROR", f"the input cannot be sent: {error!s:.200}") from None

    def _assemble_request(self, arguments: Any, applied_security: AppliedSecurity) -> httpx2.Request:
        if not isinstance(arguments, Mapping):
            raise CallError("VALIDATION_ERROR", f"the input is an object, not {type(arguments).__name__}")
        operation = self._operation
        target = fill_path(operation.path, operation.parameters, arguments)
        # Some documents distinguish operations of one path by a query or a fragment in the path.
        path, _, fixed_query = target.partition("#")[0].partition("?")
        query = "&".join(
            filter(None, [fixed_query, build_query(operation.parameters, arguments), *applied_security.query])
        )
        cookies = [*build_cookies(operation.parameters, arguments), *applied_security.cookies]
        content, content_type = self._encode_body(arguments)
        headers = httpx2.Headers({"Accept": _ACCEPT}, encoding="utf-8")
        # Later headers replace earlier ones of the same name.
        for source in (self._headers, build_headers(operation.parameters, arguments), applied_security.headers):
            for name, value in source.items():
                headers[name] = value
        if cookies:
            headers["Cookie"] = merge_cookies("; ".join(cookies), headers.get("Cookie", ""))
        if content_type is not None:
            headers["Content-Type"] = content_type
        context: dict[str, str] = {}
        inject_context(context)
        headers.update(context)
        url = f"{operation.base_url}{path}" + (f"?{query}" if query else "")
        return new_request(self._client, operation.method, url, headers, content)

    def _encode_body(self, arguments: Mapping[str, Any]) -> tuple[bytes | None, str | None]:
        body = self._operation.body
        if body is None or BODY_KEY not in arguments:
            return None, None
        return body.encode(arguments[BODY_KEY])
