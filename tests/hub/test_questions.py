"""Requests of 2025-11-25 servers during a call become `input_required` results for 2026-07-28 clients."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from gateway_harness import TIMEOUT_SECONDS
from serve_harness import EraClient, serving, upstream_command, write_config
from serve_http_harness import server_pids
from waiting import wait_until
from wires import MODERN

pytestmark = pytest.mark.slow

ALL: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
ACCEPTED = {"action": "accept", "content": {"name": "Ann"}}
SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 7}
LINK = {"mode": "url", "message": "Pay", "url": "https://example.com/pay", "elicitationId": "1"}
NOT_FOUND, INVALID_PARAMS = -32601, -32602


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EraClient]:
    with _serve(tmp_path_factory.mktemp("questions")) as client:
        yield client


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[EraClient]:
    """A client whose server has received nothing yet."""
    with _serve(tmp_path) as client:
        yield client


def _serve(folder: Path, capabilities: dict[str, Any] = ALL, **options: Any) -> AbstractContextManager[EraClient]:
    upstreams = {"asking": upstream_command("asking_server.py")}
    return serving(write_config(folder, upstreams, **options), MODERN, capabilities=capabilities)


def _params(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": arguments}


def _with_responses(
    params: dict[str, Any], required: dict[str, Any], answers: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the same call with a response to every request."""
    if answers is None:
        answers = dict.fromkeys(required["inputRequests"], ACCEPTED)
    return {**params, "inputResponses": answers, "requestState": required["requestState"]}


def _call_until_asked(client: EraClient, params: dict[str, Any]) -> dict[str, Any]:
    result = client.request("tools/call", params)["result"]
    assert result["resultType"] == "input_required", result
    return dict(result)


def _parse_result(result: dict[str, Any]) -> Any:
    assert result["resultType"] == "complete", result
    return json.loads(result["content"][0]["text"])


def _answers(client: EraClient, *numbers: int) -> dict[int, dict[str, Any]]:
    """Return the responses to requests, in whatever order they arrive."""
    answers: dict[int, dict[str, Any]] = {}
    while len(answers) < len(numbers):
        message = json.loads(client.read_line())
        assert message["id"] in numbers
        answers[message["id"]] = message
    return answers


def _server_log(client: EraClient, **arguments: Any) -> dict[str, list[Any]]:
    return dict(_parse_result(client.call("heard", **arguments)))


def _wait_for_message(client: EraClient, kind: str, expected: Any) -> None:
    """Wait until the server has received a method or a response."""
    wait_until(lambda: expected in _server_log(client)[kind], TIMEOUT_SECONDS)


@pytest.mark.parametrize(
    ("method", "params", "answer"),
    [
        ("elicitation/create", None, ACCEPTED),
        ("elicitation/create", None, {"action": "decline"}),
        ("elicitation/create", LINK, {"action": "accept"}),
        (
            "sampling/createMessage",
            SAMPLE,
            {"role": "assistant", "content": {"type": "text", "text": "Hi"}, "model": "m"},
        ),
        ("roots/list", {}, {"roots": [{"uri": "file:///tmp"}]}),
    ],
)
def test_a_server_request_becomes_an_input_required_result(
    client: EraClient, method: str, params: dict[str, Any] | None, answer: dict[str, Any]
) -> None:
    call = _params("asks", method=method, **({} if params is None else {"params": params}))
    required = _call_until_asked(client, call)
    ((key, question),) = required["inputRequests"].items()
    assert question["method"] == method
    assert params is None or question["params"] == params
    assert len(required["requestState"]) >= 43
    assert _parse_result(client.request("tools/call", _with_responses(call, required, {key: answer}))["result"]) == [
        answer
    ]


@pytest.mark.parametrize(
    ("capabilities", "announced"),
    [
        (ALL, ALL),
        ({}, {}),
        ({"roots": {}, "extensions": {"x/y": {}}}, {"roots": {}}),
        ({"elicitation": {}}, {"elicitation": {"form": {}}}),
        (
            {"elicitation": {"url": {}}, "sampling": {"tools": {}}},
            {"elicitation": {"url": {}}, "sampling": {"tools": {}}},
        ),
    ],
)
def test_a_server_is_told_what_its_client_can_do(
    tmp_path: Path, capabilities: dict[str, Any], announced: dict[str, Any]
) -> None:
    with _serve(tmp_path, capabilities) as client:
        assert _server_log(client)["capabilities"] == [announced]


