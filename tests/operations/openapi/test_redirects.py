"""Where an HTTP API may send a call on to, and what goes with it there."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from forebay.operations import CallError, OperationRegistry, from_openapi
from http_api import API, Answer, document, http_api, one
from openapi_secrets import PLAIN, call, described


@pytest.fixture
def api() -> Iterator[API]:
    with http_api() as started:
        yield started


@pytest.fixture
def other_host() -> Iterator[API]:
    with http_api() as started:
        yield started


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_take_no_secrets_to_another_host(api: API, other_host: API, status: int) -> None:
    api.answers["/x"] = Answer(status=status, headers=[("Location", f"{other_host.url}/y?key={PLAIN}&page=2")])
    wanted: list[dict[str, Any]] = [{name: [] for name in ("in_header", "in_query", "in_cookie", "bearer")}]
    call(api, wanted, dict.fromkeys(wanted[0], PLAIN), headers={"X-Own": PLAIN})
    assert api.last.target == f"/x?key={PLAIN}"
    [arrived] = other_host.arrived
    assert arrived.target == "/y?page=2"
    assert PLAIN not in str(arrived)
    assert arrived.header("accept") is not None


def test_redirects_take_no_secrets_of_a_client_to_another_host(api: API, other_host: API) -> None:
    api.answers["/x"] = Answer(status=307, headers=[("Location", f"{other_host.url}/y")])
    other_host.answers["/y"] = Answer(status=302, headers=[("Location", "/z")])
    other_host.answers["/z"] = Answer(status=302, headers=[("Location", f"{api.url}/back")])

    async def run() -> None:
        client = httpx2.AsyncClient(headers={"X-Client": PLAIN}, auth=("ann", PLAIN), cookies={"session": PLAIN})
        async with client:
            operations = await from_openapi(described(api, []), client)
            await operations.register_into(OperationRegistry()).execute("api.op", {})

    asyncio.run(run())
    first, back = api.arrived
    assert first.header("x-client") == PLAIN
    assert first.header("cookie") == f"session={PLAIN}"
    assert (first.header("authorization") or "").startswith("Basic")
    assert [each.target for each in other_host.arrived] == ["/y", "/z"]
    for arrived in (*other_host.arrived, back):
        assert [arrived.header(name) for name in ("x-client", "cookie", "authorization")] == [None] * 3


def test_redirects_on_the_same_host_keep_them(api: API) -> None:
    api.answers["/x"] = Answer(status=307, headers=[("Location", "/y")])
    call(api, [{"in_header": [], "in_cookie": []}], {"in_header": "hh", "in_cookie": "cc"})
    assert (api.last.target, api.last.header("x-key"), api.last.header("cookie")) == ("/y", "hh", "session=cc")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("", f"/x?key={PLAIN}"),
        ("#part", f"/x?key={PLAIN}"),
        ("?page=2", "/x?page=2"),
        ("y", "/y"),
        ("/y/../z#part", "/z"),
    ],
)
def test_a_redirect_starts_from_where_the_request_went(api: API, location: str, target: str) -> None:
    api.usual = Answer(status=302, headers=[("Location", location)])
    with pytest.raises(CallError, match="redirects") as caught:
        call(api, [{"in_query": []}], {"in_query": PLAIN})
    assert [each.target for each in api.arrived] == [f"/x?key={PLAIN}", *[target] * 10]
    assert PLAIN not in str(caught.value)


def test_a_redirect_to_a_bare_host_takes_no_query_there(api: API, other_host: API) -> None:
    api.answers["/x"] = Answer(status=302, headers=[("Location", f"//{other_host.host}")])
    call(api, [{"in_query": []}], {"in_query": PLAIN})
    assert [each.target for each in other_host.arrived] == ["/"]


def test_a_redirect_repeats_the_body(api: API) -> None:
    api.answers["/x"] = Answer(status=308, headers=[("Location", "/y")])
    paths = one("/x", "post", requestBody={"content": {"application/json": {}}})

    async def run() -> None:
        async with await from_openapi(document(paths, api.url)) as operations:
            await operations.register_into(OperationRegistry()).execute("api.op", {"body": [1]})

    asyncio.run(run())
    assert (api.last.method, api.last.target, api.last.body) == ("POST", "/y", b"[1]")


def test_redirects_come_to_an_end(api: API) -> None:
    api.usual = Answer(status=307, headers=[("Location", "/x")])
    with pytest.raises(CallError, match="redirects") as caught:
        call(api, [], {})
    assert caught.value.code == "EXECUTION_ERROR"
    assert len(api.arrived) == 11


@pytest.mark.parametrize("location", ["ftp://127.0.0.1/x", "file:///etc/passwd", "http://[", "data:,x"])
def test_redirects_out_of_http(api: API, location: str) -> None:
    api.usual = Answer(status=302, headers=[("Location", location)])
    with pytest.raises(CallError) as caught:
        call(api, [], {})
    assert caught.value.code == "EXECUTION_ERROR"


@pytest.mark.parametrize(("status", "method"), [(307, "post"), (308, "post"), (301, "put"), (301, "delete")])
def test_a_body_is_not_sent_on_to_another_host(api: API, other_host: API, status: int, method: str) -> None:
    api.answers["/x"] = Answer(status=status, headers=[("Location", f"{other_host.url}/y")])
    paths = one("/x", method, requestBody={"content": {"application/json": {}}})

    async def run() -> None:
        async with await from_openapi(document(paths, api.url)) as operations:
            await operations.register_into(OperationRegistry()).execute("api.op", {"body": {"password": PLAIN}})

    with pytest.raises(CallError, match=r"sent on to 127\.0\.0\.1.*base_url"):
        asyncio.run(run())
    assert other_host.arrived == []
