"""Principals without sessions: an upstream's state for one of them is not shared with others."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from serve_harness import upstream_command
from serve_http_harness import TIMEOUT_SECONDS, call_tool, connect_as, listen, serving_http, subscribe
from waiting import wait_until
from wires import ERAS, LEGACY, MODERN, Wire, extract_message

pytestmark = pytest.mark.slow

STATEFUL = {"keeping": upstream_command("stateful_server.py")}
LOG_CALL = {"name": "log", "arguments": {}, "_meta": {"io.modelcontextprotocol/logLevel": "debug"}}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with serving_http(tmp_path_factory.mktemp("serve"), STATEFUL) as listening:
        yield listening.port


@pytest.fixture
def ann(port: int) -> Wire:
    return connect_as(port, MODERN, "ann")


@pytest.fixture
def bob(port: int) -> Wire:
    return connect_as(port, MODERN, "bob")


def _request(wire: Wire, method: str, **params: Any) -> dict[str, Any]:
    return dict(json.loads(extract_message(wire.request(method, params))))


def _subscriptions(wire: Wire) -> list[str]:
    return list(call_tool(wire, "state")["subscribed"])


def _wait_for_subscriptions(wire: Wire, count: int) -> None:
    wait_until(lambda: len(_subscriptions(wire)) == count, TIMEOUT_SECONDS)


def _subject(notification: dict[str, Any]) -> str:
    return str(notification.get("params", {}).get("uri", notification["method"]))


def test_a_task_belongs_to_one_principal(ann: Wire, bob: Wire) -> None:
    call_tool(ann, "begin")
    assert _request(ann, "tasks/get", taskId="1")["result"]["status"] == "working"
    for method in ("tasks/get", "tasks/cancel"):
        assert "no tasks/" in _request(bob, method, taskId="1")["error"]["message"]
    assert _request(ann, "tasks/get", taskId="1")["result"]["status"] == "working"
    assert _request(ann, "tasks/cancel", taskId="1")["result"]["status"] == "cancelled"


def test_each_principal_has_its_own_log_level(ann: Wire, bob: Wire) -> None:
    assert "result" in _request(bob, "logging/setLevel", level="error")
    assert call_tool(bob, "state")["level"] == "error"
    assert b"notifications/message" not in bob.request("tools/call", LOG_CALL)
    assert b"notifications/message" in ann.request("tools/call", LOG_CALL)


def test_log_messages_reach_the_request_that_caused_them(port: int) -> None:
    for name in ("cid", "dan", "cid"):
        client = connect_as(port, MODERN, name)
        logged = client.request("tools/call", LOG_CALL)
        assert b'"data":%d' % call_tool(client, "state")["pid"] in logged.replace(b" ", b"")


def test_a_log_message_of_a_server_that_all_share_reaches_nobody(tmp_path: Path) -> None:
    with serving_http(tmp_path, {"keeping": {**STATEFUL["keeping"], "share": "all"}}) as listening:
        for era in ERAS:
            client = connect_as(listening.port, era, "ann")
            assert b"notifications/message" not in client.request("tools/call", LOG_CALL)


def test_sessions_that_share_a_server_get_only_what_is_theirs(port: int) -> None:
    first, second = (connect_as(port, LEGACY, "ann") for _ in range(2))
    assert call_tool(first, "state")["pid"] == call_tool(second, "state")["pid"]
    with listen(port, first) as first_stream, listen(port, second) as second_stream:
        assert "result" in _request(first, "resources/subscribe", uri="only://first")
        assert "result" in _request(second, "resources/subscribe", uri="only://second")
        # The update is caused by the other session.
        call_tool(second, "update", uri="only://first")
        assert _subject(first_stream.next()) == "only://first"
        call_tool(first, "update", uri="only://second")
        assert _subject(second_stream.next()) == "only://second"
        # Log messages belong to the call that is in flight.
        assert b"notifications/message" in first.request("tools/call", LOG_CALL)
        call_tool(first, "grow", name="one_more")
        # Anything for another session would have arrived before this.
        for stream in (first_stream, second_stream):
            assert _subject(stream.next()) == "notifications/tools/list_changed"


def test_notifications_reach_only_the_listeners_of_their_connection(port: int, ann: Wire, bob: Wire) -> None:
    wanted: dict[str, Any] = {"resourceSubscriptions": ["x://1", "x://2"], "toolsListChanged": True}
    with subscribe(port, "ann", **wanted) as ann_stream, subscribe(port, "bob", **wanted) as bob_stream:
        for client in (ann, bob):
            _wait_for_subscriptions(client, 2)
        call_tool(bob, "update", uri="x://1")
        assert _subject(bob_stream.next()) == "x://1"
        call_tool(bob, "grow", name="more")
        assert _subject(bob_stream.next()) == "notifications/tools/list_changed"
        call_tool(ann, "update", uri="x://2")
        # An update of bob's resource would have arrived first.
        assert _subject(ann_stream.next()) == "x://2"


def test_unsubscribing_does_not_affect_others(port: int, ann: Wire, bob: Wire) -> None:
    with subscribe(port, "ann", resourceSubscriptions=["u://1"]) as ann_stream:
        with subscribe(port, "bob", resourceSubscriptions=["u://1"]):
            wait_until(lambda: "u://1" in _subscriptions(ann) and "u://1" in _subscriptions(bob), TIMEOUT_SECONDS)
            assert "result" in _request(bob, "resources/unsubscribe", uri="u://1")
            assert "u://1" not in _subscriptions(bob)
        call_tool(ann, "update", uri="u://1")
        assert _subject(ann_stream.next()) == "u://1"


def test_a_subscription_of_two_sessions_ends_with_the_second(port: int) -> None:
    first, second = (connect_as(port, LEGACY, "ann") for _ in range(2))
    for session in (first, second):
        assert "result" in _request(session, "resources/subscribe", uri="s://1")
    assert "result" in _request(first, "resources/unsubscribe", uri="s://1")
    assert "s://1" in _subscriptions(second)
    assert "result" in _request(second, "resources/unsubscribe", uri="s://1")
    assert "s://1" not in _subscriptions(second)


def test_the_last_listener_of_a_resource_unsubscribes_at_the_server(port: int) -> None:
    cid = connect_as(port, MODERN, "cid")

    def subscription_requests() -> list[list[str]]:
        return [request for request in call_tool(cid, "state")["told"] if request[1].startswith("l://")]

    with ExitStack() as first, ExitStack() as second:
        first.enter_context(subscribe(port, "cid", resourceSubscriptions=["l://1", "l://2"]))
        wait_until(lambda: subscription_requests() == [["subscribe", "l://1"], ["subscribe", "l://2"]], TIMEOUT_SECONDS)
        stream = second.enter_context(subscribe(port, "cid", resourceSubscriptions=["l://1", "l://1"]))
        first.close()
        wait_until(lambda: subscription_requests()[2:] == [["unsubscribe", "l://2"]], TIMEOUT_SECONDS)
        call_tool(cid, "update", uri="l://1")
        assert _subject(stream.next()) == "l://1"
        second.close()
        wait_until(lambda: subscription_requests()[3:] == [["unsubscribe", "l://1"]], TIMEOUT_SECONDS)
        with subscribe(port, "cid", resourceSubscriptions=["l://1"]):
            wait_until(lambda: subscription_requests()[4:] == [["subscribe", "l://1"]], TIMEOUT_SECONDS)
        wait_until(lambda: subscription_requests()[5:] == [["unsubscribe", "l://1"]], TIMEOUT_SECONDS)
