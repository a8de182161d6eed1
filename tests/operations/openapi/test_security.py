"""Credentials: where they go, and where they never show."""

import asyncio
import base64
import json
import logging
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx2
import pytest
from forebay import InvalidArgument
from forebay.operations import CallError, OperationRegistry, from_openapi
from http_api import API, Answer, document, http_api
from openapi_secrets import PLAIN, SCHEMES, SECRET, call, described


@pytest.fixture
def api() -> Iterator[API]:
    with http_api() as started:
        yield started


@pytest.fixture
def other_host() -> Iterator[API]:
    with http_api() as started:
        yield started


async def later() -> str:
    await asyncio.sleep(0)
    return PLAIN


@pytest.mark.parametrize(
    ("scheme", "credential", "header", "value"),
    [
        ("in_header", PLAIN, "X-Key", PLAIN),
        ("in_header", lambda: PLAIN, "X-Key", PLAIN),
        ("in_header", later, "X-Key", PLAIN),
        ("in_cookie", SECRET, "Cookie", "session=s3cr%2Ft%2B%C3%BC%3D5"),
        ("basic", ("ann", SECRET), "Authorization", "Basic " + base64.b64encode(f"ann:{SECRET}".encode()).decode()),
        ("basic", lambda: ("ann", "x"), "Authorization", "Basic YW5uOng="),
        ("bearer", PLAIN, "Authorization", f"Bearer {PLAIN}"),
        ("oauth", PLAIN, "Authorization", f"Bearer {PLAIN}"),
        ("openid", later, "Authorization", f"Bearer {PLAIN}"),
    ],
)
def test_where_credentials_go(api: API, scheme: str, credential: Any, header: str, value: str) -> None:
    call(api, [{scheme: []}], {scheme: credential})
    assert api.last.header(header) == value
    assert api.last.target == "/x"


def test_a_key_in_the_query(api: API) -> None:
    call(api, [{"in_query": []}], {"in_query": SECRET})
    assert api.last.target == "/x?key=s3cr%2Ft%2B%C3%BC%3D5"


def test_the_first_requirement_that_can_be_met_is(api: API) -> None:
    wanted: list[dict[str, Any]] = [{"bearer": [], "in_header": []}, {"in_header": []}, {"in_cookie": []}]
    call(api, wanted, {"in_cookie": "cc", "in_header": "hh"})
    assert (api.last.header("x-key"), api.last.header("cookie")) == ("hh", None)
    call(api, wanted, {"in_header": "hh", "bearer": "bb"})
    assert (api.last.header("x-key"), api.last.header("authorization")) == ("hh", "Bearer bb")
    call(api, [{}, {"in_header": []}], {"in_header": "hh"})
    assert api.last.header("x-key") == "hh"


def test_nothing_is_sent_where_nothing_is_wanted(api: API) -> None:
    without: list[list[dict[str, Any]]] = [[], [{}], [{"in_cookie": []}]]
    for wanted in without:
        call(api, wanted, {"in_header": "hh"})
        assert (api.last.header("x-key"), api.last.header("cookie")) == (None, None)


def test_what_the_document_wants_everywhere_is_wanted_unless_an_operation_says_otherwise(api: API) -> None:
    paths = {"/a": {"get": {"operationId": "a"}}, "/b": {"get": {"operationId": "b", "security": []}}}

    async def run() -> None:
        told = document(paths, api.url, security=[{"in_header": []}], components={"securitySchemes": SCHEMES})
        async with await from_openapi(told, security={"in_header": "hh"}) as operations:
            registry = operations.register_into(OperationRegistry())
            await registry.execute("api.a", {})
            await registry.execute("api.b", {})

    asyncio.run(run())
    assert [each.header("x-key") for each in api.arrived] == ["hh", None]


def test_an_answer_of_401_says_what_is_wanted(api: API) -> None:
    api.usual = Answer(b"", status=401)
    with pytest.raises(CallError, match="bearer and in_header or in_cookie: give it in security=") as caught:
        call(api, [{"bearer": [], "in_header": []}, {"in_cookie": []}], {})
    assert caught.value.details["status"] == 401
    with pytest.raises(CallError) as caught:
        call(api, [], {})
    assert "security" not in str(caught.value)
    with pytest.raises(CallError, match="what was given for the security scheme in_cookie was refused") as caught:
        call(api, [{"bearer": [], "in_header": []}, {"in_cookie": []}], {"in_cookie": PLAIN})
    assert "give it" not in str(caught.value)


