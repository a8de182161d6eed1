"""Credentials: where they are sent, and that they are never shown."""

import asyncio
import base64
import json
import logging
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx2
import pytest
from forebay import InvalidArgument
from forebay.operations import CallError, OperationRegistry, from_openapi
from http_api import API, Answer, document
from openapi_secrets import PLAIN_SECRET, SCHEMES, SECRET, call, secured_document


async def get_secret_async() -> str:
    await asyncio.sleep(0)
    return PLAIN_SECRET


@pytest.mark.parametrize(
    ("scheme", "credential", "header", "value"),
    [
        ("in_header", PLAIN_SECRET, "X-Key", PLAIN_SECRET),
        ("in_header", lambda: PLAIN_SECRET, "X-Key", PLAIN_SECRET),
        ("in_header", get_secret_async, "X-Key", PLAIN_SECRET),
        ("in_cookie", SECRET, "Cookie", "session=s3cr%2Ft%2B%C3%BC%3D5"),
        ("basic", ("ann", SECRET), "Authorization", "Basic " + base64.b64encode(f"ann:{SECRET}".encode()).decode()),
        ("basic", lambda: ("ann", "x"), "Authorization", "Basic YW5uOng="),
        ("bearer", PLAIN_SECRET, "Authorization", f"Bearer {PLAIN_SECRET}"),
        ("oauth", PLAIN_SECRET, "Authorization", f"Bearer {PLAIN_SECRET}"),
        ("openid", get_secret_async, "Authorization", f"Bearer {PLAIN_SECRET}"),
    ],
)
def test_credentials_in_headers_and_cookies(api: API, scheme: str, credential: Any, header: str, value: str) -> None:
    call(api, [{scheme: []}], {scheme: credential})
    assert api.last.header(header) == value
    assert api.last.target == "/x"


def test_credential_in_the_query(api: API) -> None:
    call(api, [{"in_query": []}], {"in_query": SECRET})
    assert api.last.target == "/x?key=s3cr%2Ft%2B%C3%BC%3D5"


def test_first_satisfiable_requirement_is_used(api: API) -> None:
    requirements: list[dict[str, Any]] = [{"bearer": [], "in_header": []}, {"in_header": []}, {"in_cookie": []}]
    call(api, requirements, {"in_cookie": "cc", "in_header": "hh"})
    assert (api.last.header("x-key"), api.last.header("cookie")) == ("hh", None)
    call(api, requirements, {"in_header": "hh", "bearer": "bb"})
    assert (api.last.header("x-key"), api.last.header("authorization")) == ("hh", "Bearer bb")
    call(api, [{}, {"in_header": []}], {"in_header": "hh"})
    assert api.last.header("x-key") == "hh"


def test_credentials_are_sent_only_where_required(api: API) -> None:
    unmet: list[list[dict[str, Any]]] = [[], [{}], [{"in_cookie": []}]]
    for requirements in unmet:
        call(api, requirements, {"in_header": "hh"})
        assert (api.last.header("x-key"), api.last.header("cookie")) == (None, None)


def test_operation_overrides_security_of_the_document(api: API) -> None:
    paths = {"/a": {"get": {"operationId": "a"}}, "/b": {"get": {"operationId": "b", "security": []}}}

    async def run() -> None:
        source = document(paths, api.url, security=[{"in_header": []}], components={"securitySchemes": SCHEMES})
        async with await from_openapi(source, security={"in_header": "hh"}) as operations:
            registry = operations.register_into(OperationRegistry())
            await registry.execute("api.a", {})
            await registry.execute("api.b", {})

    asyncio.run(run())
    assert [request.header("x-key") for request in api.requests] == ["hh", None]


def test_401_names_the_required_schemes(api: API) -> None:
    api.default_answer = Answer(b"", status=401)
    with pytest.raises(CallError, match="bearer and in_header or in_cookie: give it in security=") as caught:
        call(api, [{"bearer": [], "in_header": []}, {"in_cookie": []}], {})
    assert caught.value.details["status"] == 401
    with pytest.raises(CallError) as caught:
        call(api, [], {})
    assert "security" not in str(caught.value)
    with pytest.raises(CallError, match="what was given for the security scheme in_cookie was refused") as caught:
        call(api, [{"bearer": [], "in_header": []}, {"in_cookie": []}], {"in_cookie": PLAIN_SECRET})
    assert "give it" not in str(caught.value)


def test_unknown_security_scheme(api: API) -> None:
    with pytest.raises(InvalidArgument, match=r"no such security scheme: token; there are in_header, .*openid"):
        call(api, [], {"token": SECRET})


