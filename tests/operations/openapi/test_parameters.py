"""Parameters of every style, as they arrive at a server."""

import asyncio
import dataclasses
import math
from collections.abc import Awaitable, Iterator
from typing import Any, cast

import httpx2
import pytest
from forebay import InvalidArgument
from forebay.operations import CallContext, CallError, OperationRegistry, from_openapi
from http_api import API, Answer, document, http_api, one


@pytest.fixture(scope="module")
def api() -> Iterator[API]:
    with http_api() as started:
        yield started


def call(api: API, paths: dict[str, Any], given: dict[str, Any], **options: Any) -> Any:
    async def run() -> Any:
        async with await from_openapi(document(paths, api.url), namespace="api", **options) as operations:
            return await operations.register_into(OperationRegistry()).execute("api.op", given)

    return asyncio.run(run())


def target(api: API, parameter: dict[str, Any], value: Any, path: str = "/x") -> str:
    call(api, one(path, parameters=[{"name": "color", **parameter}]), {"color": value})
    return api.last.target


LIST = ["blue", "black", "brown"]
OBJECT = {"R": 100, "G": 200, "B": 150}

# The table of the specification, "Style Examples": empty, a text, a list, an object.
STYLES: list[tuple[str, str, bool, list[str | None]]] = [
    ("path", "matrix", False, [";color", ";color=blue", ";color=blue,black,brown", ";color=R,100,G,200,B,150"]),
    ("path", "matrix", True, [";color", ";color=blue", ";color=blue;color=black;color=brown", ";R=100;G=200;B=150"]),
    ("path", "label", False, [None, ".blue", ".blue,black,brown", ".R,100,G,200,B,150"]),
    ("path", "label", True, [None, ".blue", ".blue.black.brown", ".R=100.G=200.B=150"]),
    ("path", "simple", False, [None, "blue", "blue,black,brown", "R,100,G,200,B,150"]),
    ("path", "simple", True, [None, "blue", "blue,black,brown", "R=100,G=200,B=150"]),
    ("query", "form", False, ["color=", "color=blue", "color=blue,black,brown", "color=R,100,G,200,B,150"]),
    ("query", "form", True, ["color=", "color=blue", "color=blue&color=black&color=brown", "R=100&G=200&B=150"]),
    ("query", "spaceDelimited", False, ["color=", "color=blue", "color=blue%20black%20brown",
                                        "color=R%20100%20G%20200%20B%20150"]),
    ("query", "pipeDelimited", False, ["color=", "color=blue", "color=blue%7Cblack%7Cbrown",
                                       "color=R%7C100%7CG%7C200%7CB%7C150"]),
    ("query", "spaceDelimited", True, ["color=", "color=blue", "color=blue&color=black&color=brown",
                                       "R=100&G=200&B=150"]),
    ("query", "deepObject", True, ["color=", "color=blue", "color=blue&color=black&color=brown",
                                   "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150"]),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("where", "style", "explode", "expected"), STYLES)
def test_the_table_of_styles(api: API, where: str, style: str, explode: bool, expected: list[str | None]) -> None:
    path = "/x/{color}" if where == "path" else "/x"
    parameter = {"in": where, "style": style, "explode": explode}
    for value, wanted in zip(["", "blue", LIST, OBJECT], expected, strict=True):
        if wanted is None:
            with pytest.raises(CallError, match="cannot be empty"):
                target(api, parameter, value, path)
        else:
            assert target(api, parameter, value, path) == ("/x/" if where == "path" else "/x?") + wanted


@pytest.mark.parametrize(
    ("where", "value", "plain", "exploded"),
    [
        ("header", "blue", "blue", "blue"),
        ("header", LIST, "blue,black,brown", "blue,black,brown"),
        ("header", OBJECT, "R,100,G,200,B,150", "R=100,G=200,B=150"),
        ("cookie", "blue", "color=blue", "color=blue"),
        ("cookie", LIST, "color=blue,black,brown", "color=blue; color=black; color=brown"),
        ("cookie", OBJECT, "color=R,100,G,200,B,150", "R=100; G=200; B=150"),
    ],
)
def test_headers_and_cookies(api: API, where: str, value: Any, plain: str, exploded: str) -> None:
    for explode, expected in ((False, plain), (True, exploded)):
        target(api, {"in": where, "explode": explode}, value)
        assert api.last.header("color" if where == "header" else "cookie") == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [("path", "/x/blue,black,brown"), ("query", "/x?color=blue&color=black&color=brown")],
)
def test_styles_that_the_document_does_not_say(api: API, where: str, expected: str) -> None:
    path = "/x/{color}" if where == "path" else "/x"
    assert target(api, {"in": where}, LIST, path) == expected
    # In YAML, a key without a value.
    assert target(api, {"in": where, "style": None, "explode": None}, LIST, path) == expected


