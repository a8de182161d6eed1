"""A server for each test module, and an address for each test."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_server import Proxy, S3Server, proxy, s3_server

_numbers = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def prefix() -> str:
    """The prefix of an empty store."""
    return f"store-{next(_numbers)}"


@pytest.fixture
def address(server: S3Server, prefix: str) -> str:
    return server.url(prefix)


@pytest.fixture
def front(server: S3Server) -> Iterator[Proxy]:
    with proxy(server) as running:
        yield running


@pytest.fixture
def spill_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path
