"""What servers send besides responses in order: log messages, requests and cancellations, batches, unreadable lines."""

import asyncio
import errno
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from faulty_server import faulty_server
from forebay.errors import StoreFull
from forebay.hub.paused_calls import PausableCall
from forebay.wire.framing import HeadTail, LostMessage
from hub_client import CALL, Channel, HubClient, get_value, make_call, read_record, running_hub, stepping_server
from waiting import wait_until_async

pytestmark = pytest.mark.slow

ELICITATION: dict[str, Any] = {"elicitation": {}}


def _dump(**message: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", **message})


def _log(level: str) -> dict[str, str]:
    return {"write": _dump(method="notifications/message", params={"level": level, "data": level})}


def _read_answers(folder: Path) -> list[dict[str, Any]]:
    return [message for message in read_record(folder) if "method" not in message]


async def _connect(hub: Any, capabilities: dict[str, Any] | None = None) -> HubClient:
    client = HubClient(hub, capabilities or {})
    await client.initialize()
    return client


def test_a_log_message_that_may_be_of_any_session_reaches_all_that_want_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}) as hub:
            ann, bob, cid = [await _connect(hub) for _ in range(3)]
            stateless = HubClient(hub, {}, is_stateless=True)
            await stateless.request("tools/list")
            assert (await ann.request("logging/setLevel", {"level": "debug"}))["result"] == {}
            # The server keeps the lowest level, so it does not hear of this one.
            assert (await bob.request("logging/setLevel", {"level": "error"}))["result"] == {}
            channels = Channel(), Channel()
            waiting = cid.start_call({"wait_for": str(tmp_path / "go")}, channel=channels[0])
            await wait_until_async(lambda: any(message.get("method") == CALL for message in read_record(tmp_path)))
            await ann.start_call(_log("info"), _log("alert"), channel=channels[1])
            (tmp_path / "go").touch()
            await waiting
            assert [channel.messages for channel in channels] == [[], []]
            assert [message["params"]["data"] for message in ann.outbox.messages] == ["info", "alert"]
            assert [message["params"]["data"] for message in bob.outbox.messages] == ["alert"]
            assert [message["params"]["data"] for message in cid.outbox.messages] == ["info", "alert"]
        levels = [message["params"] for message in read_record(tmp_path) if message.get("method") == "logging/setLevel"]
        assert levels == [{"level": "debug"}]

    asyncio.run(run())


def test_a_log_message_outside_of_calls_reaches_no_client_without_a_session(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}) as hub:
            client, channel = HubClient(hub, {}, is_stateless=True), Channel()
            meta = {"io.modelcontextprotocol/logLevel": "debug"}
            await client.request(CALL, {**make_call(_log("info")), "_meta": meta}, channel)
            assert [message["params"]["data"] for message in channel.messages] == ["info"]
            (tenant,) = hub.tenants
            message = json.loads(_log("alert")["write"])
            tenant.connections["one"].on_server_message(message, _log("alert")["write"].encode(), None)
            assert len(channel.messages) == 1

    asyncio.run(run())


def test_a_server_that_all_share_can_neither_ask_nor_notify_one_client(tmp_path: Path) -> None:
    async def run() -> None:
        upstream = {**stepping_server(tmp_path), "share": "all"}
        async with running_hub(tmp_path, {"one": upstream}) as hub:
            client, channel = await _connect(hub, ELICITATION), Channel()
            steps = (
                {"notify": "notifications/example/unknown", "count": 1},
                {"notify": "notifications/prompts/list_changed", "count": 1},
                {"ask": 1},
            )
            (answer,) = get_value(await client.start_call(*steps, channel=channel))
            assert (answer["code"], channel.messages) == (-32601, [])
            methods = [message["method"] for message in client.outbox.messages]
            assert methods == ["notifications/prompts/list_changed"]

    asyncio.run(run())


def test_a_server_is_answered_its_pings_and_may_withdraw_its_questions(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}) as hub:
            client, channel = await _connect(hub, ELICITATION), Channel()
            steps = (
                {"write": _dump(id="p", method="ping")},
                {"write": _dump(id="odd", method=5)},
                {"write": _dump(method="notifications/cancelled", params={"requestId": "unknown"})},
                {"ask_without_waiting": "q"},
            )
            await client.start_call(*steps, channel=channel)
            question = await channel.next()
            withdrawal = {"write": _dump(method="notifications/cancelled", params={"requestId": "q"})}
            await client.start_call(withdrawal, channel=channel)
            cancellation = await channel.next()
            assert cancellation["params"]["requestId"] == question["id"]
            # An answer that comes too late is dropped.
            await client.answer(question, {"action": "accept", "content": {}})
            await client.start_call(channel=channel)
            assert _read_answers(tmp_path) == [{"jsonrpc": "2.0", "id": "p", "result": {}}]

    asyncio.run(run())


