"""Results of tasks are handled like other tool results, in both protocol eras."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from forebay import open_store
from forebay.outputs.modes import Mode
from forebay.outputs.result import get_task_result, set_task_result
from forebay.outputs.tasks import TaskCalls
from forebay.wire.lazy_json import parse_lazy
from gateway_harness import StdioClient, connect, parse_text, script, wrap
from large_server import RELATED, make_call_result
from serve_harness import EraClient, serving, upstream_command, write_config
from serve_http_harness import connect_as, serving_http
from wires import ERAS, LEGACY, Wire, extract_message

pytestmark = pytest.mark.slow

SIZE = 200_000
SERVER = [*script("large_server.py"), "stdio"]


@contextmanager
def wrap_server(folder: Path, era: str, *options: str) -> Iterator[EraClient]:
    talk = EraClient(wrap(folder / "store", *options, server=SERVER), era, {})
    try:
        talk.initialize()
        yield talk
    finally:
        talk.kill()


@pytest.fixture(params=["wrap", "serve one", "serve two"])
def open_server(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return a function that starts the server behind forebay, with command line options, and connects to it."""
    if request.param == "wrap":
        return lambda era, *options: wrap_server(tmp_path, era, *options)
    upstream = upstream_command("large_server.py", "stdio")
    others = {"other": upstream_command("raw_server.py", "stdio")} if request.param == "serve two" else {}
    path = write_config(tmp_path, {"large": upstream, **others})
    return lambda era, *options: serving(path, era, *options)


@contextmanager
def wrap_server_with_known_task(folder: Path) -> Iterator[StdioClient]:
    """Wrap a server that has a task `known` from the start."""
    with connect(*wrap(folder / "store", server=[*SERVER, "known"])) as talk:
        yield talk


