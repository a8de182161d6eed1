"""Redirects: which are followed, and what is sent along."""

import asyncio
from typing import Any

import httpx2
import pytest
from forebay.operations import CallError, OperationRegistry, from_openapi
from http_api import API, Answer, document, single_operation
from openapi_secrets import PLAIN_SECRET, call, secured_document

FOLLOW: dict[str, Any] = {"cross_host_redirects": True}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", ["{other}/y", "//{host}/y", "//user@{host}/y", "/back"])
def test_redirect_to_another_host_is_not_followed(api: API, other_host: API, location: str, status: int) -> None:
    api.answers["/x"] = Answer(
        status=status, headers=[("Location", location.format(other=other_host.url, host=other_host.host))]
    )
    api.answers["/back"] = Answer(status=status, headers=[("Location", f"{other_host.url}/y")])
    with pytest.raises(CallError, match=r"another host.*base_url.*cross_host_redirects") as caught:
        call(api, [{"in_header": []}], {"in_header": PLAIN_SECRET})
    assert caught.value.details == {"status": status}
    assert other_host.requests == []


def test_document_is_not_fetched_from_another_host(api: API, other_host: API) -> None:
    api.answers["/openapi.json"] = Answer(status=302, headers=[("Location", f"{other_host.url}/openapi.json")])
    with pytest.raises(CallError, match="another host"):
        asyncio.run(from_openapi(f"{api.url}/openapi.json"))
    assert other_host.requests == []


@pytest.mark.parametrize(
    ("target", "is_followed"),
    [("https://api.test/y", True), ("https://api.test:8443/y", False), ("https://other.test/y", False)],
)
def test_redirect_from_http_to_https_stays_on_the_host(target: str, is_followed: bool) -> None:
    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        is_first = request.url.scheme == "http"
        return httpx2.Response(302, headers={"Location": target}) if is_first else httpx2.Response(200, json={})

    async def run() -> None:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
            source = document(single_operation("/x"), "http://api.test")
            operations = await from_openapi(source, client, headers={"X-Own": PLAIN_SECRET})
            await operations.register_into(OperationRegistry()).execute("api.op", {})

    if is_followed:
        asyncio.run(run())
        assert "x-own" not in seen[1].headers
    else:
        with pytest.raises(CallError, match="another host"):
            asyncio.run(run())
    assert len(seen) == 1 + is_followed


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirect_to_another_host_drops_credentials(api: API, other_host: API, status: int) -> None:
    api.answers["/x"] = Answer(status=status, headers=[("Location", f"{other_host.url}/y?key={PLAIN_SECRET}&page=2")])
    requirements: list[dict[str, Any]] = [{name: [] for name in ("in_header", "in_query", "in_cookie", "bearer")}]
    call(api, requirements, dict.fromkeys(requirements[0], PLAIN_SECRET), headers={"X-Own": PLAIN_SECRET}, **FOLLOW)
    assert api.last.target == f"/x?key={PLAIN_SECRET}"
    [request] = other_host.requests
    assert request.target == "/y?page=2"
    assert PLAIN_SECRET not in str(request)
    assert request.header("accept") is not None


def test_redirect_to_another_host_drops_credentials_of_the_client(api: API, other_host: API) -> None:
    api.answers["/x"] = Answer(status=307, headers=[("Location", f"{other_host.url}/y")])
    other_host.answers["/y"] = Answer(status=302, headers=[("Location", "/z")])
    other_host.answers["/z"] = Answer(status=302, headers=[("Location", f"{api.url}/back")])

    async def run() -> None:
        client = httpx2.AsyncClient(
            headers={"X-Client": PLAIN_SECRET}, auth=("ann", PLAIN_SECRET), cookies={"session": PLAIN_SECRET}
        )
        async with client:
            operations = await from_openapi(secured_document(api, []), client, **FOLLOW)
            await operations.register_into(OperationRegistry()).execute("api.op", {})

    asyncio.run(run())
    first, back = api.requests
    assert first.header("x-client") == PLAIN_SECRET
    assert first.header("cookie") == f"session={PLAIN_SECRET}"
    assert (first.header("authorization") or "").startswith("Basic")
    assert [request.target for request in other_host.requests] == ["/y", "/z"]
    for request in (*other_host.requests, back):
        assert [request.header(name) for name in ("x-client", "cookie", "authorization")] == [None] * 3


