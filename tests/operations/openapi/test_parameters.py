"""Parameters of every style, as the server receives them."""

import asyncio
import dataclasses
import math
from collections.abc import Awaitable, Iterator
from typing import Any, cast

import httpx2
import pytest
from forebay import InvalidArgument
from forebay.operations import CallContext, CallError, OperationRegistry, from_openapi
from http_api import API, Answer, document, http_api, single_operation


@pytest.fixture(scope="module")
def api() -> Iterator[API]:
    with http_api() as server:
        yield server


def call(api: API, paths: dict[str, Any], arguments: dict[str, Any], **options: Any) -> Any:
    async def run() -> Any:
        async with await from_openapi(document(paths, api.url), namespace="api", **options) as operations:
            return await operations.register_into(OperationRegistry()).execute("api.op", arguments)

    return asyncio.run(run())


def send_parameter(api: API, parameter: dict[str, Any], value: Any, path: str = "/x") -> str:
    """Send the parameter `color` and return the request target that the server received."""
    call(api, single_operation(path, parameters=[{"name": "color", **parameter}]), {"color": value})
    return api.last.target


LIST = ["blue", "black", "brown"]
OBJECT = {"R": 100, "G": 200, "B": 150}

# "Style Examples" of the specification: an empty string, a string, a list, an object.
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
@pytest.mark.parametrize(("location", "style", "explode", "expected"), STYLES)
def test_style_examples_of_the_specification(
    api: API, location: str, style: str, explode: bool, expected: list[str | None]
) -> None:
    path = "/x/{color}" if location == "path" else "/x"
    parameter = {"in": location, "style": style, "explode": explode}
    for value, result in zip(["", "blue", LIST, OBJECT], expected, strict=True):
        if result is None:
            with pytest.raises(CallError, match="cannot be empty"):
                send_parameter(api, parameter, value, path)
        else:
            assert send_parameter(api, parameter, value, path) == ("/x/" if location == "path" else "/x?") + result


@pytest.mark.parametrize(
    ("location", "value", "plain", "exploded"),
    [
        ("header", "blue", "blue", "blue"),
        ("header", LIST, "blue,black,brown", "blue,black,brown"),
        ("header", OBJECT, "R,100,G,200,B,150", "R=100,G=200,B=150"),
        ("cookie", "blue", "color=blue", "color=blue"),
        ("cookie", LIST, "color=blue,black,brown", "color=blue; color=black; color=brown"),
        ("cookie", OBJECT, "color=R,100,G,200,B,150", "R=100; G=200; B=150"),
    ],
)
def test_headers_and_cookies(api: API, location: str, value: Any, plain: str, exploded: str) -> None:
    for explode, expected in ((False, plain), (True, exploded)):
        send_parameter(api, {"in": location, "explode": explode}, value)
        assert api.last.header("color" if location == "header" else "cookie") == expected


@pytest.mark.parametrize(
    ("location", "expected"),
    [("path", "/x/blue,black,brown"), ("query", "/x?color=blue&color=black&color=brown")],
)
def test_default_styles(api: API, location: str, expected: str) -> None:
    path = "/x/{color}" if location == "path" else "/x"
    assert send_parameter(api, {"in": location}, LIST, path) == expected
    # A YAML key without a value is null.
    assert send_parameter(api, {"in": location, "style": None, "explode": None}, LIST, path) == expected


SPECIAL_CHARACTERS = "a/b?c#d&e=f g+h%2Fi;j,k.l é\U0001f600"
ENCODED = "a%2Fb%3Fc%23d%26e%3Df%20g%2Bh%252Fi%3Bj%2Ck.l%20%C3%A9%F0%9F%98%80"


