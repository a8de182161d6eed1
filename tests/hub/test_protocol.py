"""The rest of the protocol through `forebay serve`: all of it with one upstream, what is possible with several."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gateway_harness import TIMEOUT_SECONDS, StdioClient, parse_text
from serve_harness import LEGACY, EraClient, serving, tool_names, upstream_command, write_config
from waiting import wait_until
from wires import ERAS, MODERN

pytestmark = pytest.mark.slow

ONE = {"one": upstream_command("speaking_server.py", "stdio", "one")}
TWO = {**ONE, "two": upstream_command("speaking_server.py", "stdio", "two")}
CAPABILITIES: dict[str, Any] = {"elicitation": {}}
STAMP = "io.modelcontextprotocol/serverInfo"


@pytest.fixture(
    scope="module",
    params=[(era, names) for era in ERAS for names in (ONE, TWO)],
    ids=lambda case: f"{case[0]}-{len(case[1])}",
)
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EraClient]:
    """A client in each protocol era, with one upstream and with two."""
    era, upstreams = request.param
    with serving(write_config(tmp_path_factory.mktemp("serve"), upstreams), era, capabilities=CAPABILITIES) as client:
        client.upstreams = [*upstreams]
        yield client


@pytest.fixture(scope="module")
def adverse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EraClient]:
    upstreams = {"adverse": upstream_command("adverse_server.py")}
    with serving(write_config(tmp_path_factory.mktemp("serve"), upstreams, journal=True)) as client:
        yield client


def _text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


def _tool_name(client: EraClient, name: str) -> str:
    """Return the listed name of a tool of the first upstream; with two upstreams the names clash."""
    return name if len(client.upstreams) == 1 else f"one_{name}"


def test_resources_prompts_and_completion(client: EraClient) -> None:
    uris: list[str] = []
    params: dict[str, Any] = {}
    while True:
        page = client.request("resources/list", params)["result"]
        uris += [resource["uri"] for resource in page["resources"]]
        if "nextCursor" not in page:
            break
        params = {"cursor": page["nextCursor"]}
    assert uris == [f"{name}://{at}" for name in client.upstreams for at in range(3)]
    templates = client.request("resources/templates/list")["result"]["resourceTemplates"]
    ours = "forebay://output/"
    assert [template["name"] for template in templates if not template["uriTemplate"].startswith(ours)][
        : len(client.upstreams)
    ] == [*client.upstreams]
    for name in client.upstreams:
        for uri in (f"{name}://2", f"{name}://of/7"):
            assert client.request("resources/read", {"uri": uri})["result"]["contents"][0]["text"] == f"{name} has it"
        ref: dict[str, Any] = {"type": "ref/resource", "uri": f"{name}://of/{{id}}"}
        params = {"ref": ref, "argument": {"name": "id", "value": "v"}}
        assert client.request("completion/complete", params)["result"]["completion"]["values"] == [f"v of {name}"]
    prompts = [prompt["name"] for prompt in client.request("prompts/list")["result"]["prompts"]]
    expected = (
        ["greet", "only_one"] if len(client.upstreams) == 1 else ["one_greet", "only_one", "two_greet", "only_two"]
    )
    assert prompts == expected
    for prompt in prompts:
        got = client.request("prompts/get", {"name": prompt})["result"]["messages"][0]["content"]["text"]
        owner = "two" if "two" in prompt else "one"
        assert got == f"{prompt.removeprefix(f'{owner}_')} of {owner}"
    ref = {"type": "ref/prompt", "name": prompts[0]}
    params = {"ref": ref, "argument": {"name": "x", "value": "v"}}
    assert client.request("completion/complete", params)["result"]["completion"]["values"] == ["v of one"]


def test_unknown_names_and_methods_are_errors(client: EraClient) -> None:
    assert client.request("future/method", {})["error"]["code"] == -32601
    error = client.request("tools/call", {"name": "unknown", "arguments": {}})["error"]
    if len(client.upstreams) == 1:
        # The upstream's own error.
        assert error == {"code": -32099, "message": "odd", "data": {"of": "one"}}
        return
    assert error["code"] == -32602
    assert client.request("resources/read", {"uri": "three://1"})["error"]["code"] == -32602
    assert client.request("prompts/get", {"name": "greet"})["error"]["code"] == -32602


def test_log_level_and_subscriptions_reach_the_servers(client: EraClient) -> None:
    if client.era == MODERN:
        # The method was removed in this version.
        assert client.request("logging/setLevel", {"level": "error"})["error"]["code"] == -32601
        return
    assert "result" in client.request("logging/setLevel", {"level": "error"})
    number = client.send_request("resources/subscribe", {"uri": "one://1"})
    updated = json.loads(client.read_line())
    assert (updated["method"], updated["params"]["uri"]) == ("notifications/resources/updated", "one://1")
    assert "result" in client.read_response(number)
    for name in client.upstreams:
        prefix = "" if len(client.upstreams) == 1 else f"{name}_"
        assert _text(client.call(f"{prefix}level")) == "error"
        assert _text(client.call(f"{prefix}subscribed")) == ("['one://1']" if name == "one" else "[]")


def test_each_listener_gets_a_notification_once(tmp_path: Path) -> None:
    modern = {"one": upstream_command("speaking_server.py", "stdio", "one", "modern")}
    wanted = {"resourceSubscriptions": [f"one://{number}" for number in range(3)]}
    with serving(write_config(tmp_path, modern), MODERN) as client:
        both = sorted(client.send_request("subscriptions/listen", {"notifications": wanted}) for _ in range(2))
        updates: list[tuple[str, int]] = []

        def update(resource: int, times: int, min_notifications: int) -> None:
            """Update a resource `times` times and read until `min_notifications` about it have arrived."""
            calls = 0
            while calls < times or len([uri for uri, _ in updates if uri == f"one://{resource}"]) < min_notifications:
                if calls < times:
                    calls += 1
                    client.send_request("tools/call", {"name": "update", "arguments": {"of": resource}})
                match json.loads(client.read_line()):
                    case {"params": {"uri": uri, "_meta": {"io.modelcontextprotocol/subscriptionId": number}}}:
                        updates.append((uri, number))

        # A subscription is acknowledged when the upstream has accepted it.
        acknowledged = 0
        while acknowledged < 2:
            message = json.loads(client.read_line())
            acknowledged += message.get("method") == "notifications/subscriptions/acknowledged"
        for count in (2, 4, 6):
            # One after the other, because equal notifications that wait for the client are sent once.
            update(1, times=1, min_notifications=count)
        update(2, times=1, min_notifications=2)
        assert sorted(number for uri, number in updates if uri == "one://1") == sorted(both * 3)


def test_a_listener_gets_notifications(tmp_path: Path) -> None:
    wanted = {"resourceSubscriptions": ["one://1"], "promptsListChanged": True}
    with serving(write_config(tmp_path, TWO), MODERN) as client:
        number = client.send_request("subscriptions/listen", {"notifications": wanted})
        assert json.loads(client.read_line())["method"] == "notifications/subscriptions/acknowledged"
        notifications: list[dict[str, Any]] = []
        deadline = time.monotonic() + TIMEOUT_SECONDS
        # The subscriptions reach the upstreams a moment later.
        while len(notifications) < 2 and time.monotonic() < deadline:
            call = client.send_request("tools/call", {"name": "one_update", "arguments": {}})
            while (message := json.loads(client.read_line())).get("id") != call:
                notifications.append(message)
        updated, changed = notifications[:2]
        assert (updated["method"], updated["params"]["uri"]) == ("notifications/resources/updated", "one://1")
        assert changed["method"] == "notifications/prompts/list_changed"
        assert {item["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] for item in notifications} == {number}


def test_progress_and_logs_come_before_the_response(client: EraClient) -> None:
    tool = _tool_name(client, "progress")
    number = client.send_request("tools/call", {"name": tool, "arguments": {}, "_meta": {"progressToken": "mine"}})
    steps = [json.loads(client.read_line())["params"] for _ in range(3)]
    assert [(step["progressToken"], step["progress"]) for step in steps] == [("mine", step) for step in range(3)]
    assert _text(client.read_response(number)["result"]) == "one"
    meta = {} if client.era == LEGACY else {"_meta": {"io.modelcontextprotocol/logLevel": "debug"}}
    number = client.send_request("tools/call", {"name": _tool_name(client, "log"), "arguments": {}, **meta})
    logged = json.loads(client.read_line())
    assert (logged["method"], logged["params"]["data"]) == ("notifications/message", {"of": "one"})
    client.read_response(number)


def test_change_notifications_are_forwarded(client: EraClient) -> None:
    """A server's change notification is forwarded even if its list is unchanged."""
    if client.era == MODERN:
        client.send_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        assert json.loads(client.read_line())["method"] == "notifications/subscriptions/acknowledged"
    number = client.send_request("tools/call", {"name": _tool_name(client, "retell"), "arguments": {}})
    messages = [json.loads(client.read_line()) for _ in range(2)]
    assert {message.get("method", message.get("id")) for message in messages} == {
        number,
        "notifications/tools/list_changed",
    }


