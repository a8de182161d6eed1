"""Requests of a server to the client whose session the server has forgotten: none of them waits for ever."""

import json
from pathlib import Path
from typing import Any

import pytest
from faulty_server import Server
from gateway_harness import Gateway, gateway_to, is_working
from waiting import wait_until

pytestmark = pytest.mark.slow

ANSWER = {"jsonrpc": "2.0", "id": "e1", "result": {"action": "decline"}}


def read_message(gateway: Gateway) -> dict[str, Any]:
    message = json.loads(gateway.read_line())
    assert isinstance(message, dict)
    return message


def assert_cancelled(message: dict[str, Any]) -> None:
    assert message["method"] == "notifications/cancelled"
    assert message["params"]["requestId"] == "e1"
    assert "session" in message["params"]["reason"]


def read_until_response(gateway: Gateway, number: int) -> list[dict[str, Any]]:
    """Return the messages before the response to a request."""
    messages: list[dict[str, Any]] = []
    while (message := read_message(gateway)).get("id") != number:
        messages.append(message)
    return messages


def ask_and_forget(gateway: Gateway) -> list[dict[str, Any]]:
    """Make the server send a request to the client and forget the session; return what follows the request."""
    number = gateway.send_request("tools/call", {"name": "asks_and_forgets", "arguments": {}})
    assert read_message(gateway)["method"] == "elicitation/create"
    # The stream outside of requests may notice that the session is lost before the response arrives.
    return read_until_response(gateway, number)


def call_plain(gateway: Gateway) -> list[dict[str, Any]]:
    """Call another tool, and return the messages before its response."""
    return read_until_response(gateway, gateway.send_request("tools/call", {"name": "plain", "arguments": {}}))


def ask_and_lose_session(gateway: Gateway) -> None:
    """Make the server forget a session with an open request, and check that the next call has it cancelled."""
    messages = ask_and_forget(gateway)
    messages += call_plain(gateway)
    (cancellation,) = messages
    assert_cancelled(cancellation)


def test_requests_of_a_forgotten_session_are_cancelled(gateway: Gateway, server: Server) -> None:
    ask_and_lose_session(gateway)
    # A late answer is for nobody.
    gateway.send(ANSWER)
    assert is_working(gateway)
    assert server.responses == []


def test_an_answer_to_a_forgotten_session_does_not_reach_the_next_one(gateway: Gateway, server: Server) -> None:
    ask_and_forget(gateway)
    gateway.send(ANSWER)
    call_plain(gateway)
    wait_until(lambda: len(server.headers_of("notifications/initialized")) == 2)
    assert server.responses == []


def test_the_next_session_may_ask_with_the_same_id(gateway: Gateway, server: Server) -> None:
    ask_and_lose_session(gateway)
    number = gateway.send_request("tools/call", {"name": "elicits", "arguments": {}})
    asked = read_message(gateway)
    assert (asked["method"], asked["id"] != "e1") == ("elicitation/create", True)
    gateway.send({**ANSWER, "id": asked["id"]})
    assert read_message(gateway)["id"] == number
    assert server.responses == [ANSWER]


def test_the_stream_outside_of_requests_notices_a_forgotten_session(server: Server, tmp_path: Path) -> None:
    server.asks_and_forgets = True
    with gateway_to(server.url, tmp_path) as gateway:
        assert read_message(gateway)["method"] == "elicitation/create"
        assert_cancelled(read_message(gateway))
        assert is_working(gateway)


def test_a_resumed_stream_notices_a_forgotten_session(gateway: Gateway) -> None:
    number = gateway.send_request("tools/call", {"name": "asks_and_breaks_off", "arguments": {}})
    assert read_message(gateway)["method"] == "elicitation/create"
    assert_cancelled(read_message(gateway))
    assert read_message(gateway)["id"] == number
    assert is_working(gateway)