NASTY = "a/b?c#d&e=f g+h%2Fi;j,k.l é\U0001f600"
ENCODED = "a%2Fb%3Fc%23d%26e%3Df%20g%2Bh%252Fi%3Bj%2Ck.l%20%C3%A9%F0%9F%98%80"


@pytest.mark.parametrize(
    ("of_client", "options", "expected"),
    [
        ({}, {"headers": {"Cookie": "session=1; color=red"}}, ["color=blue", "session=1"]),
        ({"cookies": {"session": "1", "color": "red"}}, {}, ["color=blue", "session=1"]),
        ({"headers": {"Cookie": "session=1"}}, {}, ["color=blue", "session=1"]),
        ({"cookies": {"a": "1"}}, {"headers": {"Cookie": "b=2"}}, ["color=blue", "b=2", "a=1"]),
    ],
)
def test_a_cookie_does_not_take_the_place_of_others(
    api: API, of_client: Any, options: Any, expected: list[str]
) -> None:
    api.answers["/first"] = Answer(status=307, headers=[("Location", "/y"), ("Set-Cookie", "a=new; Path=/")])
    paths = one("/first", parameters=[{"name": "color", "in": "cookie"}])

    async def run() -> None:
        async with httpx2.AsyncClient(**of_client) as client:
            operations = await from_openapi(document(paths, api.url), client, **options)
            await operations.register_into(OperationRegistry()).execute("api.op", {"color": "blue"})

    asyncio.run(run())
    first, second = ((each.header("cookie") or "").split("; ") for each in api.arrived[-2:])
    assert first == expected
    # What the client remembers of the first answer goes with the second request.
    assert {*second} >= {"a=new", *(each for each in expected if each != "a=1")}
    assert "color=red" not in second


def test_values_are_percent_encoded(api: API) -> None:
    assert target(api, {"in": "path"}, NASTY, "/x/{color}/y") == f"/x/{ENCODED}/y"
    assert target(api, {"in": "query"}, NASTY) == f"/x?color={ENCODED}"
    assert target(api, {"in": "query"}, {"a&b": "c=d"}) == "/x?a%26b=c%3Dd"
    target(api, {"in": "cookie"}, "a; b=c")
    assert api.last.header("cookie") == "color=a%3B%20b%3Dc"


def test_reserved_characters_are_left_where_the_document_allows_them(api: API) -> None:
    said = {"in": "query", "allowReserved": True}
    assert target(api, said, "a/b?c:d@e,f;g=h") == "/x?color=a/b?c:d@e,f;g=h"
    # These would end the value.
    assert target(api, said, "a#b&c+d") == "/x?color=a%23b%26c%2Bd"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/x?action=list", "/x?action=list&color=a%23b"),
        ("/x#action=list", "/x?color=a%23b"),
        ("/x?action=list#part?", "/x?action=list&color=a%23b"),
        ("/x/{id}?and={and}", "/x/%3F%23?and=%26&color=a%23b"),
    ],
)
def test_a_path_may_have_a_query_or_a_fragment(api: API, path: str, expected: str) -> None:
    places = {name: value for name, value in {"id": "?#", "and": "&"}.items() if name in path}
    call(api, one(path, parameters=[{"name": "color", "in": "query"}]), {"color": "a#b", **places})
    assert api.last.target == expected


@pytest.mark.parametrize("value", ["", ".", ".."])
def test_a_value_does_not_leave_its_place_in_the_path(api: API, value: str) -> None:
    before = len(api.arrived)
    with pytest.raises(CallError, match="cannot be empty") as caught:
        target(api, {"in": "path"}, value, "/x/{color}/y")
    assert caught.value.code == "VALIDATION_ERROR"
    assert len(api.arrived) == before