def test_a_scheme_that_the_document_does_not_have(api: API) -> None:
    with pytest.raises(InvalidArgument, match=r"no such security scheme: token; there are in_header, .*openid"):
        call(api, [], {"token": SECRET})


@pytest.mark.parametrize(
    ("scheme", "credential"),
    [("basic", SECRET), ("bearer", ("ann", SECRET)), ("in_header", ""), ("in_header", SECRET + "\r\nX: y")],
)
def test_a_credential_of_the_wrong_kind_is_told_of_and_not_shown(api: API, scheme: str, credential: Any) -> None:
    with pytest.raises(CallError) as caught:
        call(api, [{scheme: []}], {scheme: credential})
    assert "s3cr" not in str(caught.value)
    assert api.arrived == []


def broken() -> str:
    raise RuntimeError(f"could not unwrap {SECRET}")


BASIC = base64.b64encode(f"ann:{SECRET}".encode()).decode()

IN_URLS = "s3cr%2Ft%2B%C3%BC%3D5"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "credential", "secrets"),
    [
        ("in_header", PLAIN, [PLAIN]),
        ("in_query", SECRET, [SECRET, IN_URLS]),
        ("in_cookie", SECRET, [SECRET, IN_URLS]),
        ("basic", ("ann", SECRET), [SECRET, BASIC]),
        ("bearer", PLAIN, [PLAIN]),
        ("bearer", broken, [SECRET]),
    ],
)
@pytest.mark.parametrize("fate", ["ok", "echoed", "refused", "nobody", "redirected"])
def test_secrets_show_nowhere(
    api: API, scheme: str, credential: Any, secrets: list[str], fate: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    if fate == "echoed":
        headers = [("WWW-Authenticate", secrets[-1])] if secrets[-1].isascii() else []
        api.usual = Answer(f"not good: {secrets}".encode(), "text/plain; charset=utf-8", 403, headers)
    if fate == "refused":
        api.usual = Answer(b"no", status=401)
    if fate == "redirected":
        api.answers["/x"] = Answer(status=307, headers=[("Location", f"/y?key={IN_URLS}")])
    if fate in ("echoed", "redirected"):
        # The transport shows at this level what a server sends, whatever that is.
        caplog.set_level(logging.INFO, "httpcore2")
    base_url = "http://127.0.0.1:1" if fate == "nobody" else api.url
    shown: list[str] = []

    async def run() -> None:
        given = {scheme: credential}
        async with await from_openapi(described(api, [{scheme: []}]), security=given, base_url=base_url) as operations:
            registry = operations.register_into(OperationRegistry())
            handler = operations[0].handler
            shown.extend(map(repr, [operations, operations[0], handler, *vars(handler).values()]))
            try:
                shown.append(repr(await registry.execute("api.op", {})))
            except CallError as error:
                shown.extend([str(error), repr(error), str(error.to_dict()), repr(error.__cause__)])

    asyncio.run(run())
    shown.append(caplog.text)
    assert "httpx2" in caplog.text or credential is broken or fate == "nobody"
    for secret in secrets:
        assert secret not in "\n".join(shown)


def test_a_secret_in_the_reason_of_a_status_is_not_shown(api: API) -> None:
    def refuse(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(403, f"no such key: {PLAIN}")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    api.answers["/x"] = refuse
    with pytest.raises(CallError, match="answered 403 no such key: ") as caught:
        call(api, [{"bearer": []}], {"bearer": PLAIN})
    assert PLAIN not in str(caught.value.to_dict())


@pytest.mark.slow
def test_a_secret_at_the_cut_of_an_error_is_not_shown_in_part(api: API) -> None:
    for before in range(40):
        api.usual = Answer(b"x" * before + (PLAIN.encode() + b" ") * 20_000, "text/plain", 400)
        with pytest.raises(CallError) as caught:
            call(api, [{"bearer": []}], {"bearer": PLAIN}, max_error_bytes=45)
        assert "plain" not in caught.value.details["body"]


def test_headers_go_with_every_request(api: API) -> None:
    call(api, [], {}, headers={"X-Own": "1", "accept": "text/csv"})
    assert (api.last.header("x-own"), api.last.header("accept")) == ("1", "text/csv")
    assert [name.lower() for name, _ in api.last.headers].count("accept") == 1


def fetched(api: API, **options: Any) -> Any:
    async def run() -> Any:
        async with await from_openapi(f"{api.url}/openapi.json", namespace="api", **options) as operations:
            return await operations.register_into(OperationRegistry()).execute("api.op", {})

    return asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"headers": {"X-Own": PLAIN}}, {"security": {"in_header": PLAIN}}])
