"""Handles in an agent without MCP: what is stored, what is returned as it is, and the tools."""

import asyncio
import base64
import inspect
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import orjson
import pytest
from forebay import InvalidArgument
from forebay.adapters.agent import AgentOutputs, AgentTool
from pydantic import BaseModel
from stores import noise, store_at

ORDERS = [{"id": number, "country": "DE" if number % 3 else "FR", "total": number / 4} for number in range(5000)]


class Order(BaseModel):
    note: str


@pytest.fixture
def outputs(tmp_path: Path) -> Iterator[AgentOutputs]:
    with AgentOutputs(tmp_path.as_uri(), sweep_interval=0) as outputs:
        yield outputs


def find_tool(outputs: AgentOutputs, name: str) -> AgentTool:
    return next(tool for tool in outputs.tools if tool.name == name)


def call(outputs: AgentOutputs, name: str, **arguments: Any) -> Any:
    return json.loads(find_tool(outputs, name).call(**arguments))


def limit(outputs: AgentOutputs, output: object) -> Any:
    """Return the descriptor of an output that must be stored."""
    text = outputs.limit(output, "list_orders")
    assert isinstance(text, str)
    assert len(text.encode()) <= 4096
    return json.loads(text)


def test_an_option_that_is_refused_closes_the_store_that_was_opened_for_it(tmp_path: Path) -> None:
    before = {thread.name for thread in threading.enumerate()}
    with pytest.raises(InvalidArgument, match="prefix"):
        AgentOutputs(tmp_path.as_uri(), prefix="not a prefix")
    assert {thread.name for thread in threading.enumerate()} <= before
    with store_at(tmp_path) as store:
        with pytest.raises(InvalidArgument, match="prefix"):
            AgentOutputs(store, prefix="not a prefix")
        store.put([1])


@pytest.mark.parametrize("output", [ORDERS[:100], "text", b"bytes", None, 7, {"a": [1]}, Order(note="small")])
def test_a_small_output_is_returned_as_it_is(outputs: AgentOutputs, output: object) -> None:
    assert outputs.limit(output) is output


@pytest.mark.parametrize(
    ("output", "stored"),
    [
        (ORDERS, orjson.dumps(ORDERS)),
        ("größe\n" * 8000, ("größe\n" * 8000).encode()),
        (noise(50_000), noise(50_000)),
        (Order(note="x" * 40_000), orjson.dumps({"note": "x" * 40_000})),
        ([Order(note="x" * 400)] * 100, orjson.dumps([{"note": "x" * 400}] * 100)),
    ],
    ids=["objects", "text", "bytes", "model", "models"],
)
def test_a_large_output_is_stored_byte_for_byte(outputs: AgentOutputs, output: object, stored: bytes) -> None:
    handle = limit(outputs, output)["output_handle"]
    with outputs.store.open(handle) as payload:
        assert payload.read() == stored
    pages, offset = [], 0
    while offset is not None:
        page = call(outputs, "output_fetch", output_handle=handle, format="bytes", offset=offset)
        pages.append(base64.b64decode(page["content"]))
        offset = page["next_offset"]
    assert b"".join(pages) == stored


def test_an_output_that_is_not_json_is_returned_as_it_is(outputs: AgentOutputs) -> None:
    output = [object()] * 50_000
    assert outputs.limit(output) is output
    generator = (number for number in range(3))
    assert outputs.limit(generator) is generator
    assert [*generator] == [0, 1, 2]


def test_the_tools_answer_questions_exactly(outputs: AgentOutputs) -> None:
    descriptor = limit(outputs, ORDERS)
    assert (descriptor["item_count"], descriptor["fetch_with"]) == (5000, "output_fetch")
    handle = descriptor["output_handle"]
    page = call(outputs, "output_fetch", output_handle=handle, where={"country": "FR", "id": {">": 4990}})
    assert page["content"] == [ORDERS[4992], ORDERS[4995], ORDERS[4998]]
    found = call(outputs, "output_search", output_handle=handle, pattern='"id":4711,')
    assert found["matches"][0]["item"] == 4711
    rows = call(outputs, "output_query", output_handle=handle, sql="SELECT sum(total) FROM items WHERE country = 'FR'")
    assert rows["rows"] == [[sum(number / 4 for number in range(0, 5000, 3))]]


def test_the_suggested_calls_work(outputs: AgentOutputs) -> None:
    suggested = limit(outputs, ORDERS)["next_calls"]
    assert len(suggested) == 3
    for suggestion in suggested:
        assert "error" not in call(outputs, suggestion["tool"], **suggestion["arguments"])


def test_an_error_is_text_that_names_the_next_step(outputs: AgentOutputs) -> None:
    error = call(outputs, "output_fetch", output_handle="oh_AAAAAAAAAAAA")["error"]
    assert error["code"] == "output_handle_not_found"
    assert "again" in error["message"]
    assert "offset" in call(outputs, "output_fetch", output_handle="oh_AAAAAAAAAAAA", ofset=1)["error"]["message"]