def test_security_scheme_of_an_unsupported_type(api: API) -> None:
    with pytest.raises(CallError, match=r"certificate is not supported; .* in headers="):
        call(api, [{"certificate": []}], {"certificate": SECRET})
    assert api.requests == []


@pytest.mark.parametrize(
    ("scheme", "credential"),
    [("basic", SECRET), ("bearer", ("ann", SECRET)), ("in_header", ""), ("in_header", SECRET + "\r\nX: y")],
)
def test_wrong_kind_of_credential_is_refused_but_not_shown(api: API, scheme: str, credential: Any) -> None:
    with pytest.raises(CallError) as caught:
        call(api, [{scheme: []}], {scheme: credential})
    assert "s3cr" not in str(caught.value)
    assert api.requests == []


def raise_with_secret() -> str:
    raise RuntimeError(f"could not unwrap {SECRET}")


BASIC = base64.b64encode(f"ann:{SECRET}".encode()).decode()

ESCAPED_SECRET = "s3cr%2Ft%2B%C3%BC%3D5"  # noqa: S105


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "credential", "secrets"),
    [
        ("in_header", PLAIN_SECRET, [PLAIN_SECRET]),
        ("in_query", SECRET, [SECRET, ESCAPED_SECRET]),
        ("in_cookie", SECRET, [SECRET, ESCAPED_SECRET]),
        ("basic", ("ann", SECRET), [SECRET, BASIC]),
        ("bearer", PLAIN_SECRET, [PLAIN_SECRET]),
        ("bearer", raise_with_secret, [SECRET]),
    ],
)
@pytest.mark.parametrize("outcome", ["ok", "echoed", "refused", "unreachable", "redirected"])
def test_secrets_are_never_shown(
    api: API, scheme: str, credential: Any, secrets: list[str], outcome: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    if outcome == "echoed":
        headers = [("WWW-Authenticate", secrets[-1])] if secrets[-1].isascii() else []
        api.default_answer = Answer(f"not good: {secrets}".encode(), "text/plain; charset=utf-8", 403, headers)
    if outcome == "refused":
        api.default_answer = Answer(b"no", status=401)
    if outcome == "redirected":
        api.answers["/x"] = Answer(status=307, headers=[("Location", f"/y?key={ESCAPED_SECRET}")])
    if outcome in ("echoed", "redirected"):
        # At DEBUG level, httpcore logs all headers of a response.
        caplog.set_level(logging.INFO, "httpcore2")
    base_url = "http://127.0.0.1:1" if outcome == "unreachable" else api.url
    outputs: list[str] = []

    async def run() -> None:
        source = secured_document(api, [{scheme: []}])
        async with await from_openapi(source, security={scheme: credential}, base_url=base_url) as operations:
            registry = operations.register_into(OperationRegistry())
            handler = operations[0].handler
            outputs.extend(map(repr, [operations, operations[0], handler, *vars(handler).values()]))
            try:
                outputs.append(repr(await registry.execute("api.op", {})))
            except CallError as error:
                outputs.extend([str(error), repr(error), str(error.to_dict()), repr(error.__cause__)])

    asyncio.run(run())
    outputs.append(caplog.text)
    assert "httpx2" in caplog.text or credential is raise_with_secret or outcome == "unreachable"
    for secret in secrets:
        assert secret not in "\n".join(outputs)


def test_secret_in_the_reason_phrase_is_redacted(api: API) -> None:
    def refuse(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(403, f"no such key: {PLAIN_SECRET}")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    api.answers["/x"] = refuse
    with pytest.raises(CallError, match="answered 403 no such key: ") as caught:
        call(api, [{"bearer": []}], {"bearer": PLAIN_SECRET})
    assert PLAIN_SECRET not in str(caught.value.to_dict())


@pytest.mark.slow
def test_secret_at_the_cut_of_an_error_is_redacted(api: API) -> None:
    for offset in range(40):
        api.default_answer = Answer(b"x" * offset + (PLAIN_SECRET.encode() + b" ") * 20_000, "text/plain", 400)
        with pytest.raises(CallError) as caught:
            call(api, [{"bearer": []}], {"bearer": PLAIN_SECRET}, max_error_bytes=45)
        assert "plain" not in caught.value.details["body"]


def test_extra_headers_are_sent(api: API) -> None:
    call(api, [], {}, headers={"X-Own": "1", "accept": "text/csv"})
    assert (api.last.header("x-own"), api.last.header("accept")) == ("1", "text/csv")
    assert [name.lower() for name, _ in api.last.headers].count("accept") == 1


def fetch_and_call(api: API, **options: Any) -> Any:
    async def run() -> Any:
        async with await from_openapi(f"{api.url}/openapi.json", namespace="api", **options) as operations:
            return await operations.register_into(OperationRegistry()).execute("api.op", {})

    return asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"headers": {"X-Own": PLAIN_SECRET}}, {"security": {"in_header": PLAIN_SECRET}}])