def call_as_task(talk: EraClient, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool as a task and return the result, in the way of the connection's era."""
    params = {"name": tool, "arguments": {**arguments, "later": True}}
    if talk.era == LEGACY:
        created = talk.request("tools/call", {**params, "task": {"ttl": 60_000}})["result"]
        return dict(talk.request("tasks/result", {"taskId": created["task"]["taskId"]})["result"])
    created = talk.request("tools/call", params)["result"]
    assert created["resultType"] == "task"
    number = talk.send_request("tasks/get", {"taskId": created["taskId"]})
    line = talk.read_line()
    assert json.loads(line)["id"] == number
    assert arguments["size"] < 10_000 or len(line) <= 4096
    state = json.loads(line)["result"]
    assert state["status"] == "completed"
    assert state["taskId"] == created["taskId"]
    assert state["resultType"] == "complete"
    return dict(state["result"])


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("kind", ["text", "blocks", "structured"])
def test_a_large_one_is_a_handle(era: str, kind: str, open_server: Any, tmp_path: Path) -> None:
    with open_server(era) as talk:
        result = call_as_task(talk, kind, size=SIZE, more={"isError": True})
        handle = parse_text(result)["output_handle"]
        assert result["isError"]
        assert ("structuredContent" in result) is (kind == "structured")
        if era == LEGACY:
            assert result["_meta"][RELATED]["taskId"]
    expected = make_call_result(kind, SIZE)
    with open_store((tmp_path / "store").as_uri()) as store:
        with store.open(handle) as file:
            stored = file.read()
        events = store.journal.recent(50, is_operator=True)
    if kind == "text":
        assert stored.decode() == expected["content"][0]["text"]
    elif kind == "blocks":
        assert json.loads(stored)["content"] == expected["content"]
    else:
        assert json.loads(stored) == expected["structuredContent"]
    # The tool is known from the call that created the task.
    assert {event["source_tool"] for event in events if event["event"] == "output_handle_created"} == {kind}


@pytest.mark.parametrize("era", ERAS)
def test_a_small_one_is_as_it_was(era: str, open_server: Any) -> None:
    with open_server(era) as talk:
        result = call_as_task(talk, "text", size=1000)
        assert result["content"] == make_call_result("text", 1000)["content"]


@pytest.mark.parametrize("era", ERAS)
def test_the_tool_s_own_mode_holds(era: str, tmp_path: Path) -> None:
    with wrap_server(tmp_path, era, "--contract", "text") as talk:
        answer = parse_text(call_as_task(talk, "text", size=5000))
        assert answer["success"]
        assert answer["data"]


def test_of_a_task_that_was_not_made_here_the_server_s_mode_holds(tmp_path: Path) -> None:
    with wrap_server_with_known_task(tmp_path) as talk:
        result = talk.request("tasks/result", {"taskId": "known"})["result"]
        assert "output_handle" in parse_text(result)


def test_tasks_are_forgotten_one_by_one() -> None:
    tasks, mode = TaskCalls(), Mode("auto")
    for number in range(5000):
        tasks.remember({"task": {"taskId": f"t{number}"}}, "tool", mode)
    assert tasks.find_call({"taskId": "t4999"}) == ("tool", mode)
    assert tasks.find_call({"taskId": "t0"}) is None
    assert tasks.find_call({"taskId": 1}) is tasks.find_call(None) is None


def test_tasks_of_one_name_are_their_owners_own() -> None:
    tasks, mode = TaskCalls(), Mode("auto")
    tasks.remember({"task": {"taskId": "1"}}, "first", mode, ("session", "ann"))
    tasks.remember({"task": {"taskId": "1"}}, "second", mode, ("other session", "ann"))
    tasks.remember({"task": {"taskId": "1"}}, "third", mode, ("bob",))
    assert tasks.find_call({"taskId": "1"}, ("session", "ann")) == ("first", mode)
    # In another session, the principal's latest task of that id is found.
    assert tasks.find_call({"taskId": "1"}, ("new session", "ann")) == ("second", mode)
    assert tasks.find_call({"taskId": "1"}, ("bob",)) == ("third", mode)
    assert tasks.find_call({"taskId": "1"}) is None


def test_who_makes_many_tasks_has_nobody_else_s_forgotten() -> None:
    tasks, mode = TaskCalls(), Mode("auto")
    tasks.remember({"task": {"taskId": "1"}}, "tool", mode, ("ann",))
    for number in range(5000):
        tasks.remember({"task": {"taskId": f"t{number}"}}, "tool", mode, ("bob",))
    assert tasks.find_call({"taskId": "1"}, ("ann",)) == ("tool", mode)
    assert tasks.find_call({"taskId": "t0"}, ("bob",)) is None


@pytest.mark.parametrize("era", ERAS)
def test_the_result_of_one_s_task_comes_from_its_own_server_whatever_another_makes(era: str, tmp_path: Path) -> None:
    upstreams = {name: upstream_command("large_server.py", "stdio") for name in ("one", "two")}

    def start_task(client: Wire, tool: str) -> str:
        params = {"name": tool, "arguments": {"size": 10, "later": True}, "task": {"ttl": 60_000}}
        created = json.loads(extract_message(client.request("tools/call", params)))["result"]
        return str(created.get("task", created)["taskId"])

    with serving_http(tmp_path, upstreams) as listening:
        ann, bob = (connect_as(listening.port, era, name) for name in ("ann", "bob"))
        task = start_task(ann, "one_text")
        assert start_task(bob, "two_text") == task
        request = ("tasks/result" if era == LEGACY else "tasks/get", {"taskId": task})
        result = json.loads(extract_message(ann.request(*request)))["result"]
        assert (result if era == LEGACY else result["result"])["content"] == make_call_result("text", 10)["content"]


@pytest.mark.parametrize(
    "answer",
    [{"content": []}, {"task": 1}, {"task": {"taskId": 1}}, {"resultType": "task"}, {"taskId": "a"}, None, []],
)
def test_what_is_no_task_is_not_noted(answer: Any) -> None:
    tasks = TaskCalls()
    tasks.remember(answer, "tool", Mode())
    assert tasks.find_call({"taskId": "a"}) is None


def test_where_the_result_is() -> None:
    state = {"status": "completed", "result": {"content": []}}
    assert get_task_result("tasks/get", state) == {"content": []}
    assert get_task_result("tasks/get", {"status": "working"}) is None
    for no_task in (parse_lazy(b'"' + b"x" * 2000 + b'"'), {"content": ["x"], "result": 1}, {"structuredContent": 1}):
        assert get_task_result("tasks/get", no_task) is no_task
        assert set_task_result("tasks/get", no_task, 2) == 2
    assert get_task_result("tasks/result", state) is state
    assert set_task_result("tasks/get", state, 1) == {"status": "completed", "result": 1}
    assert set_task_result("tasks/result", state, 1) == 1