def test_a_full_store_says_so_and_shows_the_start(tmp_path: Path) -> None:
    with AgentOutputs(tmp_path.as_uri(), sweep_interval=0, quota_bytes=1000) as outputs:
        answer = limit(outputs, noise(50_000).hex())
    assert answer["error"]["code"] == "store_full"
    assert noise(50_000).hex().startswith(answer["preview"])
    assert len(answer["preview"]) > 1000


def test_handles_belong_to_a_principal(tmp_path: Path) -> None:
    with store_at(tmp_path) as store:
        ann, bob = AgentOutputs(store, principal="ann"), AgentOutputs(store, principal="bob")
        handle = limit(ann, ORDERS)["output_handle"]
        assert call(ann, "output_fetch", output_handle=handle, limit=1)["content"] == ORDERS[:1]
        assert call(bob, "output_fetch", output_handle=handle)["error"]["code"] == "output_handle_not_found"
        ann.close()
        assert call(bob, "output_fetch", output_handle=handle)["error"]["code"] == "output_handle_not_found"
        assert store.stat(handle, principal="ann").size_bytes == len(orjson.dumps(ORDERS))


def test_limits_and_prefix(tmp_path: Path) -> None:
    options: Any = {"output_inline_limit_bytes": 2000, "page_limit_bytes": 3000, "prefix": "shop_"}
    with AgentOutputs(tmp_path.as_uri(), sweep_interval=0, **options) as outputs:
        assert [tool.name for tool in outputs.tools] == ["shop_output_fetch", "shop_output_search", "shop_output_query"]
        assert "shop_output_fetch" in outputs.instructions
        assert "server" not in outputs.instructions
        handle = limit(outputs, ORDERS[:100])["output_handle"]
        page = find_tool(outputs, "shop_output_fetch").call(output_handle=handle)
        assert 2000 < len(json.dumps(page)) <= 3000


def test_a_wrapped_function_keeps_its_signature(outputs: AgentOutputs) -> None:
    @outputs.wrap
    def list_orders(count: int, *, offset: int = 0) -> list[dict[str, Any]]:
        """List orders."""
        return ORDERS[offset : offset + count]

    @outputs.wrap
    async def list_orders_async(count: int) -> list[dict[str, Any]]:
        return ORDERS[:count]

    assert (list_orders.__name__, list_orders.__doc__) == ("list_orders", "List orders.")
    assert str(inspect.signature(list_orders)) == "(count: int, *, offset: int = 0) -> list[dict[str, typing.Any]]"
    assert inspect.iscoroutinefunction(list_orders_async)
    assert list_orders(2, offset=3) == ORDERS[3:5]
    assert asyncio.run(list_orders_async(2)) == ORDERS[:2]
    for text in (list_orders(5000), asyncio.run(list_orders_async(5000))):
        assert isinstance(text, str)
        assert json.loads(text)["item_count"] == 5000
    calls = {event["source_tool"] for event in outputs.store.journal.recent(10)}
    assert calls == {"list_orders", "list_orders_async"}


def test_what_only_returns_an_awaitable_is_limited_too(outputs: AgentOutputs) -> None:
    class ListOrders:
        async def __call__(self, count: int) -> list[dict[str, Any]]:
            return ORDERS[:count]

    async def list_orders(count: int) -> list[dict[str, Any]]:
        return ORDERS[:count]

    def call_later(count: int) -> Any:
        # As decorators of tracing and retries often are.
        return list_orders(count)

    async def call_both(count: int) -> list[Any]:
        wrapped: list[Any] = [outputs.wrap(ListOrders()), outputs.wrap(call_later)]
        return [await function(count) for function in wrapped]

    assert asyncio.run(call_both(2)) == [ORDERS[:2]] * 2
    for text in asyncio.run(call_both(5000)):
        assert isinstance(text, str)
        assert json.loads(text)["item_count"] == 5000


@pytest.mark.parametrize("error", [RuntimeError, AssertionError, KeyError, ZeroDivisionError])
def test_an_object_that_fails_while_it_is_encoded_is_returned_as_it_is(
    outputs: AgentOutputs, error: type[Exception]
) -> None:
    class Row:
        def model_dump(self, **_: str) -> Any:
            raise error("the connection of this row is closed")

    output = [Row(), "x" * 50_000]
    assert outputs.limit(output) is output


def test_an_object_with_attributes_of_any_name_is_returned_as_it_is(outputs: AgentOutputs) -> None:
    asked: list[str] = []

    class RemoteObject:
        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return lambda **_: RemoteObject()

    remote = RemoteObject()
    assert outputs.limit(remote) is remote
    assert "model_dump" not in asked
    for mock in (MagicMock(), [MagicMock()], MagicMock(spec=Order)):
        assert outputs.limit(mock) is mock


def test_the_definitions_are_json_schemas(outputs: AgentOutputs) -> None:
    for tool in outputs.tools:
        assert tool.input_schema["type"] == "object"
        assert "output_handle" in tool.input_schema["required"]
        assert tool.description


def test_an_open_store_takes_no_options(tmp_path: Path) -> None:
    with store_at(tmp_path) as store, pytest.raises(InvalidArgument, match="give ttl to open_store"):
        AgentOutputs(store, ttl=60)
    with pytest.raises(InvalidArgument, match="no such option of a store: output_mode"):
        AgentOutputs(tmp_path.as_uri(), output_mode="auto")
