"""A store reads the files that earlier releases wrote, as docs/releasing.md promises."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forebay
import pytest
from earlier_files import LOG, PAYLOADS, RECORDED, ROWS
from faults import opened, redeem
from forebay import OPERATOR, HandleNotFound, Store
from stores import Clock

RELEASES: dict[str, dict[str, dict[str, str]]] = json.loads(RECORDED.read_bytes())


@pytest.fixture(params=RELEASES)
def files(request: pytest.FixtureRequest) -> dict[str, dict[str, str]]:
    return RELEASES[request.param]


@pytest.fixture
def store(files: dict[str, dict[str, str]], tmp_path: Path, clock: Clock) -> Iterator[Store]:
    """Open a store with the files of a release."""
    root = tmp_path / "store"
    for file in files.values():
        path = root / file["path"]
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_bytes(base64.b85decode(file["content"]))
        path.chmod(0o600)
    root.chmod(0o700)
    with opened(root, clock=clock) as opened_store:
        yield opened_store


def handle_of(file: dict[str, str]) -> str:
    return Path(file["path"]).name.partition(".")[0]


def test_the_present_minor_version_has_its_files() -> None:
    recorded = {version.rpartition(".")[0] for version in RELEASES}
    assert forebay.__version__.rpartition(".")[0] in recorded, "run `python tests/support/earlier_files.py`"


def test_every_payload_comes_back(store: Store, files: dict[str, dict[str, str]]) -> None:
    assert {name: redeem(store, handle_of(file), "ann") for name, file in files.items()} == {
        name: PAYLOADS[name] for name in files
    }
    assert {stored.output_handle for stored in store.list(principal=OPERATOR)} == {*map(handle_of, files.values())}


@pytest.mark.parametrize("name", ["records", "wrapped records"])
def test_items_are_found_by_the_index(store: Store, files: dict[str, dict[str, str]], name: str) -> None:
    page: Any = json.loads(store.fetch(handle_of(files[name]), offset=3_500, limit=2, principal="ann").to_json())
    assert (page["total"], page["content"]) == (len(ROWS), ROWS[3_500:3_502])


@pytest.mark.parametrize("name", ["lines", "lines in gzip"])
def test_lines_are_found_by_the_index(store: Store, files: dict[str, dict[str, str]], name: str) -> None:
    page = store.fetch(handle_of(files[name]), offset=8_990, limit=3, format="lines", principal="ann")
    assert page.content == b"".join(LOG.splitlines(keepends=True)[8_990:8_993]).decode()


def test_a_payload_still_belongs_to_its_principal_and_expires(
    store: Store, files: dict[str, dict[str, str]], clock: Clock
) -> None:
    handle = handle_of(files["records"])
    with pytest.raises(HandleNotFound):
        store.fetch(handle, principal="bob")
    clock.now += 3601
    with pytest.raises(HandleNotFound):
        store.fetch(handle, principal="ann")
