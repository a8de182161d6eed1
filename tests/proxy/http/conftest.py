"""A faulty HTTP server, and a gateway in front of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty_server import Server, faulty_server
from gateway_harness import Gateway, gateway_to


@pytest.fixture
def server() -> Iterator[Server]:
    with faulty_server() as server:
        yield server


@pytest.fixture
def gateway(server: Server, tmp_path: Path) -> Iterator[Gateway]:
    with gateway_to(server.url, tmp_path) as gateway:
        yield gateway
