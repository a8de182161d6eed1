"""A relay in the same process, between two peers that keep what they get."""

import json
from typing import Any

from forebay.errors import UpstreamFailed
from forebay.outputs.policy import OutputPolicy
from forebay.proxy.relay import Relay
from forebay.wire.framing import Message
from forebay.wire.messages import read_bytes


class Peer:
    """Keeps the messages that the relay sends."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []

    def send(self, raw: Message) -> None:
        self.received.append(json.loads(read_bytes(raw)))


class Gateway:
    """A relay between two peers."""

    def __init__(self, policy: OutputPolicy) -> None:
        self.policy = policy
        self.client, self.server = Peer(), Peer()
        self.wait_count = 0
        self.is_ready = True
        self.relay = Relay(policy, self.client, self.server, wait_ready=self._wait_ready)

    def _wait_ready(self) -> None:
        self.wait_count += 1
        if not self.is_ready:
            raise UpstreamFailed("the server is busy")

    def receive_from_client(self, **message: Any) -> None:
        self.relay.receive_from_client(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def receive_from_server(self, **message: Any) -> None:
        self.relay.receive_from_server(json.dumps({"jsonrpc": "2.0", **message}).encode())
