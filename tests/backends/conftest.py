"""The backends that tests run on: local files, and those of `TEST_BACKENDS`, such as `redis,s3`."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure_server import ACCOUNT, CONTAINER, azure_server
from forebay import Options
from forebay.store.backends.read_cache import PIECE_BYTES
from redis_server import RedisServer, get_cluster_url, redis_cluster, redis_server
from s3_server import S3Server, minio_server, s3_server

REMOTE_BACKENDS = [name for name in os.environ.get("TEST_BACKENDS", "").split(",") if name]
STORES = ["local", *(name for name in REMOTE_BACKENDS if name != "replicas")]

# Without their servers, `make test` has the tests of local files only; `make test-backends` has all.
collect_ignore = [name for name in ("redis", "s3", "minio", "replicas") if name not in REMOTE_BACKENDS]


@pytest.fixture(params=[*STORES, *(f"{name} with a cache" for name in STORES[1:])])
def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty store. Where it has a cache, this is so small that pieces make room for others."""
    name, _, has_cache = request.param.partition(" with ")
    if has_cache:
        monkeypatch.setitem(Options.__init__.__kwdefaults__ or {}, "read_cache_bytes", 4 * PIECE_BYTES)
    if name == "local":
        return (tmp_path / "store").as_uri()
    return str(request.getfixturevalue(f"{name}_address"))


@pytest.fixture(params=list(itertools.product(STORES, repeat=2)), ids="-to-".join)
def addresses(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The addresses of two empty stores."""

    def find(name: str, number: int) -> str:
        if name == "local":
            return (tmp_path / f"store-{number}").as_uri()
        url = str(request.getfixturevalue(f"{name}_address"))
        return url.replace("?", f"/{number}?") if "?" in url else f"{url}?prefix=store-{number}"

    source, target = request.param
    return find(source, 1), find(target, 2)


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[RedisServer]:
    """A server that is empty for each test."""
    with redis_server() as server:
        yield server


@pytest.fixture
def redis_address(shared_redis: RedisServer) -> str:
    shared_redis.client.flushall()
    return shared_redis.url


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[list[RedisServer]]:
    """The nodes of a cluster that is empty for each test."""
    with redis_cluster() as nodes:
        yield nodes


@pytest.fixture
def redis_cluster_address(shared_cluster: list[RedisServer]) -> str:
    for node in shared_cluster:
        node.client.flushall()
    return get_cluster_url(shared_cluster)


_prefixes = itertools.count()


@pytest.fixture(scope="session")
def shared_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3_address(shared_s3: S3Server) -> str:
    return shared_s3.url(f"conformance-{next(_prefixes)}")


@pytest.fixture(scope="session")
def shared_minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with minio_server(tmp_path_factory.mktemp("minio")) as server:
        yield server


@pytest.fixture
def minio_address(shared_minio: S3Server) -> str:
    return shared_minio.url(f"conformance-{next(_prefixes)}")


@pytest.fixture(scope="session")
def shared_azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with azure_server(tmp_path_factory.mktemp("azure")) as url:
        yield url


@pytest.fixture
def azure_address(shared_azure: str) -> str:
    return f"az://{CONTAINER}/conformance-{next(_prefixes)}?account={ACCOUNT}&endpoint={shared_azure}"
