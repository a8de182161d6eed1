"""Many clients of `headgate serve`: what is one's is not another's."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from serve_harness import command_of, config
from wires import ERAS, LEGACY, MODERN, Wire, message_of, started, wired_to


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with started("raw_server.py", "http") as process:
        assert process.stdout
        url = f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        upstreams = {"adverse": command_of("adverse_server.py"), "raw": {"url": url}}
        path = config(tmp_path_factory.mktemp("serve"), upstreams)
        with started("served_http.py", "http", str(path)) as gateway:
            assert gateway.stdout
            yield int(gateway.stdout.readline())


def _called(wire: Wire, tool: str, **arguments: Any) -> Any:
    """What a call of a tool that answers with one text says."""
    answer = json.loads(message_of(wire.ask("tools/call", {"name": tool, "arguments": arguments})))
    text = answer["result"]["content"][0]["text"]
    try:
        return json.loads(text)
    except ValueError:
        return text


@pytest.mark.parametrize("era", ERAS)
def test_one_principal_s_handle_does_not_exist_for_another(era: str, port: int) -> None:
    ann, bob = (wired_to(port, era, name) for name in ("ann", "bob"))
    handle = _called(ann, "text", size=100_000)["output_handle"]
    assert len(handle) == len("oh_") + 26
    assert _called(ann, "output_fetch", output_handle=handle)["total"] == 100_000
    assert _called(bob, "output_fetch", output_handle=handle)["error"]["code"] == "output_handle_not_found"


@pytest.mark.parametrize("era", ERAS)
def test_of_a_server_over_http_too_a_large_result_is_its_caller_s(era: str, port: int) -> None:
    ann, bob = (wired_to(port, era, name) for name in ("ann", "bob"))
    result = {"content": [{"type": "text", "text": "r" * 2_000_000}]}
    handle = _called(ann, "says", result=result)["output_handle"]
    assert _called(ann, "output_fetch", output_handle=handle)["total"] == 2_000_000
    assert _called(bob, "output_fetch", output_handle=handle)["error"]["code"] == "output_handle_not_found"


def test_clients_with_connections_have_servers_of_their_own_and_others_share_one(port: int) -> None:
    first, second = wired_to(port, LEGACY, "ann"), wired_to(port, LEGACY, "ann")
    assert _called(first, "pid") == _called(first, "pid") != _called(second, "pid")
    assert _called(wired_to(port, MODERN, "ann"), "pid") == _called(wired_to(port, MODERN, "bob"), "pid")


def test_results_that_come_at_once_are_not_mixed_up(port: int) -> None:
    def stored(number: int) -> None:
        name, era = f"user-{number % 4}", ERAS[number % 2]
        wire = wired_to(port, era, name)
        letter = chr(ord("a") + number)
        handle = _called(wire, "text", size=60_000 + number, of=letter)["output_handle"]
        page = _called(wire, "output_fetch", output_handle=handle)
        assert (page["total"], set(page["content"])) == (60_000 + number, {letter})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(stored, range(16)))
