"""`forebay mirror`: its summary, its exit codes, and what it shows on a terminal."""

import json
from pathlib import Path

import forebay
import pytest
from command import plain, run, run_on_terminal
from stores import file_of, noise, store_at

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home")]


@pytest.fixture
def urls(tmp_path: Path) -> list[str]:
    """The addresses of a store with three payloads, and of a store that does not exist yet."""
    with store_at(tmp_path / "source") as store:
        for number in range(3):
            store.put(noise(5000, number), principal="ann")
    return [(tmp_path / name).as_uri() for name in ("source", "target")]


def test_a_mirror_prints_a_summary(urls: list[str]) -> None:
    report = run("mirror", *urls).json
    stored = run("ls", "--store", urls[1]).json
    stored_bytes = sum(entry["stored_bytes"] for entry in stored)
    assert report == {"copied": 3, "skipped": 0, "expired": 0, "failed": 0, "bytes": stored_bytes}
    assert stored == run("ls", "--store", urls[0]).json
    assert run("mirror", *urls).json == {"copied": 0, "skipped": 3, "expired": 0, "failed": 0, "bytes": 0}


def test_a_damaged_payload_is_an_error_at_the_end(urls: list[str], tmp_path: Path) -> None:
    with forebay.open_store(urls[0], sweep_interval=0) as store:
        handle = next(store.list(principal=forebay.OPERATOR)).output_handle
    path = file_of(tmp_path / "source", handle)
    path.write_bytes(path.read_bytes()[:-1])
    failed = run("mirror", *urls)
    assert failed.code == 4
    assert json.loads(failed.out)["failed"] == 1
    error = json.loads(failed.err)["error"]
    assert error["code"] == "output_handle_corrupt"
    assert error["message"].startswith(f"{handle} was not copied: the stored file is torn")


def test_a_quota_of_the_target_is_an_option(urls: list[str]) -> None:
    wrong = run("mirror", *urls, "--quota-bytes", "much")
    assert wrong.code == 2
    assert "such as 64MiB, not 'much'" in wrong.error["message"]
    failed = run("mirror", *urls, "--quota-bytes", "7KB")
    assert failed.code == 5
    assert json.loads(failed.out)["copied"] == 1
    assert "quota of 7,000 bytes" in json.loads(failed.err)["error"]["message"]
    assert run("mirror", *urls, "--principal-quota-bytes", "12K").code == 5
    assert run("mirror", *urls, "--principal-quota-bytes", "none").json["skipped"] == 2


def test_wrong_addresses_are_errors(urls: list[str], tmp_path: Path) -> None:
    assert run("mirror", *reversed(urls)).error["code"] == "store_unavailable"
    assert not (tmp_path / "target").exists()
    assert run("mirror", urls[0], str(tmp_path)).error["code"] == "invalid_argument"
    assert "there is no --store here" in run("mirror", *urls, "--store", urls[0]).error["message"]


@pytest.mark.posix
def test_a_terminal_shows_progress(urls: list[str]) -> None:
    result = run_on_terminal("mirror", *urls, only="err")
    assert (result.code, json.loads(result.out)["copied"]) == (0, 3)
    assert "3 copied" in plain(result.err)