def test_a_missing_path_parameter_is_found_before_anything_is_sent(api: API) -> None:
    before = len(api.arrived)
    paths = one("/x/{color}", parameters=[{"name": "color", "in": "path"}])
    with pytest.raises(CallError, match="color") as caught:
        call(api, paths, {})
    assert caught.value.code == "VALIDATION_ERROR"

    async def without_a_registry() -> None:
        async with await from_openapi(document(paths, api.url)) as operations:
            await cast("Awaitable[Any]", operations[0].handler({}, CallContext()))

    with pytest.raises(CallError, match="color is missing") as caught:
        asyncio.run(without_a_registry())
    assert caught.value.code == "VALIDATION_ERROR"
    assert len(api.arrived) == before


def test_a_place_in_the_path_that_no_parameter_tells_of_is_one(api: API) -> None:
    call(api, one("/x/{a}.{b}", parameters=[{"name": "gone", "in": "path", "required": True}]), {"a": "1", "b": "2"})
    assert api.last.target == "/x/1.2"


@pytest.mark.parametrize(
    ("value", "text"), [(True, "true"), (1.5, "1.5"), (10**30, str(10**30)), ({"a": [1]}, "a=%5B1%5D"), (None, None)]
)
def test_values_that_are_no_text(api: API, value: Any, text: str | None) -> None:
    expected = "" if text is None else f"?{text}" if "=" in text else f"?color={text}"
    assert target(api, {"in": "query"}, value) == f"/x{expected}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "value", ["\ud800", ["\ud800"], b"\xff", float("nan"), [float("-inf")], object()], ids=lambda value: repr(value)[:8]
)
@pytest.mark.parametrize("where", ["path", "query", "cookie", "form"])
def test_values_that_cannot_be_sent_are_the_fault_of_the_input(api: API, value: Any, where: str) -> None:
    form: dict[str, Any] = {"requestBody": {"content": {"application/x-www-form-urlencoded": {}}}}
    said = form if where == "form" else {"parameters": [{"name": "color", "in": where}]}
    given = {"body": {"color": value}} if where == "form" else {"color": value}
    before = len(api.arrived)
    with pytest.raises(CallError) as caught:
        call(api, one("/x/{color}" if where == "path" else "/x", "post", **said), given)
    assert caught.value.code == "VALIDATION_ERROR"
    assert len(api.arrived) == before


@dataclasses.dataclass
class Point:
    x: float


NAN = float("nan")


@pytest.mark.slow
@pytest.mark.parametrize("value", [{"a": [NAN]}, {"a": {"b": -math.inf}}, {"a": Point(NAN)}, {"a": [None, {"b": NAN}]}])
@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_what_is_no_number_is_not_sent_as_null(api: API, value: Any, kind: str) -> None:
    before = len(api.arrived)
    in_body: Any = {"requestBody": {"content": {kind: {}}}}, {"body": {"color": value}}
    in_content: Any = {"parameters": [{"name": "color", "in": "query", "content": {kind: {}}}]}, {"color": value}
    in_style: Any = {"parameters": [{"name": "color", "in": "query"}]}, {"color": value}
    for said, given in (in_body, in_content, in_style):
        with pytest.raises(CallError) as caught:
            call(api, one("/x", "post", **said), given)
        assert caught.value.code == "VALIDATION_ERROR"
    assert len(api.arrived) == before


def test_null_is_sent_as_null(api: API) -> None:
    body = {"a": None, "b": Point(1.5), "c": {7}}
    call(api, one("/x", "post", requestBody={"content": {"application/json": {}}}), {"body": body})
    assert api.last.body == b'{"a":null,"b":{"x":1.5},"c":[7]}'


def test_more_than_a_url_can_hold_is_not_sent(api: API) -> None:
    with pytest.raises(CallError, match="too long") as caught:
        target(api, {"in": "query"}, "a" * 70_000)
    assert caught.value.code == "VALIDATION_ERROR"


def test_an_empty_list_is_nothing(api: API) -> None:
    for explode in (True, False):
        assert target(api, {"in": "query", "explode": explode}, []) == "/x"


def test_a_parameter_with_content_is_json(api: API) -> None:
    said = {"content": {"application/json": {"schema": {"type": "object"}}}}
    assert target(api, {"in": "query", **said}, {"a": [1, "b"]}) == "/x?color=%7B%22a%22%3A%5B1%2C%22b%22%5D%7D"
    target(api, {"in": "header", **said}, {"a": 1})
    assert api.last.header("color") == '{"a":1}'


