"""Request bodies of every kind, as the server receives them."""

import asyncio
import base64
import email
import email.policy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from forebay.operations import CallContext, CallError, OperationRegistry, from_openapi
from http_api import API, document, http_api, single_operation


@pytest.fixture(scope="module")
def api() -> Iterator[API]:
    with http_api() as server:
        yield server


def send(api: API, content: dict[str, Any], body: Any, version: str = "3.1.0", **more: Any) -> bytes:
    """Send a body and return the bytes that the server received."""
    paths = single_operation("/x", "post", requestBody={"required": True, "content": content})

    async def run() -> None:
        source = document(paths, api.url, version=version, **more)
        async with await from_openapi(source, namespace="api") as operations:
            await operations.register_into(OperationRegistry()).execute("api.op", {"body": body})

    asyncio.run(run())
    return api.last.body


def received_parts(api: API) -> dict[str, list[tuple[str | None, str | None, bytes]]]:
    """Return file name, content type and content of the parts of the last request, by name."""
    head = f"Content-Type: {api.last.header('content-type')}\r\n\r\n".encode()
    parts: dict[str, list[tuple[str | None, str | None, bytes]]] = {}
    message = email.message_from_bytes(head + api.last.body, policy=email.policy.HTTP)
    for part in message.iter_parts():
        name = str(part.get_param("name", header="content-disposition"))
        content_type = part.get_content_type() if "content-type" in part else None
        content = cast("bytes", part.get_payload(decode=True))
        parts.setdefault(name, []).append((part.get_filename(), content_type, content))
    return parts


@pytest.mark.parametrize("content_type", ["application/json", "application/vnd.api+json", "application/json; v=2"])
def test_json(api: API, content_type: str) -> None:
    body: dict[str, Any] = {"a": [1, None, "é"], "big": 10**30}
    send(api, {content_type: {}}, body)
    assert json.loads(api.last.body) == body
    assert api.last.header("content-type") == content_type


def test_json_is_preferred_and_else_the_first(api: API) -> None:
    send(api, {"text/plain": {}, "application/x-www-form-urlencoded": {}, "application/json": {}}, {"a": 1})
    assert api.last.header("content-type") == "application/json"
    send(api, {"application/x-www-form-urlencoded": {}, "text/plain": {}}, {"a": 1})
    assert api.last.header("content-type") == "application/x-www-form-urlencoded"
    send(api, {"*/*": {}}, [1])
    assert (api.last.header("content-type"), api.last.body) == ("application/json", b"[1]")


def test_invalid_or_missing_body_is_not_sent(api: API) -> None:
    before = len(api.requests)
    content = {"application/json": {"schema": {"type": "object", "required": ["id"]}}}
    bodies: list[Any] = [{}, None]
    for body in bodies:
        with pytest.raises(CallError) as caught:
            send(api, content, body)
        assert caught.value.code == "VALIDATION_ERROR"
    assert len(api.requests) == before


def test_omitted_optional_body_is_not_sent(api: API) -> None:
    paths = single_operation("/x", "post", requestBody={"content": {"application/json": {}}})

    async def run() -> None:
        async with await from_openapi(document(paths, api.url)) as operations:
            registry = operations.register_into(OperationRegistry())
            await registry.execute("api.op", {})
            assert (api.last.body, api.last.header("content-type")) == (b"", None)
            await registry.execute("api.op", {"body": None})
            assert (api.last.body, api.last.header("content-type")) == (b"null", "application/json")

    asyncio.run(run())


def test_forms(api: API) -> None:
    content: dict[str, Any] = {"application/x-www-form-urlencoded": {}}
    body = {"a": "x y&z=é", "list": [1, 2], "object": {"b": True}, "none": None}
    assert send(api, content, body) == b"a=x%20y%26z%3D%C3%A9&list=1&list=2&object=%7B%22b%22%3Atrue%7D"


def test_forms_with_styles(api: API) -> None:
    encoding = {
        "piped": {"style": "pipeDelimited"},
        "deep": {"style": "deepObject"},
        "together": {"explode": False},
        "reserved": {"allowReserved": True},
        "json": {"contentType": "application/json"},
    }
    body = {"piped": [1, 2], "deep": {"a": 1}, "together": ["x", "y"], "reserved": "a/b", "json": [1]}
    received = send(api, {"application/x-www-form-urlencoded": {"encoding": encoding}}, body)
    assert received == b"piped=1%7C2&deep%5Ba%5D=1&together=x,y&reserved=a/b&json=%5B1%5D"


FILE = {"type": "string", "format": "binary"}
PNG = b"\x89PNG\r\n\x00\xff"
PNG_TEXT = base64.b64encode(PNG).decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "file"),
    [
        ("3.0.3", FILE),
        ("3.1.0", FILE),
        ("3.1.0", {"type": "string", "contentMediaType": "application/octet-stream"}),
        ("3.1.0", {"anyOf": [FILE, {"type": "null"}]}),
        ("3.1.0", {"anyOf": [True, FILE]}),
        ("3.0.3", {"$ref": "#/components/schemas/File"}),
    ],
)
@pytest.mark.parametrize(
    ("value", "filename", "content_type"),
    [
        (PNG, "f", "application/octet-stream"),
        (PNG_TEXT, "f", "application/octet-stream"),
        ({"content": PNG_TEXT, "filename": 'ü".png', "contentType": "image/png"}, 'ü".png', "image/png"),
        ({"content": PNG}, "f", "application/octet-stream"),
    ],
)
def test_files(api: API, version: str, file: Any, value: Any, filename: str, content_type: str) -> None:
    schema = {"type": "object", "properties": {"f": file}, "required": ["f"]}
    content = {"multipart/form-data": {"schema": {"$ref": "#/components/schemas/Form"}}}
    components = {"schemas": {"Form": {"allOf": [schema]}, "File": FILE}}
    send(api, content, {"f": value}, version, components=components)
    [(name, kind, received)] = received_parts(api)["f"]
    assert (kind, received) == (content_type, PNG)
    assert name is not None
    assert name.replace("%22", '"') == filename