@pytest.mark.parametrize(
    ("client_options", "options", "expected"),
    [
        ({}, {"headers": {"Cookie": "session=1; color=red"}}, ["color=blue", "session=1"]),
        ({"cookies": {"session": "1", "color": "red"}}, {}, ["color=blue", "session=1"]),
        ({"headers": {"Cookie": "session=1"}}, {}, ["color=blue", "session=1"]),
        ({"cookies": {"a": "1"}}, {"headers": {"Cookie": "b=2"}}, ["color=blue", "b=2", "a=1"]),
    ],
)
def test_cookie_parameter_is_merged_with_other_cookies(
    api: API, client_options: Any, options: Any, expected: list[str]
) -> None:
    api.answers["/first"] = Answer(status=307, headers=[("Location", "/y"), ("Set-Cookie", "a=new; Path=/")])
    paths = single_operation("/first", parameters=[{"name": "color", "in": "cookie"}])

    async def run() -> None:
        async with httpx2.AsyncClient(**client_options) as client:
            operations = await from_openapi(document(paths, api.url), client, **options)
            await operations.register_into(OperationRegistry()).execute("api.op", {"color": "blue"})

    asyncio.run(run())
    first, second = ((request.header("cookie") or "").split("; ") for request in api.requests[-2:])
    assert first == expected
    # The second request also has the cookie that the first response set.
    assert {*second} >= {"a=new", *(cookie for cookie in expected if cookie != "a=1")}
    assert "color=red" not in second


def test_values_are_percent_encoded(api: API) -> None:
    assert send_parameter(api, {"in": "path"}, SPECIAL_CHARACTERS, "/x/{color}/y") == f"/x/{ENCODED}/y"
    assert send_parameter(api, {"in": "query"}, SPECIAL_CHARACTERS) == f"/x?color={ENCODED}"
    assert send_parameter(api, {"in": "query"}, {"a&b": "c=d"}) == "/x?a%26b=c%3Dd"
    send_parameter(api, {"in": "cookie"}, "a; b=c")
    assert api.last.header("cookie") == "color=a%3B%20b%3Dc"


def test_allow_reserved(api: API) -> None:
    parameter = {"in": "query", "allowReserved": True}
    assert send_parameter(api, parameter, "a/b?c:d@e,f;g=h") == "/x?color=a/b?c:d@e,f;g=h"
    # Unescaped, these would end the value.
    assert send_parameter(api, parameter, "a#b&c+d") == "/x?color=a%23b%26c%2Bd"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/x?action=list", "/x?action=list&color=a%23b"),
        ("/x#action=list", "/x?color=a%23b"),
        ("/x?action=list#part?", "/x?action=list&color=a%23b"),
        ("/x/{id}?and={and}", "/x/%3F%23?and=%26&color=a%23b"),
    ],
)
def test_path_with_a_query_or_a_fragment(api: API, path: str, expected: str) -> None:
    placeholders = {name: value for name, value in {"id": "?#", "and": "&"}.items() if name in path}
    call(api, single_operation(path, parameters=[{"name": "color", "in": "query"}]), {"color": "a#b", **placeholders})
    assert api.last.target == expected


@pytest.mark.parametrize("value", ["", ".", ".."])
def test_path_value_cannot_be_empty_or_dots(api: API, value: str) -> None:
    before = len(api.requests)
    with pytest.raises(CallError, match="cannot be empty") as caught:
        send_parameter(api, {"in": "path"}, value, "/x/{color}/y")
    assert caught.value.code == "VALIDATION_ERROR"
    assert len(api.requests) == before


def test_missing_path_parameter_is_refused_before_sending(api: API) -> None:
    before = len(api.requests)
    paths = single_operation("/x/{color}", parameters=[{"name": "color", "in": "path"}])
    with pytest.raises(CallError, match="color") as caught:
        call(api, paths, {})
    assert caught.value.code == "VALIDATION_ERROR"

    async def call_handler() -> None:
        async with await from_openapi(document(paths, api.url)) as operations:
            await cast("Awaitable[Any]", operations[0].handler({}, CallContext()))

    with pytest.raises(CallError, match="color is missing") as caught:
        asyncio.run(call_handler())
    assert caught.value.code == "VALIDATION_ERROR"
    assert len(api.requests) == before


def test_undeclared_placeholder_is_a_parameter(api: API) -> None:
    call(
        api,
        single_operation("/x/{a}.{b}", parameters=[{"name": "gone", "in": "path", "required": True}]),
        {"a": "1", "b": "2"},
    )
    assert api.last.target == "/x/1.2"


