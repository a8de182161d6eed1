"""The location and the options of a store."""

from pathlib import Path
from typing import Any

import forebay
import pytest
from forebay import InvalidArgument
from forebay.store.address import mask_address, resolve_address
from stores import noise, payload_files, store_at, whole


def test_the_default_is_the_user_s_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FOREBAY_HOME", raising=False)
    monkeypatch.setattr("platformdirs.user_data_path", lambda name, **_: tmp_path / "data" / name)
    with forebay.open_store() as store:
        store.put(b"x")
    assert len(payload_files(tmp_path / "data" / "forebay")) == 1


@pytest.mark.parametrize("home", ["home", "a folder", "ordner-ü"])
def test_forebay_home_overrides_the_default_root(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOREBAY_HOME", home)
    with forebay.open_store() as store:
        handle = store.put(b"x").output_handle
    assert len(payload_files(tmp_path / home)) == 1
    with forebay.open_store((tmp_path / home).as_uri()) as store:
        assert whole(store, handle) == b"x"
    with forebay.open_store("file://localhost" + (tmp_path / home).as_uri().removeprefix("file://")) as store:
        assert whole(store, handle) == b"x"


def test_forebay_store_is_an_address_and_wins_over_forebay_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREBAY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FOREBAY_STORE", (tmp_path / "store").as_uri())
    with forebay.open_store() as store:
        store.put(b"x")
    with forebay.open_store(tmp_path / "argument") as store:
        store.put(b"y")
    monkeypatch.setenv("FOREBAY_STORE", "")
    with forebay.open_store() as store:
        store.put(b"z")
    assert [len(payload_files(tmp_path / name)) for name in ("store", "argument", "home")] == [1, 1, 1]


@pytest.mark.posix
def test_an_invalid_forebay_store_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_STORE", "/path")
    with pytest.raises(InvalidArgument, match="did you mean file:///path"):
        forebay.open_store()


@pytest.mark.parametrize(
    "url",
    [
        "", "/path", "path", "s3:bucket", "s3://", "redis:localhost", "ftp://host", "file:", "file:relative", "file://host/path",
        "file:///path?x=1", "file:///path#part", "file:///a%00b", "http://[bad",
    ],
)  # fmt: skip
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument, match="a store is file:///path, s3://bucket"):
        forebay.open_store(url)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"compression": "gzip"}, "compression is 'zstd' or 'none', not 'gzip'"),
        ({"durability": "none"}, "durability is 'process' or 'power'"),
        ({"on_full": "drop"}, "on_full is 'refuse' or 'evict'"),
        ({"ttl": -1}, "ttl"),
        ({"quota_bytes": -1}, "quota_bytes is a number, not negative"),
        ({"principal_quota_bytes": -1}, "principal_quota_bytes is a number, not negative"),
        ({"sweep_interval": -1}, "sweep_interval is a number, not negative"),
        ({"warn_bytes": -1}, "warn_bytes is a number, not negative"),
        ({"handle_length": 13}, "handle_length is 12 or 26, not 13"),
        ({"quota_bytes": "1GB"}, "quota_bytes is a number"),
        ({"ttl": "1h"}, "ttl is a number of seconds"),
        ({"warn_bytes": None}, "warn_bytes is a number"),
        ({"sweep_interval": float("inf")}, "sweep_interval is a number"),
        ({"principal_quota_bytes": float("nan")}, "principal_quota_bytes is a number"),
        ({"redact": [b"secret"]}, "redact is a regular expression, a function"),
        ({"colour": "red"}, "no such option of a store: colour; there are ttl, quota"),
    ],
)
def test_an_invalid_option_is_refused_before_anything_is_created(
    options: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgument, match=says):
        forebay.open_store((tmp_path / "store").as_uri(), **options)
    assert not (tmp_path / "store").exists()


@pytest.mark.posix
def test_only_the_owner_can_access_the_files(tmp_path: Path) -> None:
    with store_at(tmp_path / "store") as store:
        store.put(b"x", principal="ann")
    for path in [tmp_path / "store", *(tmp_path / "store").rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_durability_can_be_power(tmp_path: Path) -> None:
    with store_at(tmp_path / "store", durability="power") as store:
        assert whole(store, store.put(noise(2_000_000)).output_handle) == noise(2_000_000)


def test_a_path_opens_a_store_and_the_error_for_a_path_as_url_has_the_url(tmp_path: Path) -> None:
    with forebay.open_store(tmp_path / "store") as store, store_at(tmp_path / "store") as same:
        assert whole(same, store.put(b"payload").output_handle) == b"payload"
    with pytest.raises(InvalidArgument, match="did you mean file:///"):
        forebay.open_store(str(tmp_path / "store"))


HIDDEN = "hunter22"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"redis://u:{HIDDEN}@host:1/0?prefix=a", "redis://***@host:1/0?prefix=a"),
        (f"redis://u:x/{HIDDEN}@host/0", "redis://***@host/0"),
        (f"redis://u:x?{HIDDEN}@host/0", "redis://***@host/0"),
        (f"redis://u:x#{HIDDEN}@host/0", "redis://***@host/0"),
        (f"redis://u:x@{HIDDEN}@host/0", "redis://***@host/0"),
        (f"redis:u:{HIDDEN}@host", "***@host"),
        (f"redis//u:{HIDDEN}@host", "***@host"),
        (f"s3s://k:{HIDDEN}@bucket/x", "s3s://***@bucket/x"),
        (f"file://k:{HIDDEN}@host/x", "file://***@host/x"),
        (f"s3://bucket/x?{HIDDEN}", "s3://bucket/x"),
        (f"s3://bucket/x?secret={HIDDEN}&region=r", "s3://bucket/x?region=r"),
        (f"s3://bucket/x#{HIDDEN}", "s3://bucket/x"),
        ("s3://bucket/x?endpoint=http://host:1", "s3://bucket/x?endpoint=http://host:1"),
        ("file:///home/ann@host/store", "file:///home/ann@host/store"),
    ],
)
def test_an_address_is_shown_without_credentials(url: str, shown: str) -> None:
    assert mask_address(url) == shown
    try:
        text = str(resolve_address(url))
    except InvalidArgument as error:
        text = str(error)
    assert HIDDEN not in text