def test_requests_with_other_capabilities_have_a_server_of_their_own(fresh: EraClient) -> None:
    call = _params("asks")
    required = _call_until_asked(fresh, call)
    plain: dict[str, Any] = {"_meta": {"io.modelcontextprotocol/clientCapabilities": {}}}
    (refusal,) = _parse_result(fresh.request("tools/call", {**call, **plain})["result"])
    assert refusal["code"] == NOT_FOUND
    fresh.send({"jsonrpc": "2.0", "method": "notifications/tests/news"})
    for meta, announced in (({}, ALL), (plain, {})):

        def read_log(meta: dict[str, Any] = meta) -> Any:
            return _parse_result(fresh.request("tools/call", {**_params("heard"), **meta})["result"])

        assert read_log()["capabilities"] == [announced]
        # A notification carries no capabilities, so each server of the client gets it.
        wait_until(lambda: "notifications/tests/news" in read_log()["methods"], TIMEOUT_SECONDS)
    # The first server has kept its call.
    assert _parse_result(fresh.request("tools/call", _with_responses(call, required))["result"]) == [ACCEPTED]


def test_concurrent_input_requests_are_sent_together(client: EraClient) -> None:
    call = _params("asks", count=3)
    required = _call_until_asked(client, call)
    assert len(required["inputRequests"]) == 3
    answers = {key: {"action": "accept", "content": {"of": key}} for key in required["inputRequests"]}
    responses = _parse_result(client.request("tools/call", _with_responses(call, required, answers))["result"])
    assert sorted(response["content"]["of"] for response in responses) == sorted(answers)
    call = _params("rounds", count=3)
    states = set()
    result = _call_until_asked(client, call)
    for _ in range(3):
        assert len(result["inputRequests"]) == 1
        states.add(result["requestState"])
        result = client.request("tools/call", _with_responses(call, result))["result"]
    assert _parse_result(result) == [ACCEPTED] * 3
    assert len(states) == 3


def test_unanswered_input_requests_are_sent_again(client: EraClient) -> None:
    call = _params("asks", count=2)
    first = _call_until_asked(client, call)
    one, other = first["inputRequests"]
    second = _call_until_asked(client, _with_responses(call, first, {one: ACCEPTED, "nobody's": ACCEPTED}))
    assert [*second["inputRequests"]] == [other]
    third = _call_until_asked(client, {**call, "requestState": second["requestState"]})
    assert _parse_result(
        client.request("tools/call", _with_responses(call, third, {other: {"action": "cancel"}}))["result"]
    ) == [
        ACCEPTED,
        {"action": "cancel"},
    ]


@pytest.mark.parametrize(
    ("capabilities", "method", "params"),
    [
        ({}, "elicitation/create", None),
        ({"elicitation": {}}, "sampling/createMessage", SAMPLE),
        ({"elicitation": {}}, "roots/list", {}),
        ({"elicitation": {"form": {}}}, "elicitation/create", LINK),
        ({"elicitation": {"url": {}}}, "elicitation/create", None),
        ({"sampling": {}}, "sampling/createMessage", {**SAMPLE, "tools": []}),
        ({"sampling": {"context": {}}}, "sampling/createMessage", {**SAMPLE, "toolChoice": {"mode": "auto"}}),
        (ALL, "future/ask", {}),
        (ALL, "tasks/list", {}),
    ],
)
def test_unsupported_input_requests_are_refused_at_once(
    tmp_path: Path, capabilities: dict[str, Any], method: str, params: dict[str, Any] | None
) -> None:
    with _serve(tmp_path, capabilities) as client:
        (error,) = _parse_result(client.call("asks", method=method, **({} if params is None else {"params": params})))
        assert error["code"] == NOT_FOUND


def test_invalid_input_requests_are_refused_with_a_reason(client: EraClient) -> None:
    (error,) = _parse_result(client.call("asks", method="elicitation/create", params={"message": 1}))
    assert error["code"] == INVALID_PARAMS
    assert "message" in error["message"]