def test_progress_reaches_its_own_call(client: EraClient) -> None:
    """Clients may use the same token for two calls, and several may share a server."""
    for steps in (1, 5):
        arguments = {"steps": steps, "every": 0.1}
        params = {"name": _tool_name(client, "progress"), "arguments": arguments, "_meta": {"progressToken": "same"}}
        last = client.send_request("tools/call", params)
    reported = []
    while (message := json.loads(client.read_line())).get("id") != last:
        reported += [message["params"]["progressToken"]] if "params" in message else []
    assert reported == ["same"] * 6


def test_required_input_is_requested_as_the_client_supports_it(client: EraClient) -> None:
    if client.era == MODERN:
        params: dict[str, Any] = {"name": _tool_name(client, "ask"), "arguments": {}}
        first = client.request("tools/call", params)["result"]
        assert first["resultType"] == "input_required"
        answers = {"who": {"action": "accept", "content": {"a": 1}}}
        params |= {"inputResponses": answers, "requestState": first["requestState"]}
        assert _text(client.request("tools/call", params)["result"]) == "asked {'a': 1}"


def test_a_legacy_client_with_a_modern_server(tmp_path: Path) -> None:
    upstreams = {"one": upstream_command("speaking_server.py", "stdio", "one", "modern")}
    with serving(write_config(tmp_path, upstreams), capabilities=CAPABILITIES) as client:
        number = client.send_request("tools/call", {"name": "ask", "arguments": {}})
        request = json.loads(client.read_line())
        assert request["method"] == "elicitation/create"
        client.send({"jsonrpc": "2.0", "id": request["id"], "result": {"action": "accept", "content": {"a": 1}}})
        assert _text(client.read_response(number)["result"]) == "asked {'a': 1}"
        read = client.request("resources/read", {"uri": "one://1"})["result"]
        assert [*read] == ["contents"]


