"""The operations of a document: each with its name, its schemas, and what is needed to call it."""

import dataclasses
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from forebay.errors import InvalidArgument
from forebay.operations.envelope.body import says_json
from forebay.operations.openapi.bodies import RequestBody, read_body
from forebay.operations.openapi.document import Document
from forebay.operations.openapi.parameters import BODY, Parameter, read_parameters
from forebay.operations.openapi.schemas import Bundle, Names
from forebay.operations.openapi.servers import server_url
from forebay.operations.spec import OperationSpec
from forebay.operations.validation import Schema

__all__ = ["Described", "Include", "described_operations"]

_log = logging.getLogger("forebay")

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")

_LONGEST_NAME = 128

_WITHOUT_A_BODY = ("204", "205")

Include = Callable[[str, str, Mapping[str, Any]], bool]
"""Takes the method, the path and the operation as the document has it; whether it is wanted."""


@dataclasses.dataclass(frozen=True, slots=True)
class Described:
    """An operation as the document describes it."""

    spec: OperationSpec
    method: str
    base_url: str
    path: str
    parameters: list[Parameter]
    body: RequestBody | None
    security: Any
    """Its security requirements, those of the document where it has none."""


def described_operations(
    document: Document, namespace: str, base_url: str | None, include: Include | None, *, has_output: bool = True
) -> list[Described]:
    """All operations that are wanted, in the order of the document.

    One that cannot be used is left out, with a warning. Raises `InvalidArgument` if that leaves none.
    """
    names, trouble, found = Names(), _Trouble(), list[Described]()
    for path, method, item, operation in _wanted(document, include, trouble):
        name = names.free(_fit_name(operation.get("operationId") or f"{method}{path}"))
        with trouble.told_of(f"{method.upper()} {path}"):
            each = _described(document, namespace, name, method, path, item, operation, base_url)
            found.append(each if has_output else _without_output(each))
    if not found and trouble.first is not None:
        raise trouble.first
    return found


def _wanted(
    document: Document, include: Include | None, trouble: "_Trouble"
) -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]:
    """Path, method, what the path says for all methods, and the operation."""
    for path, node in document.root.get("paths", {}).items():
        if not str(path).startswith("/"):
            continue  # an extension, `x-…`
        item: Mapping[str, Any] = {}
        with trouble.told_of(path):
            item = document.resolved(node or {}, f"the path {path}")
        for method in _METHODS:
            if method not in item:
                continue
            operation: Mapping[str, Any] | None = None
            with trouble.told_of(f"{method.upper()} {path}"):
                operation = document.resolved(item[method], f"{method} {path}")
            if operation is not None and (include is None or include(method, path, operation)):
                yield path, method, item, operation


class _Trouble:
    """What is wrong with parts of a document: told of at once, and the first of it kept."""

    def __init__(self) -> None:
        self.first: InvalidArgument | None = None

    @contextmanager
    def told_of(self, where: str) -> Iterator[None]:
        try:
            yield
        except (InvalidArgument, RecursionError) as error:
            if not isinstance(error, InvalidArgument):
                error = InvalidArgument("this document is nested too deeply")
            self.first = self.first or error
            _log.warning("forebay: %s of this document is left out: %s", where, error)


def _described(
    document: Document,
    namespace: str,
    name: str,
    method: str,
    path: str,
    item: Mapping[str, Any],
    operation: Mapping[str, Any],
    base_url: str | None,
) -> Described:
    body = read_body(document, operation.get("requestBody"))
    parameters = read_parameters(
        document, path, item.get("parameters"), operation.get("parameters"), has_body=body is not None
    )
    return Described(
        spec=OperationSpec(
            namespace=namespace,
            name=name,
            type="query" if method in ("get", "head") else "mutation",
            description=_description(operation, item),
            input_schema=_input_schema(document, parameters, body),
            output_schema=_output_schema(document, operation.get("responses")),
        ),
        method=method.upper(),
        base_url=base_url
        or server_url(document, operation.get("servers"), item.get("servers"), document.root.get("servers")),
        path=path,
        parameters=parameters,
        body=body,
        security=operation.get("security", document.root.get("security")),
    )


def _without_output(described: Described) -> Described:
    return dataclasses.replace(described, spec=dataclasses.replace(described.spec, output_schema=None))


def _fit_name(wanted: Any) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", str(wanted)).strip("_")[:_LONGEST_NAME] or "operation"


def _description(operation: Mapping[str, Any], item: Mapping[str, Any]) -> str:
    told = [str(operation.get(key) or item.get(key) or "").strip() for key in ("summary", "description")]
    parts = [each for each in dict.fromkeys(told) if each]
    return "\n\n".join(["Deprecated.", *parts] if operation.get("deprecated") is True else parts)


def _input_schema(document: Document, parameters: list[Parameter], body: RequestBody | None) -> Schema:
    bundle = Bundle(document, "sent", takes_files=body is not None and body.kind == "multipart")
    properties = {each.key: _told(bundle.converted(each.schema), each.description) for each in parameters}
    required = [each.key for each in parameters if each.is_required]
    if body is not None:
        properties[BODY] = _told(body.input_schema(bundle), body.description)
        required += [BODY] if body.is_required else []
    found: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        found["required"] = required
    definitions = bundle.definitions
    return {**found, "$defs": definitions} if definitions else found


def _told(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description} if description and not isinstance(schema, bool) else schema


def _output_schema(document: Document, responses: Any) -> Schema | None:
    """What every success that is JSON fits. None where one of them may be anything: another's schema is not its own."""
    if not isinstance(responses, Mapping):
        return None
    successes = [status for status in responses if re.fullmatch(r"2[0-9X]{2}", str(status).upper())]
    schemas: list[Any] = []
    for status in successes:
        response = document.resolved(responses[status] or {}, f"the response {status}")
        content = response.get("content")
        if isinstance(content, Mapping) and content:
            schemas += _json_schemas(document, content)
        elif str(status) not in _WITHOUT_A_BODY:
            return None
    distinct = [each for index, each in enumerate(schemas) if each not in schemas[:index]]
    if not distinct or None in distinct:
        return None
    return Bundle(document, "received").whole(distinct[0] if len(distinct) == 1 else {"anyOf": distinct})


def _json_schemas(document: Document, content: Mapping[str, Any]) -> list[Any]:
    """The schemas of a response that is JSON. It is asked for as such, so what vendors call theirs comes second."""
    offered = {str(kind): media for kind, media in content.items() if says_json(str(kind))}
    plain = [kind for kind in offered if kind.partition(";")[0].strip().lower() == "application/json"]
    return [document.resolved(offered[kind] or {}, f"the content {kind}").get("schema") for kind in plain or offered]