def test_parameters_of_a_client_come_after_those_of_a_call(api: API) -> None:
    async def run() -> None:
        client = httpx2.AsyncClient(params={"tenant": "t 1", "q": "of the client"})
        async with client, await from_openapi(document(paths, api.url), client, namespace="api") as operations:
            await operations.register_into(OperationRegistry()).execute("api.op", {"q": ["a,b", "c"]})

    paths = one("/x", parameters=[{"name": "q", "in": "query", "explode": False}])
    asyncio.run(run())
    assert api.last.target == "/x?q=a%2Cb,c&tenant=t+1"


@pytest.mark.parametrize(
    ("content_type", "value", "expected"),
    [
        ("text/plain", "a b", "a%20b"),
        ("application/xml", "<a/>", "%3Ca%2F%3E"),
        ("application/problem+json; v=1", "a", "%22a%22"),
        ("*/*", "a", "%22a%22"),
        # There is no style to take it apart with.
        ("text/plain", {"a": 1}, "%7B%22a%22%3A1%7D"),
        ("text/plain", [1, 2], "%5B1%2C2%5D"),
    ],
)
def test_a_parameter_with_content_is_what_that_says(api: API, content_type: str, value: Any, expected: str) -> None:
    assert target(api, {"in": "query", "content": {content_type: {}}}, value) == f"/x?color={expected}"


@pytest.mark.parametrize("name", ["Host", "Content-Length", "connection", "Transfer-Encoding"])
def test_a_parameter_does_not_say_what_the_request_itself_does(api: API, name: str) -> None:
    paths = one("/x", parameters=[{"name": name, "in": "header", "required": True}])
    call(api, paths, {})
    with pytest.raises(CallError, match=name):
        call(api, paths, {name: "3"})


def test_deep_objects_go_as_deep_as_they_are(api: API) -> None:
    said = {"in": "query", "style": "deepObject"}
    assert target(api, said, {"a": {"b": [1, 2]}}) == "/x?color%5Ba%5D%5Bb%5D=1&color%5Ba%5D%5Bb%5D=2"


def test_names_in_several_places_are_told_by_where_they_are(api: API) -> None:
    places = [{"name": "id", "in": where, "schema": {"type": "string"}} for where in ("path", "query", "header")]
    more = [{"name": name, "in": "query"} for name in ("body", "query_id")]
    body: dict[str, Any] = {"content": {"application/json": {}}}
    paths = one("/x/{id}", "post", parameters=[*places, *more], requestBody=body)
    given = {
        "path_id": "p",
        "query_id_": "q",
        "header_id": "h",
        "query_body": "qb",
        "query_id": "own",
        "body": {"b": 1},
    }
    call(api, paths, given)
    assert api.last.target == "/x/p?id=q&body=qb&query_id=own"
    assert api.last.header("id") == "h"
    assert api.last.body == b'{"b":1}'


def test_parameters_of_the_path_are_those_of_its_operations(api: API) -> None:
    shared = [
        {"name": "a", "in": "query"},
        {"name": "b", "in": "query", "required": True, "schema": {"type": "string"}},
    ]
    paths = one(item={"parameters": shared}, parameters=[{"name": "b", "in": "query", "schema": {"type": "integer"}}])
    call(api, paths, {"a": "x"})
    assert api.last.target == "/?a=x"
    call(api, paths, {"b": 1})
    with pytest.raises(CallError, match="integer"):
        call(api, paths, {"b": "x"})


def test_what_no_parameter_is_called_is_refused(api: API) -> None:
    with pytest.raises(CallError, match="colour") as caught:
        call(api, one(parameters=[{"name": "color", "in": "query"}]), {"colour": "blue"})
    assert caught.value.code == "VALIDATION_ERROR"


def test_headers_that_are_no_parameters(api: API) -> None:
    names = ["Accept", "Content-Type", "Authorization", "X-Own"]
    paths = one(parameters=[{"name": name, "in": "header", "required": True} for name in names])
    call(api, paths, {"X-Own": "ü"})
    assert (api.last.header("x-own") or "").encode("latin-1") == "ü".encode()
    with pytest.raises(CallError, match="line breaks") as caught:
        call(api, paths, {"X-Own": "a\r\nX-Evil: 1"})
    assert caught.value.code == "VALIDATION_ERROR"


@pytest.mark.parametrize(
    "parameter",
    [{"name": "a"}, {"in": "query"}, {"name": "a", "in": "body"}, {"name": "a", "in": "query", "style": "simple"}],
)
def test_a_parameter_that_cannot_be_written_is_told_of(api: API, parameter: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="parameter"):
        call(api, one(parameters=[parameter]), {})