def test_a_request_state_can_be_used_once_for_its_own_call(client: EraClient) -> None:
    call = _params("asks")
    required = _call_until_asked(client, call)
    again = _with_responses(call, required)
    others = [
        ("tools/call", {**again, "name": "rounds"}),
        ("tools/call", {**again, "arguments": {"count": 2}}),
        ("tools/call", {**again, "requestState": required["requestState"][:-1]}),
        ("tools/call", {**again, "requestState": 7}),
        ("tools/call", _with_responses(call, required) | {"requestState": None}),
        ("prompts/get", {**again, "name": "asks"}),
    ]
    refusals = [client.request(method, params)["error"] for method, params in others]
    assert {refusal["code"] for refusal in refusals} == {INVALID_PARAMS}
    assert len({refusal["message"] for refusal in refusals}) == 1
    wrongs: list[Any] = [[], {"question-1": 1}, "yes"]
    for wrong in wrongs:
        assert client.request("tools/call", {**again, "inputResponses": wrong})["error"]["code"] == INVALID_PARAMS
    assert _parse_result(client.request("tools/call", again)["result"]) == [ACCEPTED]
    assert client.request("tools/call", again)["error"] == refusals[0]


@pytest.mark.parametrize("size", [1, 100_000])
def test_a_repetition_may_have_its_members_in_another_order(size: int, client: EraClient) -> None:
    call = _params("asks", count=1, x={"a": list(range(size)), "b": 1})
    required = _call_until_asked(client, call)
    arguments = {"x": {"b": 1, "a": list(range(size))}, "count": 1}
    again = {**_with_responses({}, required), "arguments": arguments, "name": "asks"}
    assert _parse_result(client.request("tools/call", again)["result"]) == [ACCEPTED]


def test_a_large_result_after_an_input_request_is_stored(client: EraClient) -> None:
    call = _params("large", size=300_000)
    result = client.request("tools/call", _with_responses(call, _call_until_asked(client, call)))["result"]
    handle = json.loads(result["content"][0]["text"])["output_handle"]
    page = json.loads(client.call("output_fetch", output_handle=handle)["content"][0]["text"])
    assert page["total"] == 300_002


def test_progress_reaches_the_current_request_of_a_paused_call(client: EraClient) -> None:
    call = {**_params("reports"), "_meta": {"progressToken": "first"}}
    number = client.send_request("tools/call", call)
    before = json.loads(client.read_line())
    assert (before["params"]["progressToken"], before["params"]["progress"]) == ("first", 0)
    required = client.read_response(number)["result"]
    number = client.send_request(
        "tools/call", _with_responses({**call, "_meta": {"progressToken": "second"}}, required)
    )
    after = json.loads(client.read_line())
    assert (after["params"]["progressToken"], after["params"]["progress"]) == ("second", 1)
    assert _parse_result(client.read_response(number)["result"]) == "reported"


def test_progress_is_dropped_if_the_continuing_request_has_no_token(client: EraClient) -> None:
    call = _params("reports")
    number = client.send_request("tools/call", {**call, "_meta": {"progressToken": "first"}})
    required = client.read_response(number)["result"]
    number = client.send_request("tools/call", _with_responses(call, required))
    assert json.loads(client.read_line())["id"] == number


def test_a_paused_call_expires(tmp_path: Path) -> None:
    with _serve(tmp_path, answer_timeout_seconds=0.5) as client:
        call = _params("asks")
        required = _call_until_asked(client, call)
        _wait_for_message(client, "methods", "notifications/cancelled")
        (refusal,) = _server_log(client)["answers"]
        assert "did not answer within 0.5 s" in refusal["message"]
        assert client.request("tools/call", _with_responses(call, required))["error"]["code"] == INVALID_PARAMS


def test_a_paused_call_does_not_time_out(tmp_path: Path) -> None:
    with _serve(tmp_path, call_timeout_seconds=1) as client:
        call = _params("hangs")
        required = _call_until_asked(client, call)
        time.sleep(1.5)
        assert "notifications/cancelled" not in _server_log(client)["methods"]
        result = client.request("tools/call", _with_responses(call, required))["result"]
        assert json.loads(result["content"][0]["text"])["error"]["code"] == "upstream_timeout"
        _wait_for_message(client, "methods", "notifications/cancelled")


def test_the_number_of_paused_calls_is_limited(fresh: EraClient) -> None:
    call = _params("asks")
    first = _call_until_asked(fresh, call)
    for _ in range(31):
        _call_until_asked(fresh, call)
    (refusal,) = _parse_result(fresh.call("asks"))
    assert "too many calls wait" in refusal["message"]
    assert _parse_result(fresh.request("tools/call", _with_responses(call, first))["result"]) == [ACCEPTED]
    _call_until_asked(fresh, call)


