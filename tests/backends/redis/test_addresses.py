"""Addresses of stores on Redis: what they mean, and that nothing shows their credentials."""

import sys

import forebay
import pytest
from forebay import InvalidArgument
from forebay.store.address import RemoteAddress, resolve_address
from forebay.store.backends.redis_address import RedisAddress, parse_redis_address


def parse(url: str) -> RedisAddress:
    address = resolve_address(url)
    assert isinstance(address, RemoteAddress)
    return parse_redis_address(address)


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REDIS_USERNAME", "REDIS_PASSWORD", "REDISCLI_AUTH"):
        monkeypatch.delenv(name, raising=False)


def test_a_server() -> None:
    address = parse("redis://cache.example")
    assert (address.topology, address.hosts, address.database) == ("server", (("cache.example", 6379),), 0)
    assert (address.prefix, address.is_encrypted, address.credentials) == ("forebay", False, {})
    address = parse("rediss://[::1]:7000/3?prefix=team:a&ssl_ca_certs=/etc/ca.pem&ssl_check_hostname=false")
    assert (address.hosts, address.database, address.prefix) == ((("::1", 7000),), 3, "team:a")
    assert address.is_encrypted
    assert address.options == {"ssl_ca_certs": "/etc/ca.pem", "ssl_check_hostname": False}


def test_a_cluster_and_sentinels() -> None:
    address = parse("redis+cluster://one:7000,two/")
    assert (address.topology, address.hosts) == ("cluster", (("one", 7000), ("two", 6379)))
    address = parse("rediss+sentinel://ann:p%40ss@one,two:7001/main/2?sentinel_password=other")
    assert (address.topology, address.hosts) == ("sentinel", (("one", 26379), ("two", 7001)))
    assert (address.master, address.database, address.is_encrypted) == ("main", 2, True)
    assert address.credentials == {"username": "ann", "password": "p@ss"}
    assert address.sentinel_credentials == {"password": "other"}


def test_credentials_come_from_the_url_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse("redis://:secret@host").credentials == {"password": "secret"}
    monkeypatch.setenv("REDISCLI_AUTH", "of-the-command")
    assert parse("redis://host").credentials == {"password": "of-the-command"}
    monkeypatch.setenv("REDIS_PASSWORD", "of-the-environment")
    assert parse("redis://host").credentials == {"password": "of-the-environment"}
    assert parse("redis://ann@host").credentials == {"username": "ann", "password": "of-the-environment"}
    assert parse("redis://ann:secret@host").credentials == {"username": "ann", "password": "secret"}


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://host:0", "a host is"),
        ("redis://host:70000", "a host is"),
        ("redis://one,two", "several hosts"),
        ("redis://host/cache", "number of a database"),
        ("redis://host?prefix=", "a prefix is"),
        ("redis://host?prefix={a}", "a prefix is"),
        ("redis://host?db=3", "'db' is no option"),
        ("redis://host?ssl_ca_certs=/etc/ca.pem", "with rediss"),
        ("redis://host?socket_timeout=soon", "socket_timeout"),
        ("redis+cluster://host/3", "only database 0"),
        ("redis+sentinel://host", "name of the master"),
    ],
)
def test_what_is_wrong_with_an_address(url: str, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason) as error:
        parse(url.replace("://", "://ann:hunter2@"))
    assert "hunter2" not in str(error.value)
    assert "redis+sentinel://HOST" in str(error.value)


def test_nothing_shows_credentials() -> None:
    url = "redis+sentinel://ann:hunter2@host/main?sentinel_password=hunter3"
    address = resolve_address(url)
    assert isinstance(address, RemoteAddress)
    for text in (str(address), repr(address), str(parse(url)), repr(parse(url))):
        assert "hunter" not in text


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("forebay.store.backends.redis")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(InvalidArgument, match=r"pip install 'forebay\[redis\]'"):
        forebay.open_store("redis://127.0.0.1:1")
