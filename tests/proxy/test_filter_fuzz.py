"""No message that a client can send, in any spelling, calls a tool that the capability filter denies."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from forebay.outputs.policy import OutputPolicy
from forebay.proxy.relay import Relay
from forebay.store import Store
from forebay.wire.framing import Message
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from lenient_server import LenientServer, simplify
from stores import events, store_at

DENIED = "delete_all"
ALLOWED = "read"
SECONDS = 20

Pairs = list[tuple[str, Any]]
"""An object as pairs, so that names may be repeated."""


class Client:
    """Keeps the messages that the relay sends to the client."""

    def __init__(self) -> None:
        self.received: list[Any] = []

    def send(self, raw: Message) -> None:
        assert isinstance(raw, bytes | bytearray)
        self.received.append(json.loads(raw))


class Session:
    """A client and a lenient server, with a filtering relay between them."""

    def __init__(self, store: Store) -> None:
        self.client = Client()
        self.server = LenientServer([DENIED, ALLOWED])
        policy = OutputPolicy(store, capabilities={DENIED: "danger"}, disable_tools=["danger"])
        self.relay = Relay(policy, self.client, self.server)
        self.server.respond = self.relay.receive_from_server

    def send(self, raw: str) -> None:
        self.relay.receive_from_client(raw.encode("utf-8", "surrogatepass"))
        assert self.relay._workers.wait_idle(SECONDS)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with store_at(tmp_path / "store") as store:
        yield store


def dump_pairs(value: Any, spell: Any) -> str:
    """Return JSON in which objects are lists of pairs, and `spell` writes the strings."""
    if isinstance(value, str):
        return str(spell(value))
    if isinstance(value, list) and value and all(isinstance(entry, tuple) for entry in value):
        return "{" + ",".join(f"{spell(name)}:{dump_pairs(inner, spell)}" for name, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(dump_pairs(inner, spell) for inner in value) + "]"
    return json.dumps(value)


def escape_all(text: str) -> str:
    return '"' + "".join(f"\\u{ord(character):04x}" for character in text) + '"'


LOOK_ALIKES = {"a": "а", "e": "е", "o": "о", "c": "с", "s": "ſ", "l": "ⅼ", "n": "ｎ", "m": "ｍ", "t": "ｔ"}
FILLERS = [" ", "\t", "\n", "\u200b", "\x00", "\u00a0", "."]


@st.composite
def spelled(draw: st.DrawFn, text: str) -> str:
    """Return a text, or nearly that text."""
    match draw(st.sampled_from(["same", "same", "same", "case", "filler", "look-alike", "repeated"])):
        case "case":
            flips = draw(st.lists(st.booleans(), min_size=len(text), max_size=len(text)))
            return "".join(c.upper() if flip else c for c, flip in zip(text, flips, strict=True))
        case "filler":
            at = draw(st.integers(0, len(text)))
            return text[:at] + draw(st.sampled_from(FILLERS)) + text[at:]
        case "look-alike":
            at = draw(st.integers(0, len(text) - 1))
            return text[:at] + LOOK_ALIKES.get(text[at], text[at]) + text[at + 1 :]
        case "repeated":
            return text.replace("/", draw(st.sampled_from(["//", "/./", "\\", "∕"])))
    return text


IDS = st.sampled_from([1, 0, -1, 1.5, "a", "", None, True, [], [1], [("x", 1)], 10**30, "x" * 2000])


@st.composite
def calls(draw: st.DrawFn) -> Any:
    """Return a call of the denied tool, or something like one."""
    arguments: Any = draw(st.sampled_from([[("name", DENIED)], [], None, "x" * 3000]))
    params: Any = [(draw(spelled("name")), DENIED), (draw(spelled("arguments")), arguments)]
    if draw(st.booleans()):
        params.insert(draw(st.integers(0, 2)), ("name", draw(st.sampled_from([ALLOWED, DENIED, 7]))))
    if draw(st.booleans()):
        params.append((draw(st.sampled_from(["task", "_meta", "params", "ref"])), [("name", DENIED)]))
    params = draw(st.sampled_from([params, params, params, [DENIED, {}], DENIED, [params], None]))
    message: Pairs = [("jsonrpc", "2.0")]
    if draw(st.booleans()):
        message.append((draw(spelled("id")), draw(IDS)))
    method = draw(spelled(draw(st.sampled_from(["tools/call"] * 6 + ["completion/complete", "tasks/result", "ping"]))))
    message.append((draw(spelled("method")), method))
    message.append((draw(spelled("params")), params))
    if draw(st.booleans()):
        extra = draw(st.sampled_from([("method", "ping"), ("method", "tools/call"), ("params", []), ("result", [])]))
        message.insert(draw(st.integers(0, len(message))), extra)
    return draw(st.permutations(message)) if draw(st.booleans()) else message


messages = st.recursive(calls(), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=4)

CALL = [("jsonrpc", "2.0"), ("id", 1), ("method", "tools/call"), ("params", [("name", DENIED)])]


@given(messages, st.sampled_from([json.dumps, escape_all]))
@example(CALL, json.dumps)
@example(CALL[:1] + CALL[2:], json.dumps)
@example([CALL], json.dumps)
@example([[CALL]], json.dumps)
@settings(max_examples=400, deadline=None, suppress_health_check=[*HealthCheck])
def test_no_spelling_calls_a_denied_tool(store: Store, message: Any, spell: Any) -> None:
    session = Session(store)
    session.send(dump_pairs(message, spell))
    assert DENIED not in map(str, session.server.calls)
    assert not any(DENIED in simplify(name) for name in session.server.calls)


LINE_BREAKS = ["\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]


def wrap_deeply(value: str) -> str:
    return "[" * 70 + value + "]" * 70


def wrap_with_invalid_key(value: str) -> str:
    return '{"\\ud800":' + value + "}"


def wrap_with_large_neighbour(value: str) -> str:
    return "[" + value + ',"' + "\\n" * 600_000 + '"' + ",1" * 600_000 + "]"


@pytest.mark.parametrize("line_break", LINE_BREAKS)
@pytest.mark.parametrize("wrap", [wrap_deeply, wrap_with_invalid_key, wrap_with_large_neighbour])
@pytest.mark.parametrize(
    "carrier",
    [
        '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"read","arguments":%s}}',
        '{"jsonrpc":"2.0","id":2,"method":"ping","params":{"_meta":%s}}',
        '{"jsonrpc":"2.0","method":"notifications/initialized","params":{"_meta":{"a":%s}}}',
        '{"jsonrpc":"2.0","id":2,"result":{"a":%s}}',
        '[{"jsonrpc":"2.0","id":2,"error":{"a":%s}}]',
    ],
)
def test_a_call_between_line_breaks_of_an_unparsed_value_is_refused(
    store: Store, carrier: str, wrap: Callable[[str], str], line_break: str
) -> None:
    session = Session(store)
    session.send(carrier % wrap(line_break + dump_pairs(CALL, json.dumps) + line_break))
    assert session.server.calls == []
    assert events(store, "capability_denied")


@pytest.mark.parametrize("wrap", [wrap_deeply, wrap_with_invalid_key, wrap_with_large_neighbour])
def test_an_unparsed_value_without_line_breaks_reaches_the_server(store: Store, wrap: Callable[[str], str]) -> None:
    session = Session(store)
    arguments = wrap('{ "text" : "\u2028" }')
    session.send(f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"read","arguments":{arguments}}}}}')
    assert session.server.calls == [ALLOWED]


@pytest.mark.parametrize("method", ["tools/call", "Tools/Call", "tools/call ", "tools\\/call"])
def test_a_call_without_an_id_is_refused_and_recorded(store: Store, method: str) -> None:
    session = Session(store)
    session.send(json.dumps({"jsonrpc": "2.0", "method": method, "params": {"name": DENIED}}))
    assert session.server.calls == []
    assert session.client.received == []
    (event,) = events(store, "capability_denied")
    assert event["tool"] == method.strip()


def test_a_request_of_another_method_is_refused_with_a_reason(store: Store) -> None:
    session = Session(store)
    session.send('{"jsonrpc":"2.0","id":7,"method":"future/call","params":{"name":"delete_all"}}')
    (response,) = session.client.received
    assert response["id"] == 7
    assert "'future/call' is not one of the protocol's requests" in response["error"]["message"]


def test_permitted_calls_and_notifications_reach_the_server(store: Store) -> None:
    session = Session(store)
    session.send('{"jsonrpc":"2.0","method":"notifications/initialized"}')
    session.send('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read","arguments":{"name":"x"}}}')
    assert session.server.calls == [ALLOWED]
    assert events(store, "capability_denied") == []


class HeldServer(LenientServer):
    """Keeps the requests of the client, to be answered in any order."""

    def __init__(self) -> None:
        super().__init__([DENIED, ALLOWED])
        self.held: list[dict[str, Any]] = []

    def send(self, raw: Message) -> None:
        message = json.loads(bytes(raw))  # type: ignore[arg-type]
        if str(message.get("id")).startswith("forebay-"):
            super().send(raw)
        else:
            self.held.append(message)

    def answer(self, message: dict[str, Any], result: Any) -> None:
        self.respond(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())


class HeldSession(Session):
    """A session whose filter knows capabilities only from the server's list."""

    server: HeldServer

    def __init__(self, store: Store) -> None:
        self.client = Client()
        self.server = HeldServer()
        self.relay = Relay(
            OutputPolicy(store, tools_only=["core"], capabilities={DENIED: "x"}), self.client, self.server
        )
        self.server.respond = self.relay.receive_from_server

    def request(self, request_id: object, method: str, **params: Any) -> None:
        self.send(json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}))