def test_server_requests_reach_the_calling_client(adverse: EraClient) -> None:
    for method in ("sampling/createMessage", "elicitation/create", "roots/list", "future/ask"):
        number = adverse.send_request("tools/call", {"name": "asks", "arguments": {"method": method}})
        request = json.loads(adverse.read_line())
        assert (request["method"], request["params"]["x"]) == (method, 1000.0)
        adverse.send({"jsonrpc": "2.0", "id": request["id"], "result": {"well": [1.5]}})
        assert parse_text(adverse.read_response(number)["result"]) == {"well": [1.5]}
    number = adverse.send_request("tools/call", {"name": "asks", "arguments": {"method": "roots/list"}})
    error = {"code": -1, "message": "no", "data": [2]}
    adverse.send({"jsonrpc": "2.0", "id": json.loads(adverse.read_line())["id"], "error": error})
    assert parse_text(adverse.read_response(number)["result"]) == error


def test_a_modern_client_with_a_legacy_server(tmp_path: Path) -> None:
    with serving(write_config(tmp_path, {"adverse": upstream_command("adverse_server.py")}), MODERN) as client:
        assert parse_text(client.call("asks", method="sampling/createMessage"))["code"] == -32601
        answer = client.request("future/method", {"a": 1})["result"]
        assert answer["resultType"] == "complete"
        # The members of `_meta` say who the client is, which is for servers of its own version.
        assert answer["as_told"] == {"a": 1, "_meta": {}}


