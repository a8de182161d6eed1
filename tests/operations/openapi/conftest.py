"""Fixtures for tests of HTTP APIs: servers that record requests, and a store."""

from collections.abc import Iterator
from pathlib import Path

import forebay
import pytest
from http_api import API, http_api


@pytest.fixture
def api() -> Iterator[API]:
    with http_api() as server:
        yield server


@pytest.fixture
def other_host() -> Iterator[API]:
    with http_api() as server:
        yield server


@pytest.fixture
def store(tmp_path: Path) -> Iterator[forebay.Store]:
    with forebay.open_store(tmp_path / "store") as opened:
        yield opened
