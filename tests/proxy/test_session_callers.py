"""The handlers keep the clients of several sessions apart: one output policy, one `Session` for each client."""

import json
import weakref
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from forebay.outputs.policy import OutputPolicy
from forebay.proxy.request_handler import ForwardedRequest, RequestHandler
from forebay.proxy.response_handler import ResponseHandler
from forebay.proxy.session import Session
from forebay.wire.framing import Spool
from forebay.wire.lazy_json import dump
from forebay.wire.messages import parse

SERVER_INFO = {"name": "forebay", "version": "0"}
TEXT = "a line of text\n" * 10_000


class Talk:
    """A session of a client with a server, without the transports."""

    def __init__(self, policy: OutputPolicy, session: Session) -> None:
        self._on_request = RequestHandler(policy, session, SERVER_INFO, lambda _meta: [])
        self._on_response = ResponseHandler(policy, session, SERVER_INFO)

    def request(self, method: str, params: dict[str, Any], result: Any = None) -> Any:
        """Return the result that the client gets for a request, to which the server answers with `result`."""
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        raw = dump(message)
        outcome = self._on_request(parse(raw), raw)
        if not isinstance(outcome, ForwardedRequest):
            return json.loads(outcome[-1])["result"]
        response = dump({"jsonrpc": "2.0", "id": 1, "result": result})
        replacement = self._on_response(outcome.pending, parse(response), response)
        assert not isinstance(replacement, Spool)
        return json.loads(response if replacement is None else replacement)["result"]

    def call(self, tool: str, arguments: dict[str, Any], result: Any = None) -> Any:
        return self.request("tools/call", {"name": tool, "arguments": arguments}, result)

    def store(self, tool: str = "read") -> str:
        """Call a tool with a large result; return the handle."""
        result = self.call(tool, {}, {"content": [{"type": "text", "text": TEXT}]})
        return str(json.loads(result["content"][0]["text"])["output_handle"])


@pytest.fixture
def policy(tmp_path: Path) -> Iterator[OutputPolicy]:
    options: dict[str, Any] = {"output_mode": "auto", "monitor": True, "file_refs": True, "disable_tools": ["drop"]}
    with closing(OutputPolicy((tmp_path / "store").as_uri(), journal=True, **options)) as policy:
        policy.learn_tools([{"name": name, "inputSchema": {"type": "object"}} for name in ("read", "drop")])
        yield policy


def open_session(principal: str | None, **options: Any) -> Session:
    session = Session(principal=principal, **options)
    session.task_owners = (weakref.ref(session), principal)
    return session


def test_a_handle_exists_only_for_its_principal(policy: OutputPolicy) -> None:
    alice, bob = (Talk(policy, open_session(name)) for name in ("alice", "bob"))
    handle = alice.store()
    assert json.loads(alice.call("output_fetch", {"output_handle": handle})["content"][0]["text"])["content"]
    assert bob.call("output_fetch", {"output_handle": handle})["isError"]
    assert alice.request("resources/read", {"uri": f"forebay://output/{handle}"})["contents"]
    raw = dump({"id": 1, "method": "resources/read", "params": {"uri": f"forebay://output/{handle}"}})
    assert "error" in json.loads(bob._on_request(parse(raw), raw)[0])  # type: ignore[index]


def test_a_reference_leads_only_to_what_its_principal_has_stored(policy: OutputPolicy) -> None:
    alice, bob = (Talk(policy, open_session(name)) for name in ("alice", "bob"))
    arguments = {"text": {"$handle": alice.store()}}
    assert alice.call("read", arguments, {"content": []}) == {"content": []}
    assert bob.call("read", arguments, {"content": []})["isError"]


def test_the_handle_length_of_the_session_counts(policy: OutputPolicy) -> None:
    assert len(Talk(policy, Session()).store()) == len("oh_") + 12
    assert len(Talk(policy, Session(handle_length=26)).store()) == len("oh_") + 26


def test_calls_and_denials_are_recorded_for_the_principal(policy: OutputPolicy) -> None:
    Talk(policy, open_session("alice")).store()
    assert Talk(policy, open_session("bob")).call("drop", {})["isError"]
    policy.store.call_counts.flush()
    assert [row["calls"] for row in policy.store.call_counts.read(["alice"]) if row["tool"] == "read"] == [1]
    assert [*policy.store.call_counts.read(["bob"])] == []
    events = {(event["event"], event["principal"]) for event in policy.store.journal.recent(50)}
    assert {("tool_called", "alice"), ("capability_denied", "bob")} <= events


def test_sizes_count_for_the_session_or_for_all_stateless_requests_of_a_principal(policy: OutputPolicy) -> None:
    session, stateless = open_session("alice"), open_session("alice", is_stateless=True)
    for each in (session, stateless):
        Talk(policy, each).call("read", {}, {"content": []})
    assert policy.monitor is not None
    assert policy.monitor.get_sent_bytes("alice", session) == policy.monitor.get_sent_bytes("alice") > 0


def test_a_task_belongs_to_its_session_and_principal(policy: OutputPolicy) -> None:
    alice, bob = open_session("alice"), open_session("bob")
    Talk(policy, alice).call("read", {}, {"task": {"taskId": "t", "status": "working"}})
    params = {"taskId": "t"}
    assert policy.tasks.find_call(params, alice.task_owners)
    assert policy.tasks.find_call(params, open_session("alice").task_owners)
    assert not policy.tasks.find_call(params, bob.task_owners)
    content = {"content": [{"type": "text", "text": TEXT}]}
    for session, tool in ((alice, "read"), (bob, "tasks/result")):
        result = Talk(policy, session).request("tasks/result", params, content)
        handle = json.loads(result["content"][0]["text"])["output_handle"]
        assert policy.store.stat(handle, principal=session.principal).source_tool == tool


def test_the_journal_masks_handles_where_anonymous_clients_share_a_server(policy: OutputPolicy) -> None:
    handle = Talk(policy, Session(is_public=True)).store()
    assert handle in Talk(policy, Session()).call("journal", {})["content"][0]["text"]
    assert handle not in Talk(policy, Session(is_public=True)).call("journal", {})["content"][0]["text"]