@pytest.mark.parametrize(
    ("value", "text"), [(True, "true"), (1.5, "1.5"), (10**30, str(10**30)), ({"a": [1]}, "a=%5B1%5D"), (None, None)]
)
def test_values_that_are_not_strings(api: API, value: Any, text: str | None) -> None:
    expected = "" if text is None else f"?{text}" if "=" in text else f"?color={text}"
    assert send_parameter(api, {"in": "query"}, value) == f"/x{expected}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "value", ["\ud800", ["\ud800"], b"\xff", float("nan"), [float("-inf")], object()], ids=lambda value: repr(value)[:8]
)
@pytest.mark.parametrize("location", ["path", "query", "cookie", "form"])
def test_unsendable_values_are_validation_errors(api: API, value: Any, location: str) -> None:
    form: dict[str, Any] = {"requestBody": {"content": {"application/x-www-form-urlencoded": {}}}}
    operation = form if location == "form" else {"parameters": [{"name": "color", "in": location}]}
    arguments = {"body": {"color": value}} if location == "form" else {"color": value}
    before = len(api.requests)
    with pytest.raises(CallError) as caught:
        call(api, single_operation("/x/{color}" if location == "path" else "/x", "post", **operation), arguments)
    assert caught.value.code == "VALIDATION_ERROR"
    assert len(api.requests) == before


@dataclasses.dataclass
class Point:
    x: float


NAN = float("nan")


@pytest.mark.slow
@pytest.mark.parametrize(
    "value",
    [{"a": [NAN]}, {"a": {"b": -math.inf}}, {"a": Point(NAN)}, {"a": [None, {"b": NAN}]}],
)
@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_nan_and_infinity_are_not_sent_as_null(api: API, value: Any, kind: str) -> None:
    before = len(api.requests)
    in_body: Any = {"requestBody": {"content": {kind: {}}}}, {"body": {"color": value}}
    in_content: Any = {"parameters": [{"name": "color", "in": "query", "content": {kind: {}}}]}, {"color": value}
    in_style: Any = {"parameters": [{"name": "color", "in": "query"}]}, {"color": value}
    for operation, arguments in (in_body, in_content, in_style):
        with pytest.raises(CallError) as caught:
            call(api, single_operation("/x", "post", **operation), arguments)
        assert caught.value.code == "VALIDATION_ERROR"
    assert len(api.requests) == before


def test_null_is_sent_as_null(api: API) -> None:
    body = {"a": None, "b": Point(1.5), "c": {7}}
    call(api, single_operation("/x", "post", requestBody={"content": {"application/json": {}}}), {"body": body})
    assert api.last.body == b'{"a":null,"b":{"x":1.5},"c":[7]}'
    assert send_parameter(api, {"in": "query"}, ["red", None]) == "/x?color=red&color="


def test_too_long_url_is_refused(api: API) -> None:
    with pytest.raises(CallError, match="too long") as caught:
        send_parameter(api, {"in": "query"}, "a" * 70_000)
    assert caught.value.code == "VALIDATION_ERROR"


def test_empty_list_is_omitted(api: API) -> None:
    for explode in (True, False):
        assert send_parameter(api, {"in": "query", "explode": explode}, []) == "/x"


def test_json_content_parameter(api: API) -> None:
    parameter = {"content": {"application/json": {"schema": {"type": "object"}}}}
    assert (
        send_parameter(api, {"in": "query", **parameter}, {"a": [1, "b"]})
        == "/x?color=%7B%22a%22%3A%5B1%2C%22b%22%5D%7D"
    )
    send_parameter(api, {"in": "header", **parameter}, {"a": 1})
    assert api.last.header("color") == '{"a":1}'


def test_client_parameters_follow_call_parameters(api: API) -> None:
    async def run() -> None:
        client = httpx2.AsyncClient(params={"tenant": "t 1", "q": "of the client"})
        async with client, await from_openapi(document(paths, api.url), client, namespace="api") as operations:
            await operations.register_into(OperationRegistry()).execute("api.op", {"q": ["a,b", "c"]})

    paths = single_operation("/x", parameters=[{"name": "q", "in": "query", "explode": False}])
    asyncio.run(run())
    assert api.last.target == "/x?q=a%2Cb,c&tenant=t+1"