@pytest.mark.parametrize("params", [{"message": "?", "requestedSchema": {"type": "object"}, "\ud800": 1}, [1]])
def test_a_question_with_unreadable_params_is_refused(params: Any, tmp_path: Path) -> None:
    line = _dump(id="q", method="elicitation/create", params=params)

    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}) as hub:
            client = HubClient(hub, ELICITATION, is_stateless=True)
            call = client.start_call({"write": line}, {"wait_for": str(tmp_path / "go")})
            await wait_until_async(lambda: _read_answers(tmp_path))
            error = _read_answers(tmp_path)[0]["error"]
            assert (error["code"], "params must be an object" in error["message"]) == (-32602, True)
            (tmp_path / "go").touch()
            assert get_value(await call) is None

    asyncio.run(run())


@pytest.mark.parametrize("params", [{"message": "?", "\ud800": 1}, [1], "x"])
def test_an_input_request_with_unreadable_params_is_an_error_of_the_server(params: Any, tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path, era="modern")}) as hub:
            client = await _connect(hub, ELICITATION)
            step = {"require": {"who": {"method": "elicitation/create", "params": params}}}
            result = (await client.start_call(step))["result"]
            assert "report it to the authors of the server" in result["content"][0]["text"]

    asyncio.run(run())


def test_a_question_that_the_disk_lost_is_an_error_for_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = _dump(id="q", method="elicitation/create", params={"message": "?" * 200_000, "requestedSchema": {}})

    def fail(path: str) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    async def run() -> None:
        upstreams = {"one": stepping_server(tmp_path)}
        async with running_hub(tmp_path, upstreams, spool_above_bytes=4000) as hub:
            client = await _connect(hub, ELICITATION)
            monkeypatch.setattr("forebay.system.files.open_shared", fail)
            await client.start_call({"write": line})
            await wait_until_async(lambda: _read_answers(tmp_path))
            assert "the client cannot be asked" in _read_answers(tmp_path)[0]["error"]["message"]

    asyncio.run(run())


def test_a_question_to_a_call_that_has_just_ended_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}) as hub:
            client = HubClient(hub, ELICITATION, is_stateless=True)
            call = client.start_call({"wait_for": str(tmp_path / "go")})
            await wait_until_async(lambda: any(message.get("method") == CALL for message in read_record(tmp_path)))
            (tenant,) = hub.tenants
            server = tenant.connections["one"]
            ((exchange, *_), raw) = [*server.exchanges], _dump(id="q", method="elicitation/create", params={})
            assert isinstance(exchange.respondent, PausableCall)
            # Both in one turn of the event loop.
            exchange.respondent.cancel(-32603, "the client has cancelled the call")
            server.on_server_message(json.loads(raw), raw.encode(), None)
            await wait_until_async(lambda: _read_answers(tmp_path))
            (answer,) = _read_answers(tmp_path)
            assert (answer["id"], answer["error"]["code"]) == ("q", -32601)
            call.cancel()

    asyncio.run(run())


def test_a_batch_of_too_many_messages_fails_what_is_in_flight(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}) as hub:
            client = await _connect(hub)
            batch = "[" + ",".join(["{}"] * 10_001) + "]"
            result = (await client.start_call({"write": batch}, "never"))["result"]
            assert "too many messages at once" in result["content"][0]["text"]
            assert get_value(await client.start_call()) is None

    asyncio.run(run())


def test_a_response_that_is_complete_but_no_json_fails_its_call(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}) as hub:
            client = await _connect(hub)
            for line in (
                '{"jsonrpc":"2.0","id":ID,"result":{"x":NaN}}',
                '{"result":{"x":NaN},"jsonrpc":"2.0","id":ID}',
            ):
                result = (await client.start_call({"write": line}, "never"))["result"]
                assert "not valid JSON; the call may have been carried out" in result["content"][0]["text"]

    asyncio.run(run())