def test_a_server_gets_the_capabilities_of_the_client(client: EraClient) -> None:
    assert _text(client.call(_tool_name(client, "capable"))) == str(sorted(CAPABILITIES))


def test_a_legacy_server_is_told_exactly_what_a_legacy_client_declares(tmp_path: Path) -> None:
    capabilities = {"elicitation": {"url": {}}, "roots": {"listChanged": True}, "experimental": {"x": {}}}
    path = write_config(tmp_path, {"asking": upstream_command("asking_server.py")})
    with serving(path, LEGACY, capabilities=capabilities) as client:
        assert parse_text(client.call("heard"))["capabilities"] == [capabilities]


def test_the_client_s_notifications_reach_the_servers(adverse: EraClient) -> None:
    adverse.send({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
    adverse.send({"jsonrpc": "2.0", "method": "notifications/future", "params": {}})
    _wait_for_message(adverse, "notifications/roots/list_changed")
    _wait_for_message(adverse, "notifications/future")


def test_a_cancelled_call_is_cancelled_at_the_server(adverse: EraClient) -> None:
    number = adverse.send_request("tools/call", {"name": "late", "arguments": {"size": 100_000}})
    adverse.request("ping")
    adverse.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
    _wait_for_message(adverse, "notifications/cancelled")
    assert "output_handle_created" not in _text(adverse.call("journal"))


def _wait_for_message(client: StdioClient, method: str) -> None:
    """Wait until the adverse server has received a message of this method."""
    wait_until(lambda: method in parse_text(client.call("told")), TIMEOUT_SECONDS)


def test_the_instructions_of_all_servers_and_our_server_info(client: EraClient) -> None:
    assert {"tools", "resources", "prompts", "completions"} <= set(client.server_info["capabilities"])
    own, _, note = client.server_info["instructions"].rpartition("\n\n")
    assert own == "\n\n".join(f"Mind {name}." for name in client.upstreams)
    assert "output_handle" in note
    answers = [
        client.server_info,
        client.request("resources/read", {"uri": "one://1"})["result"],
        client.call(_tool_name(client, "meta")),
    ]
    stamps = [answer.get("serverInfo") or (answer.get("_meta") or {}).get(STAMP) for answer in answers]
    assert {stamp["name"] for stamp in stamps if stamp} == {"forebay"}
    assert len([stamp for stamp in stamps if stamp]) == (1 if client.era == LEGACY else 3)


def test_meta_of_a_call_reaches_the_server(client: EraClient) -> None:
    result = client.request("tools/call", {"name": _tool_name(client, "meta"), "arguments": {}, "_meta": {"own": 1.5}})
    assert "'own': 1.5" in _text(result["result"])


def test_unknown_methods_and_fields_are_forwarded(adverse: EraClient) -> None:
    odd = {"n": 1.50, "s": "é", "deep": [[[{}]]], "_meta": {"x": 1}}
    assert adverse.request("future/method", odd)["result"]["as_told"] == odd
    assert adverse.request("no/such/method")["error"] == {"code": -32601, "message": "no no/such/method", "data": [1.0]}
    assert adverse.request("tools/list")["result"]["tools"][0]["x-unknown"] == 1.5
    assert adverse.call("text", more={"later": [1.0]})["later"] == [1.0]


@pytest.mark.parametrize("era", ERAS)
def test_added_tools_are_listed(era: str, tmp_path: Path) -> None:
    upstreams = {"changing": upstream_command("changing_server.py", "stdio")}
    with serving(write_config(tmp_path, upstreams), era) as client:
        assert "new" not in tool_names(client)
        number = client.send_request("tools/call", {"name": "add", "arguments": {"name": "new"}})
        if era == LEGACY:
            methods = [json.loads(client.read_line()).get("method") for _ in range(2)]
            assert "notifications/tools/list_changed" in methods
        else:
            client.read_response(number)
        wait_until(lambda: "new" in tool_names(client), TIMEOUT_SECONDS)


def test_a_subscription_does_not_block_shutdown(tmp_path: Path) -> None:
    path = write_config(
        tmp_path, {"changing": upstream_command("changing_server.py", "stdio")}, shutdown_grace_seconds=60
    )
    with serving(path, MODERN) as client:
        client.send_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        assert json.loads(client.read_line())["method"] == "notifications/subscriptions/acknowledged"
        client.send_request("tools/call", {"name": "add", "arguments": {"name": "new"}})
        while json.loads(client.read_line()).get("method") != "notifications/tools/list_changed":
            pass
        assert client.close() == 0


def test_extra_fields_of_a_single_server_s_list_are_kept(adverse: EraClient) -> None:
    assert adverse.request("tools/list")["result"]["x-more"] == [1.0, 2e5]


@pytest.mark.parametrize("era", ERAS)
def test_a_slow_call_is_a_timeout_error(era: str, tmp_path: Path) -> None:
    upstreams = {"adverse": upstream_command("adverse_server.py")}
    with serving(write_config(tmp_path, upstreams, call_timeout_seconds=1), era) as client:
        result = client.call("hangs")
        assert result["isError"]
        error = json.loads(_text(result))["error"]
        assert error["code"] == "upstream_timeout"
        assert "allow it longer" in error["message"]


@pytest.mark.parametrize("era", ERAS)
def test_progress_restarts_the_timeout(era: str, tmp_path: Path) -> None:
    path = write_config(tmp_path, {"asking": upstream_command("asking_server.py")}, call_timeout_seconds=3)
    with serving(path, era) as client:
        params = {"name": "toils", "arguments": {"steps": 8}, "_meta": {"progressToken": "t"}}
        number = client.send_request("tools/call", params)
        while (message := json.loads(client.read_line())).get("id") != number:
            assert message["method"] == "notifications/progress"
        assert _text(message["result"]) == '"done"'


def test_the_client_s_answer_time_does_not_count_for_the_call_timeout(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"asking": upstream_command("asking_server.py")}, call_timeout_seconds=2)
    with serving(path, LEGACY, capabilities={"elicitation": {}}) as client:
        number = client.send_request("tools/call", {"name": "asks", "arguments": {}})
        question = json.loads(client.read_line())
        assert question["method"] == "elicitation/create"
        time.sleep(3)
        client.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
        assert json.loads(_text(client.read_response(number)["result"])) == [{"action": "decline"}]
        # After the client's answer the timeout applies again.
        client.send_request("tools/call", {"name": "hangs", "arguments": {}})
        question = json.loads(client.read_line())
        client.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
        assert "upstream_timeout" in client.read_line().decode()


def test_an_input_request_does_not_pause_calls_to_other_upstreams(tmp_path: Path) -> None:
    upstreams = {name: upstream_command("asking_server.py") for name in ("one", "two")}
    with serving(
        write_config(tmp_path, upstreams, call_timeout_seconds=2), LEGACY, capabilities={"elicitation": {}}
    ) as client:
        late = client.send_request("tools/call", {"name": "one_waits", "arguments": {}})
        asking = client.send_request("tools/call", {"name": "two_rounds", "arguments": {"count": 10}})
        answers: list[dict[str, Any]] = []
        while len(answers) < 2:
            message = json.loads(client.read_line())
            if message.get("method") == "elicitation/create":
                time.sleep(0.5)
                client.send({"jsonrpc": "2.0", "id": message["id"], "result": {"action": "decline"}})
            elif "id" in message:
                answers.append(message)
        assert [answer["id"] for answer in answers] == [late, asking]
        assert "upstream_timeout" in _text(answers[0]["result"])
        assert len(json.loads(_text(answers[1]["result"]))) == 10


HANGING = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    result = {
        "tools/list": {"tools": []},
        "initialize": {
            "protocolVersion": "2025-11-25",
            "serverInfo": {"name": "hangs", "version": "1"},
            "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
        },
    }.get(message["method"])
    if result is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def test_a_hanging_server_does_not_block_the_others(tmp_path: Path) -> None:
    hanging = {"command": sys.executable, "args": ["-c", HANGING]}
    upstreams = {"hanging": hanging, "one": upstream_command("speaking_server.py", "stdio", "one")}
    with serving(write_config(tmp_path, upstreams)) as client:
        listed = client.send_request("prompts/list")
        read = client.send_request("resources/read", {"uri": "one://1"})
        answers = {message["id"]: message for message in (json.loads(client.read_line()) for _ in range(2))}
        assert answers[listed]["result"]["prompts"]
        assert answers[read]["result"]["contents"]
        client.wait_for_log("hanging does not answer prompts/list: it takes too long")


def test_a_connected_client_must_answer_within_the_timeout(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"asking": upstream_command("asking_server.py")}, answer_timeout_seconds=0.5)
    with serving(path, LEGACY, capabilities={"elicitation": {}}) as client:
        number = client.send_request("tools/call", {"name": "asks", "arguments": {}})
        assert json.loads(client.read_line())["method"] == "elicitation/create"
        messages = [json.loads(client.read_line()) for _ in range(2)]
        (result,) = [message["result"] for message in messages if message.get("id") == number]
        (response,) = json.loads(_text(result))
        assert "did not answer within 0.5 s" in response["message"]


