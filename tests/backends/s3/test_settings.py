"""Addresses of buckets, and the environment."""

import pytest
from forebay import InvalidArgument
from forebay.store.address import RemoteAddress
from forebay.store.backends.object_settings import make_settings


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ALLOW_HTTP"):
        monkeypatch.delenv(name, raising=False)


def open_bucket(url: str) -> None:
    make_settings(RemoteAddress(url)).open({}, {})


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket",
        "s3://bucket/deep/prefix/",
        "s3://bucket/p?region=eu-north-1",
        "s3://bucket/p?endpoint=https://s3.example.org",
        "s3://bucket/p?endpoint=http://127.0.0.1:9000&region=x",
        "s3://bucket/p?endpoint=http://localhost:9000",
        "s3://bucket/p?endpoint=http://[::1]:9000",
        "gs://bucket/p",
        "az://container/p?account=someone",
    ],
)
def test_addresses_open(url: str) -> None:
    open_bucket(url)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://key:secret-word@bucket/p", "credentials come from the environment"),
        ("s3://bucket:9000/p", "endpoint"),
        ("s3://bucket/p?secret_access_key=secret-word", "the parameters endpoint, region, and no others"),
        ("s3://bucket/p?endpoint=http://example.org", "has no TLS: use https://, or set AWS_ALLOW_HTTP=true"),
        ("s3://bucket/p?endpoint=https://me:secret-word@example.org", "must be https://host"),
        ("s3://bucket/p?endpoint=ftp://example.org", "must be https://host"),
        ("s3://bucket/p?endpoint=http://[bad", "must be https://host"),
        ("s3://bucket/a//b", "cannot be opened"),
        ("s3://bucket/p#fragment", "and no fragment"),
        ("az://container/p", "cannot be opened"),
    ],
)
def test_wrong_addresses_say_what_is_right_and_show_no_secret(url: str, expected: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        open_bucket(url)
    assert expected in str(raised.value)
    assert "secret-word" not in str(raised.value)


def test_the_environment_names_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://example.org")
    with pytest.raises(InvalidArgument, match="has no TLS"):
        open_bucket("s3://bucket/p")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    open_bucket("s3://bucket/p")