@pytest.mark.parametrize("stream", ["own", "shared"])
def test_a_response_that_is_lost_fails_its_call(stream: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As when the disk is full: the line is larger than memory allows, and cannot be spooled."""

    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}) as hub:
            client = await _connect(hub)
            call = client.start_call("never")
            await wait_until_async(lambda: any(message.get("method") == CALL for message in read_record(tmp_path)))
            assert client.session is not None
            server = client.session.connections["one"]
            ((exchange, *_), error) = [*server.exchanges], StoreFull("the disk is full")
            question = HeadTail(b'{"jsonrpc":"2.0","id":%d,"method":"elicitation/create"' % exchange.id, b"")
            assert not server.receiver.receive_from_server(LostMessage(error, 10**9, question))
            response = HeadTail(b'{"jsonrpc":"2.0","id":%d,"result":{' % exchange.id, b"")
            assert not exchange.future.done()
            lost = LostMessage(error, 10**9, response if stream == "shared" else HeadTail(b"", b""))
            assert server.receiver.receive_from_server(lost, None if stream == "shared" else exchange.id)
            assert "the disk is full" in (await call)["result"]["content"][0]["text"]

    asyncio.run(run())
    assert "a message of 1000000000 bytes from one is lost" in caplog.text


def test_a_large_result_of_a_cancelled_call_is_not_stored(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}) as hub:
            client = await _connect(hub)
            may_go_on = threading.Event()

            def wait() -> None:
                may_go_on.wait()

            # The threads that store responses are busy.
            for _ in range(4):
                hub.servers.workers.submit(wait)
            text = {"content": [{"type": "text", "text": "x" * 200_000}]}
            call = client.start_call({"result": text}, number=7)
            await wait_until_async(lambda: hub.servers.workers._unfinished == 5)
            await client.send({"method": "notifications/cancelled", "params": {"requestId": 7}})
            assert await call is None
            may_go_on.set()
            assert await asyncio.to_thread(hub.servers.workers.wait_idle, 60)
            assert [*hub.policy.store.list()] == []

    asyncio.run(run())


def test_an_error_of_what_handles_a_response_is_that_of_the_request(tmp_path: Path) -> None:
    def fail(message: dict[str, Any], raw: Any) -> None:
        raise LookupError(message["id"], len(raw))

    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}) as hub:
            client = await _connect(hub)
            assert client.session is not None
            server = client.session.connections["one"]
            exchange = server.exchanges.new("ping")
            exchange.finish = fail
            with pytest.raises(LookupError):
                await server.complete(exchange, _dump(id=exchange.id, method="ping").encode())
            assert exchange not in server.exchanges

    asyncio.run(run())


@pytest.mark.parametrize("is_error", [False, True])
def test_a_large_answer_to_a_request_of_the_hub_itself(
    is_error: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What stands beside a list, or in an error, may be too large to be parsed."""
    script = f"""
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    answer = {{"result": {{"protocolVersion": "2025-11-25", "capabilities": {{"resources": {{}}}}, "tools": []}}}}
    if message["method"] == "resources/list":
        many = {{f"member {{number}}": "x" * 100 for number in range(4000)}}
        answer = {{"result": {{"resources": [{{"uri": "x://0", "name": "0"}}], **many}}}}
        if {is_error}:
            answer = {{"error": {{"code": -32000, "message": "not now", **many}}}}
    if "id" in message:
        print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], **answer}}), flush=True)
"""

    async def run() -> None:
        upstreams = {"many": {"command": sys.executable, "args": ["-c", script]}, "one": stepping_server(tmp_path)}
        async with running_hub(tmp_path, upstreams) as hub:
            client = await _connect(hub)
            listed = (await client.request("resources/list"))["result"]["resources"]
            assert [resource["uri"] for resource in listed] == [*([] if is_error else ["x://0"]), "x://1"]

    asyncio.run(run())
    assert ("many does not answer resources/list: not now" in caplog.text) == is_error


def test_a_client_that_refuses_an_input_request_fails_its_call(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path, era="modern")}) as hub:
            client, channel = await _connect(hub, ELICITATION), Channel()
            required = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {}}}
            call = client.start_call({"require": {"who": required}}, channel=channel)
            question = await channel.next()
            await client.send({"id": question["id"], "error": {"code": -7, "message": "not today"}})
            assert (await call)["error"] == {"code": -7, "message": "not today"}

    asyncio.run(run())


def test_a_question_of_a_forgotten_session_is_cancelled(tmp_path: Path) -> None:
    async def run(url: str) -> None:
        async with running_hub(tmp_path, {"one": {"url": url}}) as hub:
            client, channel = await _connect(hub, ELICITATION), Channel()
            forgets = {"name": "asks_and_forgets", "arguments": {}}
            assert "result" in await client.request(CALL, forgets, channel)
            question = (await channel.next())["id"]
            assert "result" in await client.request(CALL, {"name": "plain", "arguments": {}})
            cancellation = await channel.next()
            assert (cancellation["method"], cancellation["params"]["requestId"]) == (
                "notifications/cancelled",
                question,
            )

    with faulty_server() as server:
        asyncio.run(run(server.url))


def test_tools_that_are_shown_are_announced(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}, hidden_tools=["steps"]) as hub:
            client = await _connect(hub)
            expand = {"name": "expand_tools", "arguments": {"capability": "one"}}
            assert "steps" in json.dumps(await client.request(CALL, expand))
            methods = [message["method"] for message in client.outbox.messages]
            assert "notifications/tools/list_changed" in methods
            listed = (await client.request("tools/list"))["result"]["tools"]
            assert "steps" in [tool["name"] for tool in listed]

    asyncio.run(run())