def test_a_connected_client_must_answer_a_modern_server_within_the_timeout(tmp_path: Path) -> None:
    path = write_config(
        tmp_path, {"one": upstream_command("speaking_server.py", "stdio", "one", "modern")}, answer_timeout_seconds=0.5
    )
    with serving(path, LEGACY, capabilities={"elicitation": {}}) as client:
        number = client.send_request("tools/call", {"name": "ask", "arguments": {}})
        question = json.loads(client.read_line())
        assert question["method"] == "elicitation/create"
        messages = [json.loads(client.read_line()) for _ in range(2)]
        (error,) = [message["error"] for message in messages if message.get("id") == number]
        assert "did not answer within 0.5 s" in error["message"]
        # The client may stop asking its user.
        (cancelled,) = [message["params"] for message in messages if message.get("method") == "notifications/cancelled"]
        assert cancelled["requestId"] == question["id"]


@pytest.mark.parametrize("wrong", [{"params": []}, {"jsonrpc": "1.0"}, {"params": {"name": "\ud800"}}], ids=str)
def test_an_invalid_request_gets_an_error(wrong: dict[str, Any], adverse: EraClient) -> None:
    message = {"jsonrpc": "2.0", "id": "odd", "method": "tools/call", **wrong}
    adverse.send(message)
    answer = json.loads(adverse.read_line())
    assert (answer["id"], answer["error"]["code"]) == (message["id"], -32600)
    # The connection still works.
    assert adverse.request("ping")["result"] is not None


def test_an_invalid_message_does_not_stop_the_server(adverse: EraClient) -> None:
    adverse.send(rb'{"\ud800":1,"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":NaN}}')
    assert adverse.request("ping")["result"] is not None


def test_progress_with_an_invalid_token_is_dropped(adverse: EraClient) -> None:
    answer = adverse.request("tools/call", {"name": "reports", "arguments": {"steps": 1, "token": ["odd"]}})
    assert _text(answer["result"]) == "reported"
