"""The wheel carries the licenses of all Rust code that is linked into it."""

import tomllib
from pathlib import Path

import pytest
import third_party_licenses
from third_party_licenses import FILE, TARGETS, check, choose_license, linked_crates

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARGO_NET_OFFLINE", "true")


def test_the_file_is_current() -> None:
    assert check(), "run `python tools/third_party_licenses.py`"


def test_a_crate_that_is_not_in_the_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outdated = tmp_path / FILE.name
    text = FILE.read_text(encoding="utf-8")
    outdated.write_text(text.replace("memchr (MIT), https://crates.io/crates/memchr", ""), encoding="utf-8")
    monkeypatch.setattr(third_party_licenses, "FILE", outdated)
    assert not check()


def test_every_linked_crate_of_the_lock_file_is_known() -> None:
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))
    locked = {(package["name"], package["version"]) for package in lock["package"]}
    linked = {(crate.name, crate.version) for crate in linked_crates()}
    assert linked <= locked
    direct = tomllib.loads((ROOT / "rust/core/Cargo.toml").read_text(encoding="utf-8"))["dependencies"]
    assert direct.keys() | {"pyo3", "pyo3-ffi"} <= {name for name, _ in linked}


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [("MIT", "MIT"), ("Apache-2.0 OR MIT", "MIT"), ("Unlicense/MIT", "MIT"), ("Apache-2.0 / MIT", "MIT")],
)
def test_mit_is_chosen_where_it_is_offered(offered: str, chosen: str) -> None:
    assert choose_license("crate", offered) == chosen


@pytest.mark.parametrize("offered", ["GPL-3.0-only", "MPL-2.0", "MIT AND GPL-3.0-only", ""])
def test_other_licenses_need_a_decision(offered: str) -> None:
    with pytest.raises(SystemExit, match="only MIT"):
        choose_license("crate", offered)


def test_the_package_names_the_file() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["license-files"] == ["LICENSE", FILE.name]


def test_the_release_builds_for_these_targets() -> None:
    workflow = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    assert [target for target in TARGETS if target not in workflow] == []
