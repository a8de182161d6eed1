"""What the gateway keeps for its client and its server is bounded."""

import json

import pytest
from forebay.errors import UpstreamFailed
from forebay.proxy.pipe_writers import MAX_QUEUED_BYTES
from forebay.proxy.process_group import Grace
from forebay.proxy.session import Session
from forebay.proxy.stdio import Process, StdioUpstream
from forebay.wire.framing import LineReader
from gateway_harness import ADVERSE


def test_subscriptions_to_repeat_are_bounded() -> None:
    session = Session()
    for number in range(3000):
        uri = f"x://{number}" if number % 2 else f"x://{number}/{'x' * 20_000}"
        params = {"uri": uri}
        session.record("resources/subscribe", params, json.dumps({"params": params}).encode())
    assert [*session.subscribe_requests][-1] == "x://2999"
    assert sum(map(len, session.subscribe_requests.values())) <= 16 << 20


def test_messages_that_wait_for_a_restarting_server_are_bounded_in_bytes() -> None:
    process = Process(ADVERSE)
    upstream = StdioUpstream(process, ADVERSE, make_reader=LineReader, grace=Grace(0.1))
    try:
        upstream._queued_messages = []
        for _ in range(MAX_QUEUED_BYTES // (8 << 20)):
            upstream.send(b"x" * (8 << 20))
        with pytest.raises(UpstreamFailed, match="too much waits for it"):
            upstream.send(b"x")
    finally:
        upstream.close()
        # Close the pipe.
        assert [*process.read_lines(lambda *_, **__: [])] == []