def test_a_call_cancelled_between_two_input_requests_is_cancelled_at_the_server(fresh: EraClient) -> None:
    call = _params("hangs")
    number = fresh.send_request("tools/call", _with_responses(call, _call_until_asked(fresh, call)))
    _wait_for_message(fresh, "answers", ACCEPTED)
    fresh.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
    _wait_for_message(fresh, "methods", "notifications/cancelled")


def test_a_server_that_dies_during_an_input_request(fresh: EraClient) -> None:
    call = _params("dies")
    (child,) = server_pids(fresh.process.pid)
    required = _call_until_asked(fresh, call)
    # The restarted server's first request has the same id as the first server's.
    wait_until(lambda: child not in (children := server_pids(fresh.process.pid)) and children, TIMEOUT_SECONDS)
    other = _params("asks")
    others = _call_until_asked(fresh, other)
    result = fresh.request("tools/call", _with_responses(call, required))
    error = json.loads(result["result"]["content"][0]["text"])["error"]
    assert (error["code"], result["result"]["isError"]) == ("upstream_failed", True)
    assert _server_log(fresh)["answers"] == []
    assert _parse_result(fresh.request("tools/call", _with_responses(other, others))["result"]) == [ACCEPTED]


@pytest.mark.parametrize("end", [pytest.param("signal", marks=pytest.mark.posix), "close"])
def test_an_open_input_request_does_not_block_shutdown(end: str, tmp_path: Path) -> None:
    with _serve(tmp_path, shutdown_grace_seconds=60) as client:
        _call_until_asked(client, _params("asks"))
        if end == "signal":
            client.process.send_signal(signal.SIGTERM)
            assert client.process.wait(TIMEOUT_SECONDS) == 0
        else:
            assert client.close() == 0
        assert "Traceback" not in client.log
        assert "never retrieved" not in client.log


@pytest.mark.posix
def test_an_answer_sent_just_before_shutdown_is_used(tmp_path: Path) -> None:
    with _serve(tmp_path, shutdown_grace_seconds=30) as client:
        call = _params("rounds", count=2)
        number = client.send_request("tools/call", _with_responses(call, _call_until_asked(client, call)))
        listing = client.send_request("tools/list")
        # Requests are read in order, so the answer was read before either of them has a response.
        first = json.loads(client.read_line())
        os.kill(client.process.pid, signal.SIGTERM)
        responses = {first["id"]: first, **_answers(client, listing if first["id"] == number else number)}
        assert responses[number]["result"]["resultType"] == "input_required"
        assert client.process.wait(TIMEOUT_SECONDS) == 0


def test_any_of_several_calls_of_one_client_may_get_an_input_request(fresh: EraClient) -> None:
    waiting = fresh.send_request("tools/call", _params("waits"))
    call = _params("asks", count=2)
    required = _call_until_asked(fresh, call)
    later = fresh.send_request("tools/call", _params("waits"))
    assert _parse_result(fresh.request("tools/call", _with_responses(call, required))["result"]) == [ACCEPTED] * 2
    go = fresh.send_request("tools/call", _params("heard", go=True))
    answers = _answers(fresh, waiting, later, go)
    assert [_parse_result(answers[number]["result"]) for number in (waiting, later)] == ["waited"] * 2


def test_an_input_request_of_another_call_is_answered_too(fresh: EraClient) -> None:
    """A late request of the server is attributed to the client's newest call."""
    waiting = _params("waits")
    number = fresh.send_request("tools/call", _params("asks", delay=0.5))
    other = fresh.send_request("tools/call", waiting)
    required = fresh.read_response(other)["result"]
    assert required["resultType"] == "input_required"
    _server_log(fresh, go=True)
    other = fresh.send_request("tools/call", _with_responses(waiting, required))
    answers = _answers(fresh, number, other)
    assert _parse_result(answers[other]["result"]) == "waited"
    assert _parse_result(answers[number]["result"]) == [ACCEPTED]


def test_an_input_request_of_a_finished_call_goes_to_another_call_or_fails(fresh: EraClient) -> None:
    assert _parse_result(fresh.call("early")) == "early"
    (refusal,) = _server_log(fresh)["answers"]
    assert refusal["code"] == NOT_FOUND


def test_other_methods_cannot_return_input_required(client: EraClient) -> None:
    (refusal,) = json.loads(client.request("future/method")["result"]["content"][0]["text"])
    assert refusal["code"] == NOT_FOUND