def test_a_fetched_document_does_not_choose_who_is_told_secrets(api: API, other_host: API, options: Any) -> None:
    elsewhere = described(other_host, [{"in_header": []}])
    api.answers["/openapi.json"] = Answer(json.dumps(elsewhere).encode())
    with pytest.raises(InvalidArgument, match=f"{other_host.url}, which is not.*base_url"):
        fetched(api, **options)
    assert other_host.arrived == []
    fetched(api)
    fetched(api, **options, base_url=other_host.url)
    assert len(other_host.arrived) == 2
    api.answers["/openapi.json"] = Answer(json.dumps(described(api, [{"in_header": []}])).encode())
    fetched(api, **options)


@pytest.mark.parametrize(
    "secret",
    [{"headers": {"X-Own": PLAIN}}, {"auth": ("ann", PLAIN)}, {"cookies": {"c": PLAIN}}, {"params": {"key": PLAIN}}],
)
def test_nor_who_is_told_the_secrets_of_a_client(api: API, other_host: API, secret: Any) -> None:
    async def run() -> None:
        async with httpx2.AsyncClient(**secret) as client:
            await from_openapi(f"{api.url}/openapi.json", client)

    api.answers["/openapi.json"] = Answer(json.dumps(described(other_host, [])).encode())
    with pytest.raises(InvalidArgument, match="base_url"):
        asyncio.run(run())


def test_what_everyone_may_see_is_not_hidden(api: API) -> None:
    api.usual = Answer(b"{}", status=403)
    with pytest.raises(CallError) as caught:
        asked(api, headers={"Accept": "application/json", "Accept-Encoding": "identity"})
    assert caught.value.details["headers"] == {"content-type": "application/json"}
    assert api.last.header("Accept-Encoding") == "identity"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("secret", "written"),
    [
        ('se"cr/et\\tök', json.dumps('se"cr/et\\tök')),
        ('se"cr/et\\tök', json.dumps('se"cr/et\\tök', ensure_ascii=False)),
        ("se/cret/token", '"se\\/cret\\/token"'),
        ("  padded-secret ", "padded-secret"),
        ("with a space/in it", "with+a+space%2Fin+it"),
    ],
)
def test_secrets_are_hidden_however_they_are_written(api: API, secret: str, written: str) -> None:
    api.usual = Answer(f"you sent {written}!".encode(), "text/plain; charset=utf-8", 403)
    for options in ({"security": {"bearer": secret}}, {"headers": {"X-Own": secret}}):
        with pytest.raises(CallError) as caught:
            asked(api, **options)
        assert caught.value.details["body"].replace('"', "") == "you sent [hidden]!"


def asked(api: API, **options: Any) -> Any:
    async def run() -> Any:
        async with await from_openapi(described(api, [{"bearer": []}]), **options) as operations:
            return await operations.register_into(OperationRegistry()).execute("api.op", {})

    return asyncio.run(run())


def test_a_token_in_headers_is_hidden_without_what_stands_before_it(api: API) -> None:
    api.usual = Answer(f"token {PLAIN} is unknown".encode(), "text/plain", 403)
    with pytest.raises(CallError) as caught:
        asked(api, headers={"Authorization": f"Bearer {PLAIN}"})
    assert caught.value.details["body"] == "token [hidden] is unknown"


@pytest.mark.parametrize("place", ["base_url", "client", "document", "server"])
def test_a_password_in_a_url_is_refused_and_not_shown(api: API, place: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    url = api.url.replace("//", f"//ann:{PLAIN}@")
    found = described(api, [])
    ways: dict[str, dict[str, Any]] = {
        "base_url": {"document_or_url": found, "base_url": url},
        "client": {"document_or_url": found, "client": httpx2.AsyncClient(base_url=url)},
        "document": {"document_or_url": f"{url}/openapi.json"},
        "server": {"document_or_url": {**found, "servers": [{"url": url}]}},
    }
    with pytest.raises(InvalidArgument, match=r"a user or a password.*security=") as caught:
        asyncio.run(from_openapi(**ways[place]))
    assert PLAIN not in str(caught.value) + caplog.text
    assert api.arrived == []