def test_redirect_on_the_same_host_keeps_credentials(api: API) -> None:
    api.answers["/x"] = Answer(status=307, headers=[("Location", "/y")])
    call(api, [{"in_header": [], "in_cookie": []}], {"in_header": "hh", "in_cookie": "cc"})
    assert (api.last.target, api.last.header("x-key"), api.last.header("cookie")) == ("/y", "hh", "session=cc")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("", f"/x?key={PLAIN_SECRET}"),
        ("#part", f"/x?key={PLAIN_SECRET}"),
        ("?page=2", "/x?page=2"),
        ("y", "/y"),
        ("/y/../z#part", "/z"),
    ],
)
def test_redirect_is_relative_to_the_request_url(api: API, location: str, target: str) -> None:
    api.default_answer = Answer(status=302, headers=[("Location", location)])
    with pytest.raises(CallError, match="redirects") as caught:
        call(api, [{"in_query": []}], {"in_query": PLAIN_SECRET})
    assert [request.target for request in api.requests] == [f"/x?key={PLAIN_SECRET}", *[target] * 10]
    assert PLAIN_SECRET not in str(caught.value)


def test_redirect_to_a_bare_host_drops_the_query(api: API, other_host: API) -> None:
    api.answers["/x"] = Answer(status=302, headers=[("Location", f"//{other_host.host}")])
    call(api, [{"in_query": []}], {"in_query": PLAIN_SECRET}, **FOLLOW)
    assert [request.target for request in other_host.requests] == ["/"]


def test_redirect_repeats_the_body(api: API) -> None:
    api.answers["/x"] = Answer(status=308, headers=[("Location", "/y")])
    paths = single_operation("/x", "post", requestBody={"content": {"application/json": {}}})

    async def run() -> None:
        async with await from_openapi(document(paths, api.url)) as operations:
            await operations.register_into(OperationRegistry()).execute("api.op", {"body": [1]})

    asyncio.run(run())
    assert (api.last.method, api.last.target, api.last.body) == ("POST", "/y", b"[1]")


def test_number_of_redirects_is_limited(api: API) -> None:
    api.default_answer = Answer(status=307, headers=[("Location", "/x")])
    with pytest.raises(CallError, match="redirects") as caught:
        call(api, [], {})
    assert caught.value.code == "EXECUTION_ERROR"
    assert len(api.requests) == 11


@pytest.mark.parametrize("location", ["ftp://127.0.0.1/x", "file:///etc/passwd", "http://[", "data:,x"])
def test_redirect_to_another_scheme_is_an_error(api: API, location: str) -> None:
    api.default_answer = Answer(status=302, headers=[("Location", location)])
    with pytest.raises(CallError) as caught:
        call(api, [], {})
    assert caught.value.code == "EXECUTION_ERROR"


@pytest.mark.parametrize(("status", "method"), [(307, "post"), (308, "post"), (301, "put"), (301, "delete")])
def test_body_is_not_redirected_to_another_host(api: API, other_host: API, status: int, method: str) -> None:
    api.answers["/x"] = Answer(status=status, headers=[("Location", f"{other_host.url}/y")])
    paths = single_operation("/x", method, requestBody={"content": {"application/json": {}}})

    async def run() -> None:
        async with await from_openapi(document(paths, api.url), **FOLLOW) as operations:
            await operations.register_into(OperationRegistry()).execute("api.op", {"body": {"password": PLAIN_SECRET}})

    with pytest.raises(CallError, match=r"sent on to 127\.0\.0\.1.*base_url"):
        asyncio.run(run())
    assert other_host.requests == []