LIST = {"tools": [{"name": DENIED}, {"name": ALLOWED}, {"name": "Delete_All"}]}


@pytest.mark.parametrize("other_id", [5, 5.0])
def test_an_id_that_is_in_use_is_refused(store: Store, other_id: object) -> None:
    """Otherwise the response to one request would be taken for that to the other."""
    session = HeldSession(store)
    session.request(5, "tools/call", name=ALLOWED)
    session.request(other_id, "tools/list")
    (call,) = session.server.held
    (refusal,) = session.client.received
    assert "is in use" in refusal["error"]["message"]
    session.server.answer(call, {"content": []})
    session.request(other_id, "tools/list")
    session.server.answer(session.server.held[1], LIST)
    assert DENIED not in json.dumps(session.client.received)


def test_the_id_of_a_cancelled_request_is_refused(store: Store) -> None:
    session = HeldSession(store)
    session.request(5, "tools/list")
    session.send('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}')
    session.request(5, "tools/call", name=ALLOWED)
    session.server.answer(session.server.held[0], LIST)
    (refusal,) = session.client.received
    assert "is in use" in refusal["error"]["message"]


def test_a_response_that_nobody_waits_for_teaches_the_filter_nothing(store: Store) -> None:
    session = HeldSession(store)
    session.request(1, "tools/call", name=ALLOWED)
    (call,) = session.server.held
    session.server.answer(call, {"content": []})
    session.server.answer(call, LIST)
    session.server.answer({"id": "unknown"}, LIST)
    assert len(session.client.received) == 1
    session.request(2, "tools/call", name="Delete_All")
    assert len(session.server.held) == 1


@pytest.mark.parametrize(
    "result",
    [
        r'{"tools":[{"name":"delete_all"}],"\ud800":1}',
        '{"tools":{"delete_all":{"name":"delete_all"}}}',
        '[{"name":"delete_all"}]',
        '"delete_all"',
        '{"Tools":[{"name":"delete_all"}]}',
    ],
)
def test_a_list_that_cannot_be_read_is_not_shown(store: Store, result: str) -> None:
    session = HeldSession(store)
    session.request(5, "tools/list")
    session.server.respond(b'{"jsonrpc":"2.0","id":5,"result":%s}' % result.encode())
    (refusal,) = session.client.received
    assert "cannot be read" in refusal["error"]["message"]


def test_an_error_in_place_of_a_list_is_forwarded(store: Store) -> None:
    session = HeldSession(store)
    session.request(5, "tools/list")
    error = {"jsonrpc": "2.0", "id": 5, "error": {"code": 1, "message": "not now"}}
    session.server.respond(json.dumps(error).encode())
    assert session.client.received == [error]
