"""What servers of the handshake ask for many clients over HTTP: nobody is asked what is another's."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from listening_harness import ALICE, BOB, Listening, tokens_in
from serve_harness import command_of, config
from wires import MODERN, Wire, message_of, started, wired_to

pytestmark = pytest.mark.slow

CAPABILITIES: dict[str, Any] = {"elicitation": {"form": {}}}
META = {"io.modelcontextprotocol/clientCapabilities": CAPABILITIES}
ACCEPTED = {"action": "accept", "content": {"name": "Ann"}}


@contextmanager
def _listening(folder: Path, upstream: dict[str, Any], *options: str) -> Iterator[Listening]:
    command = [sys.executable, "-m", "forebay", "serve", "--config", str(config(folder, {"one": upstream}))]
    listen = ["--http", "127.0.0.1:0", "--log-level", "info", *options]
    with subprocess.Popen([*command, *listen], stderr=subprocess.PIPE, text=True) as gateway:
        try:
            listening = Listening(gateway)
            yield listening
            listening.terminate()
            assert listening.ended() == 0
            assert "Traceback" not in listening.logged
        finally:
            gateway.kill()


def _ask(wire: Wire, tool: str, asked: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    """What a call is answered with; if it was asked something before, it is answered."""
    params: dict[str, Any] = {"name": tool, "arguments": arguments, "_meta": META}
    if asked is not None:
        answers = dict.fromkeys(asked["inputRequests"], ACCEPTED)
        params |= {"inputResponses": answers, "requestState": asked["requestState"]}
    answer = json.loads(message_of(wire.ask("tools/call", params)))
    return dict(answer.get("result") or answer["error"])


def _said(result: dict[str, Any]) -> Any:
    return json.loads(result["content"][0]["text"])


def _message(result: dict[str, Any]) -> str:
    (question,) = result["inputRequests"].values()
    return str(question["params"]["message"])


def test_another_s_state_is_as_unknown_as_one_that_never_was(tmp_path: Path) -> None:
    with _listening(tmp_path, command_of("asking_server.py"), "--token-file", tokens_in(tmp_path)) as listening:
        alice, bob = (wired_to(listening.port, MODERN, token) for token in (ALICE, BOB))
        asked = _ask(alice, "asks")
        refusals = [_ask(bob, "asks", asked), _ask(bob, "asks", {**asked, "requestState": "never"})]
        assert refusals[0] == refusals[1]
        assert refusals[0]["code"] == -32602
        assert _said(_ask(alice, "asks", asked)) == [ACCEPTED]
        # Two that are open when it is told to end do not keep it.
        _ask(alice, "asks")
        _ask(alice, "asks")


def test_who_thinks_for_long_finds_the_call_where_it_was(tmp_path: Path) -> None:
    options = ("--token-file", tokens_in(tmp_path), "--session-idle-seconds", "0.5")
    with _listening(tmp_path, command_of("asking_server.py"), *options) as listening:
        alice = wired_to(listening.port, MODERN, ALICE)
        asked = _ask(alice, "asks")
        time.sleep(2)
        assert _said(_ask(alice, "asks", asked)) == [ACCEPTED]


def test_over_http_the_stream_says_whose_a_question_is(tmp_path: Path) -> None:
    with started("eliciting_server.py", "http", "legacy") as process:
        assert process.stdout
        upstream = {"url": f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"}
        with _listening(tmp_path, upstream, "--token-file", tokens_in(tmp_path)) as listening:
            names = {"alice": ALICE, "another of alice": ALICE, "bob": BOB}
            wires = {name: wired_to(listening.port, MODERN, token) for name, token in names.items()}
            with ThreadPoolExecutor(3) as pool:
                asked = dict(zip(wires, pool.map(lambda of: _ask(wires[of], "elicit", of=of), wires), strict=True))
            assert {name: _message(each) for name, each in asked.items()} == {name: f"Who is {name}?" for name in names}
            for name, wire in wires.items():
                assert _said(_ask(wire, "elicit", asked[name], of=name)) == ACCEPTED


def test_of_several_that_are_nobody_none_is_asked_what_may_be_another_s(tmp_path: Path) -> None:
    with _listening(tmp_path, command_of("asking_server.py")) as listening, ThreadPoolExecutor(1) as pool:
        first, second = (wired_to(listening.port, MODERN) for _ in range(2))
        waiting = pool.submit(_ask, first, "waits")
        while "tools/call" not in (heard := _said(_ask(second, "heard"))["methods"]) or heard.count("tools/call") < 2:
            time.sleep(0.05)
        (refusal,) = _said(_ask(second, "asks"))
        assert "nobody can tell whose this is" in refusal["message"]
        _ask(second, "heard", go=True)
        assert _said(waiting.result(30)) == "waited"
        asked = _ask(second, "asks")
        assert _said(_ask(second, "asks", asked)) == [ACCEPTED]