def test_multipart_fields_of_all_types(api: API) -> None:
    schema = {
        "properties": {
            "many": {"type": "array", "items": FILE},
            "encoded": {"type": "string", "format": "byte"},
        }
    }
    encoding = {"many": {"contentType": "image/png, image/jpeg"}, "csv": {"contentType": "text/csv"}}
    body = {
        "many": [PNG, PNG_TEXT],
        "encoded": PNG_TEXT,
        "text": "é",
        "number": 1,
        "object": {"a": 1},
        "list": ["x", "y"],
        "csv": "a,b",
        "none": None,
    }
    send(api, {"multipart/form-data": {"schema": schema, "encoding": encoding}}, body)
    assert received_parts(api) == {
        "many": [("many", "image/png", PNG)] * 2,
        "encoded": [(None, None, PNG_TEXT.encode())],
        "text": [(None, None, "é".encode())],
        "number": [(None, None, b"1")],
        "object": [(None, "application/json", b'{"a":1}')],
        "list": [(None, None, b"x"), (None, None, b"y")],
        "csv": [(None, "text/csv", b"a,b")],
    }


@pytest.mark.parametrize("body", [{"f": "not base64!"}, {"f": {"content": "?"}}, {"f": 7}, {}, "text"])
def test_invalid_form_is_not_sent(api: API, body: Any) -> None:
    before = len(api.requests)
    with pytest.raises(CallError) as caught:
        send(api, {"multipart/form-data": {"schema": {"properties": {"f": FILE}}}}, body)
    assert caught.value.code == "VALIDATION_ERROR"
    assert len(api.requests) == before


def test_file_name_cannot_inject_headers(api: API) -> None:
    schema = {"properties": {"f": FILE}}
    value = {"content": PNG, "filename": 'a"\r\nX-Evil: 1', "contentType": "image/png"}
    send(api, {"multipart/form-data": {"schema": schema}}, {"f": value})
    assert b"\r\nX-Evil" not in api.last.body
    value = {"content": PNG, "filename": "a", "contentType": "image/png\r\nX-Evil: 1"}
    with pytest.raises(CallError, match="control character"):
        send(api, {"multipart/form-data": {"schema": schema}}, {"f": value})


@pytest.mark.parametrize(
    ("content_type", "body", "sent_type", "received"),
    [
        ("text/plain", "é", "text/plain; charset=utf-8", "é".encode()),
        ("text/plain; charset=ISO-8859-1", "é", "text/plain; charset=ISO-8859-1", b"\xe9"),
        ('text/plain; charset="ISO-8859-1"; v=1', "名", "text/plain; charset=utf-8; v=1", "名".encode()),
        ("text/plain; charset=hex", "ab", "text/plain; charset=utf-8", b"ab"),
        ("application/json; charset=iso-8859-1", "é", "application/json; charset=utf-8", '"é"'.encode()),
        ("text/csv; charset=utf-8", "a,b", "text/csv; charset=utf-8", b"a,b"),
        ("application/xml", "<a/>", "application/xml; charset=utf-8", b"<a/>"),
        ("text/*", "x", "text/plain; charset=utf-8", b"x"),
        ("text/csv; charset=ISO-8859-1", b"\xe9", "text/csv; charset=ISO-8859-1", b"\xe9"),
        ("application/octet-stream", PNG, "application/octet-stream", PNG),
        ("application/octet-stream", PNG_TEXT, "application/octet-stream", PNG),
        ("image/png", PNG_TEXT, "image/png", PNG),
        ("image/*", PNG_TEXT, "application/octet-stream", PNG),
    ],
)
def test_texts_and_bytes(api: API, content_type: str, body: Any, sent_type: str, received: bytes) -> None:
    schema = {"type": "string", "format": "binary"} if isinstance(body, bytes) else {}
    assert send(api, {content_type: {"schema": schema}}, body) == received
    assert api.last.header("content-type") == sent_type


@pytest.mark.parametrize(
    ("media_type", "body"),
    [
        ("application/octet-stream", Path("abcd")),
        ("multipart/form-data", {"f": Path("abcd")}),
        ("multipart/form-data", {"f": {"content": Path("abcd")}}),
    ],
)
def test_path_object_as_file_is_refused(media_type: str, body: Any) -> None:
    schema = {"type": "object", "properties": {"f": {"type": "string", "format": "binary"}}}
    paths = single_operation("/x", "post", requestBody={"content": {media_type: {"schema": schema}}})

    async def run() -> None:
        async with await from_openapi(document(paths, "http://127.0.0.1:1"), namespace="api") as operations:
            await cast("Any", operations[0].handler({"body": body}, CallContext()))

    with pytest.raises(CallError, match="read it, and give bytes"):
        asyncio.run(run())


def test_content_type_that_is_not_a_string(api: API) -> None:
    send(api, cast("Any", {7: {}, "application/json": {}}), {"a": 1})
    assert api.last.header("content-type") == "application/json"


def test_invalid_base64_is_refused(api: API) -> None:
    with pytest.raises(CallError, match="body is not base64") as caught:
        send(api, {"application/octet-stream": {}}, "not base64!")
    assert caught.value.code == "VALIDATION_ERROR"