def test_fetched_document_cannot_send_credentials_to_another_host(api: API, other_host: API, options: Any) -> None:
    source = secured_document(other_host, [{"in_header": []}])
    api.answers["/openapi.json"] = Answer(json.dumps(source).encode())
    with pytest.raises(InvalidArgument, match=f"{other_host.url}, which is not.*base_url"):
        fetch_and_call(api, **options)
    assert other_host.requests == []
    fetch_and_call(api)
    fetch_and_call(api, **options, base_url=other_host.url)
    assert len(other_host.requests) == 2
    api.answers["/openapi.json"] = Answer(json.dumps(secured_document(api, [{"in_header": []}])).encode())
    fetch_and_call(api, **options)


@pytest.mark.parametrize(
    "client_options",
    [
        {"headers": {"X-Own": PLAIN_SECRET}},
        {"auth": ("ann", PLAIN_SECRET)},
        {"cookies": {"c": PLAIN_SECRET}},
        {"params": {"key": PLAIN_SECRET}},
    ],
)
def test_fetched_document_cannot_send_client_credentials_to_another_host(
    api: API, other_host: API, client_options: Any
) -> None:
    async def run() -> None:
        async with httpx2.AsyncClient(**client_options) as client:
            await from_openapi(f"{api.url}/openapi.json", client)

    api.answers["/openapi.json"] = Answer(json.dumps(secured_document(other_host, [])).encode())
    with pytest.raises(InvalidArgument, match="base_url"):
        asyncio.run(run())


def test_public_headers_are_not_redacted(api: API) -> None:
    api.default_answer = Answer(b"{}", status=403)
    with pytest.raises(CallError) as caught:
        call_bearer(api, headers={"Accept": "application/json", "Accept-Encoding": "identity"})
    assert caught.value.details["headers"] == {"content-type": "application/json"}
    assert api.last.header("Accept-Encoding") == "identity"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("secret", "escaped"),
    [
        ('se"cr/et\\tök', json.dumps('se"cr/et\\tök')),
        ('se"cr/et\\tök', json.dumps('se"cr/et\\tök', ensure_ascii=False)),
        ("se/cret/token", '"se\\/cret\\/token"'),
        ("  padded-secret ", "padded-secret"),
        ("with a space/in it", "with+a+space%2Fin+it"),
    ],
)
def test_escaped_secrets_are_redacted(api: API, secret: str, escaped: str) -> None:
    api.default_answer = Answer(f"you sent {escaped}!".encode(), "text/plain; charset=utf-8", 403)
    for options in ({"security": {"bearer": secret}}, {"headers": {"X-Own": secret}}):
        with pytest.raises(CallError) as caught:
            call_bearer(api, **options)
        assert caught.value.details["body"].replace('"', "") == "you sent [hidden]!"


def call_bearer(api: API, **options: Any) -> Any:
    async def run() -> Any:
        async with await from_openapi(secured_document(api, [{"bearer": []}]), **options) as operations:
            return await operations.register_into(OperationRegistry()).execute("api.op", {})

    return asyncio.run(run())


def test_token_in_a_header_is_redacted_without_its_prefix(api: API) -> None:
    api.default_answer = Answer(f"token {PLAIN_SECRET} is unknown".encode(), "text/plain", 403)
    with pytest.raises(CallError) as caught:
        call_bearer(api, headers={"Authorization": f"Bearer {PLAIN_SECRET}"})
    assert caught.value.details["body"] == "token [hidden] is unknown"


@pytest.mark.parametrize("place", ["base_url", "client", "document", "server"])
def test_password_in_a_url_is_refused_but_not_shown(api: API, place: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    url = api.url.replace("//", f"//ann:{PLAIN_SECRET}@")
    source = secured_document(api, [])
    arguments: dict[str, dict[str, Any]] = {
        "base_url": {"document_or_url": source, "base_url": url},
        "client": {"document_or_url": source, "client": httpx2.AsyncClient(base_url=url)},
        "document": {"document_or_url": f"{url}/openapi.json"},
        "server": {"document_or_url": {**source, "servers": [{"url": url}]}},
    }
    with pytest.raises(InvalidArgument, match=r"a user or a password.*security=") as caught:
        asyncio.run(from_openapi(**arguments[place]))
    assert PLAIN_SECRET not in str(caught.value) + caplog.text
    assert api.requests == []
