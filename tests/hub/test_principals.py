"""Principals without sessions: an upstream's state for one of them is not shared with others."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from serve_harness import command_of
from serve_http_harness import called, eventually, listens, serving_http, wire
from wires import LEGACY, MODERN, Wire, message_of

pytestmark = pytest.mark.slow

STATEFUL = {"keeping": command_of("keeping_server.py")}
LOG_CALL = {"name": "log", "arguments": {}, "_meta": {"io.modelcontextprotocol/logLevel": "debug"}}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with serving_http(tmp_path_factory.mktemp("serve"), STATEFUL) as listening:
        yield listening.port


@pytest.fixture
def ann(port: int) -> Wire:
    return wire(port, MODERN, "ann")


@pytest.fixture
def bob(port: int) -> Wire:
    return wire(port, MODERN, "bob")


def _request(wire: Wire, method: str, **params: Any) -> dict[str, Any]:
    return dict(json.loads(message_of(wire.ask(method, params))))


def _subscriptions(wire: Wire) -> list[str]:
    return list(called(wire, "state")["subscribed"])


def _subject(notification: dict[str, Any]) -> str:
    return str(notification["params"].get("uri", notification["method"]))


def test_one_s_task_is_not_another_s_to_read_or_to_cancel(ann: Wire, bob: Wire) -> None:
    called(ann, "begin")
    assert _request(ann, "tasks/get", taskId="1")["result"]["status"] == "working"
    for method in ("tasks/get", "tasks/cancel"):
        assert "no tasks/" in _request(bob, method, taskId="1")["error"]["message"]
    assert _request(ann, "tasks/get", taskId="1")["result"]["status"] == "working"
    assert _request(ann, "tasks/cancel", taskId="1")["result"]["status"] == "cancelled"


def test_one_s_level_does_not_change_what_another_is_logged(ann: Wire, bob: Wire) -> None:
    assert "result" in _request(bob, "logging/setLevel", level="error")
    assert called(bob, "state")["level"] == "error"
    assert b"notifications/message" not in bob.ask("tools/call", LOG_CALL)
    assert b"notifications/message" in ann.ask("tools/call", LOG_CALL)


def test_what_one_s_request_logs_is_told_to_it_also_after_another_s(port: int) -> None:
    for name in ("cid", "dan", "cid"):
        client = wire(port, MODERN, name)
        logged = client.ask("tools/call", LOG_CALL)
        assert b'"data":%d' % called(client, "state")["pid"] in logged.replace(b" ", b"")


def test_updates_and_changes_reach_those_of_whose_connection_they_are(port: int, ann: Wire, bob: Wire) -> None:
    wanted: dict[str, Any] = {"resourceSubscriptions": ["x://1", "x://2"], "toolsListChanged": True}
    with listens(port, "ann", **wanted) as ann_stream, listens(port, "bob", **wanted) as bob_stream:
        for client in (ann, bob):
            eventually(lambda its: len(_subscriptions(its)) == 2, client)
        called(bob, "update", uri="x://1")
        assert _subject(bob_stream.next()) == "x://1"
        called(bob, "grow", name="more")
        assert _subject(bob_stream.next()) == "notifications/tools/list_changed"
        called(ann, "update", uri="x://2")
        # An update of bob's resource would have arrived first.
        assert _subject(ann_stream.next()) == "x://2"


def test_who_unsubscribes_takes_nothing_from_another(port: int, ann: Wire, bob: Wire) -> None:
    with listens(port, "ann", resourceSubscriptions=["u://1"]) as ann_stream:
        with listens(port, "bob", resourceSubscriptions=["u://1"]):
            eventually(lambda: "u://1" in _subscriptions(ann) and "u://1" in _subscriptions(bob))
            assert "result" in _request(bob, "resources/unsubscribe", uri="u://1")
            assert "u://1" not in _subscriptions(bob)
        called(ann, "update", uri="u://1")
        assert _subject(ann_stream.next()) == "u://1"


def test_a_session_s_subscriptions_are_its_own(port: int) -> None:
    first, second = (wire(port, LEGACY, "ann") for _ in range(2))
    for session in (first, second):
        assert "result" in _request(session, "resources/subscribe", uri="s://1")
    assert "result" in _request(first, "resources/unsubscribe", uri="s://1")
    assert (_subscriptions(first), _subscriptions(second)) == ([], ["s://1"])


def test_a_server_is_told_when_the_last_who_wanted_a_resource_is_gone(port: int) -> None:
    cid = wire(port, MODERN, "cid")

    def subscription_requests() -> list[list[str]]:
        return [request for request in called(cid, "state")["told"] if request[1].startswith("l://")]

    with ExitStack() as first, ExitStack() as second:
        first.enter_context(listens(port, "cid", resourceSubscriptions=["l://1", "l://2"]))
        eventually(lambda: subscription_requests() == [["subscribe", "l://1"], ["subscribe", "l://2"]])
        stream = second.enter_context(listens(port, "cid", resourceSubscriptions=["l://1", "l://1"]))
        first.close()
        eventually(lambda: subscription_requests()[2:] == [["unsubscribe", "l://2"]])
        called(cid, "update", uri="l://1")
        assert _subject(stream.next()) == "l://1"
        second.close()
        eventually(lambda: subscription_requests()[3:] == [["unsubscribe", "l://1"]])
        with listens(port, "cid", resourceSubscriptions=["l://1"]):
            eventually(lambda: subscription_requests()[4:] == [["subscribe", "l://1"]])
        eventually(lambda: subscription_requests()[5:] == [["unsubscribe", "l://1"]])