@pytest.mark.parametrize(
    ("content_type", "value", "expected"),
    [
        ("text/plain", "a b", "a%20b"),
        ("application/xml", "<a/>", "%3Ca%2F%3E"),
        ("application/problem+json; v=1", "a", "%22a%22"),
        ("*/*", "a", "%22a%22"),
        # Without a style, other values are sent as JSON.
        ("text/plain", {"a": 1}, "%7B%22a%22%3A1%7D"),
        ("text/plain", [1, 2], "%5B1%2C2%5D"),
    ],
)
def test_content_parameter_of_each_type(api: API, content_type: str, value: Any, expected: str) -> None:
    assert send_parameter(api, {"in": "query", "content": {content_type: {}}}, value) == f"/x?color={expected}"


@pytest.mark.parametrize("name", ["Host", "Content-Length", "connection", "Transfer-Encoding"])
def test_headers_set_by_the_client_are_not_parameters(api: API, name: str) -> None:
    paths = single_operation("/x", parameters=[{"name": name, "in": "header", "required": True}])
    call(api, paths, {})
    with pytest.raises(CallError, match=name):
        call(api, paths, {name: "3"})


def test_nested_deep_objects(api: API) -> None:
    parameter = {"in": "query", "style": "deepObject"}
    assert send_parameter(api, parameter, {"a": {"b": [1, 2]}}) == "/x?color%5Ba%5D%5Bb%5D=1&color%5Ba%5D%5Bb%5D=2"


def test_ambiguous_names_are_prefixed_with_their_location(api: API) -> None:
    same_name = [
        {"name": "id", "in": location, "schema": {"type": "string"}} for location in ("path", "query", "header")
    ]
    more = [{"name": name, "in": "query"} for name in ("body", "query_id")]
    body: dict[str, Any] = {"content": {"application/json": {}}}
    paths = single_operation("/x/{id}", "post", parameters=[*same_name, *more], requestBody=body)
    arguments = {
        "path_id": "p",
        "query_id_": "q",
        "header_id": "h",
        "query_body": "qb",
        "query_id": "own",
        "body": {"b": 1},
    }
    call(api, paths, arguments)
    assert api.last.target == "/x/p?id=q&body=qb&query_id=own"
    assert api.last.header("id") == "h"
    assert api.last.body == b'{"b":1}'


def test_operations_inherit_path_parameters(api: API) -> None:
    shared = [
        {"name": "a", "in": "query"},
        {"name": "b", "in": "query", "required": True, "schema": {"type": "string"}},
    ]
    paths = single_operation(
        item={"parameters": shared}, parameters=[{"name": "b", "in": "query", "schema": {"type": "integer"}}]
    )
    call(api, paths, {"a": "x"})
    assert api.last.target == "/?a=x"
    call(api, paths, {"b": 1})
    with pytest.raises(CallError, match="integer"):
        call(api, paths, {"b": "x"})


def test_unknown_argument_is_refused(api: API) -> None:
    with pytest.raises(CallError, match="colour") as caught:
        call(api, single_operation(parameters=[{"name": "color", "in": "query"}]), {"colour": "blue"})
    assert caught.value.code == "VALIDATION_ERROR"


def test_arguments_that_are_no_object_are_refused(api: API) -> None:
    # The schema cannot be understood, so it accepts all input.
    paths = single_operation(parameters=[{"name": "color", "in": "query", "schema": {"type": "nonsense"}}])
    before = len(api.requests)
    with pytest.raises(CallError, match="the input is an object, not str") as caught:
        call(api, paths, "blue")  # type: ignore[arg-type]
    assert caught.value.code == "VALIDATION_ERROR"
    assert len(api.requests) == before


def test_excluded_headers_are_not_parameters(api: API) -> None:
    names = ["Accept", "Content-Type", "Authorization", "X-Own"]
    paths = single_operation(parameters=[{"name": name, "in": "header", "required": True} for name in names])
    call(api, paths, {"X-Own": "ü"})
    assert (api.last.header("x-own") or "").encode("latin-1") == "ü".encode()
    with pytest.raises(CallError, match="line breaks") as caught:
        call(api, paths, {"X-Own": "a\r\nX-Evil: 1"})
    assert caught.value.code == "VALIDATION_ERROR"


@pytest.mark.parametrize(
    "parameter",
    [{"name": "a"}, {"in": "query"}, {"name": "a", "in": "body"}, {"name": "a", "in": "query", "style": "simple"}],
)
def test_invalid_parameter_is_refused(api: API, parameter: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="parameter"):
        call(api, single_operation(parameters=[parameter]), {})
