"""Principals whose requests stand alone: what a server keeps for one of them is nobody else's."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from serve_harness import command_of
from serve_http_harness import called, eventually, listens, serving_http, wire
from wires import LEGACY, MODERN, Wire, message_of

pytestmark = pytest.mark.slow

KEEPING = {"keeping": command_of("keeping_server.py")}
LOGGED = {"name": "log", "arguments": {}, "_meta": {"io.modelcontextprotocol/logLevel": "debug"}}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with serving_http(tmp_path_factory.mktemp("serve"), KEEPING) as listening:
        yield listening.port


@pytest.fixture
def ann(port: int) -> Wire:
    return wire(port, MODERN, "ann")


@pytest.fixture
def bob(port: int) -> Wire:
    return wire(port, MODERN, "bob")


def _answer(wire: Wire, method: str, **params: Any) -> dict[str, Any]:
    return dict(json.loads(message_of(wire.ask(method, params))))


def _subscribed(wire: Wire) -> list[str]:
    return list(called(wire, "state")["subscribed"])


def _heard(told: dict[str, Any]) -> str:
    return str(told["params"].get("uri", told["method"]))


def test_one_s_task_is_not_another_s_to_read_or_to_cancel(ann: Wire, bob: Wire) -> None:
    called(ann, "begin")
    assert _answer(ann, "tasks/get", taskId="1")["result"]["status"] == "working"
    for method in ("tasks/get", "tasks/cancel"):
        assert "no tasks/" in _answer(bob, method, taskId="1")["error"]["message"]
    assert _answer(ann, "tasks/get", taskId="1")["result"]["status"] == "working"
    assert _answer(ann, "tasks/cancel", taskId="1")["result"]["status"] == "cancelled"


def test_one_s_level_does_not_change_what_another_is_logged(ann: Wire, bob: Wire) -> None:
    assert "result" in _answer(bob, "logging/setLevel", level="error")
    assert called(bob, "state")["level"] == "error"
    assert b"notifications/message" not in bob.ask("tools/call", LOGGED)
    assert b"notifications/message" in ann.ask("tools/call", LOGGED)


def test_what_one_s_request_logs_is_told_to_it_also_after_another_s(port: int) -> None:
    for name in ("cid", "dan", "cid"):
        its = wire(port, MODERN, name)
        logged = its.ask("tools/call", LOGGED)
        assert b'"data":%d' % called(its, "state")["pid"] in logged.replace(b" ", b"")


def test_updates_and_changes_reach_those_of_whose_connection_they_are(port: int, ann: Wire, bob: Wire) -> None:
    wanted: dict[str, Any] = {"resourceSubscriptions": ["x://1", "x://2"], "toolsListChanged": True}
    with listens(port, "ann", **wanted) as ann_hears, listens(port, "bob", **wanted) as bob_hears:
        for each in (ann, bob):
            eventually(lambda its: len(_subscribed(its)) == 2, each)
        called(bob, "update", uri="x://1")
        assert _heard(bob_hears.next()) == "x://1"
        called(bob, "grow", name="more")
        assert _heard(bob_hears.next()) == "notifications/tools/list_changed"
        called(ann, "update", uri="x://2")
        # Had she heard of his, that would have come before.
        assert _heard(ann_hears.next()) == "x://2"


def test_who_unsubscribes_takes_nothing_from_another(port: int, ann: Wire, bob: Wire) -> None:
    with listens(port, "ann", resourceSubscriptions=["u://1"]) as ann_hears:
        with listens(port, "bob", resourceSubscriptions=["u://1"]):
            eventually(lambda: "u://1" in _subscribed(ann) and "u://1" in _subscribed(bob))
            assert "result" in _answer(bob, "resources/unsubscribe", uri="u://1")
            assert "u://1" not in _subscribed(bob)
        called(ann, "update", uri="u://1")
        assert _heard(ann_hears.next()) == "u://1"


def test_a_session_s_subscriptions_are_its_own(port: int) -> None:
    one, other = (wire(port, LEGACY, "ann") for _ in range(2))
    for each in (one, other):
        assert "result" in _answer(each, "resources/subscribe", uri="s://1")
    assert "result" in _answer(one, "resources/unsubscribe", uri="s://1")
    assert (_subscribed(one), _subscribed(other)) == ([], ["s://1"])


def test_a_server_is_told_when_the_last_who_wanted_a_resource_is_gone(port: int) -> None:
    cid = wire(port, MODERN, "cid")

    def told() -> list[list[str]]:
        return [each for each in called(cid, "state")["told"] if each[1].startswith("l://")]

    with ExitStack() as first, ExitStack() as second:
        first.enter_context(listens(port, "cid", resourceSubscriptions=["l://1", "l://2"]))
        eventually(lambda: told() == [["subscribe", "l://1"], ["subscribe", "l://2"]])
        hears = second.enter_context(listens(port, "cid", resourceSubscriptions=["l://1", "l://1"]))
        first.close()
        eventually(lambda: told()[2:] == [["unsubscribe", "l://2"]])
        called(cid, "update", uri="l://1")
        assert _heard(hears.next()) == "l://1"
        second.close()
        eventually(lambda: told()[3:] == [["unsubscribe", "l://1"]])
        with listens(port, "cid", resourceSubscriptions=["l://1"]):
            eventually(lambda: told()[4:] == [["subscribe", "l://1"]])
        eventually(lambda: told()[5:] == [["unsubscribe", "l://1"]])
