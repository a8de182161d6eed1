"""A release has one version, notes, and workflows that run pinned actions with few rights."""

import re
import tomllib
from pathlib import Path
from typing import Any

import forebay
import pytest
import yaml
from release_notes import find_section, main, read_version

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))

CHANGELOG = """\
# Changelog

## Unreleased

- A change

## 1.2.3 (2026-01-31)

### Added

- Something

## 1.2.2
"""


def test_the_notes_are_the_section_of_the_version() -> None:
    assert find_section(CHANGELOG, "Unreleased") == "- A change"
    assert find_section(CHANGELOG, "1.2.3") == "### Added\n\n- Something"


@pytest.mark.parametrize(("version", "message"), [("1.2", "no section"), ("1x2.3", "no section"), ("1.2.2", "empty")])
def test_a_version_without_notes_is_refused(version: str, message: str) -> None:
    with pytest.raises(LookupError, match=message):
        find_section(CHANGELOG, version)


def write_project(folder: Path, version: str) -> Path:
    (folder / "Cargo.toml").write_text(f'[workspace.package]\nversion = "{version}"\n', encoding="utf-8")
    (folder / "CHANGELOG.md").write_text(CHANGELOG, encoding="utf-8")
    return folder


def test_the_tag_must_be_the_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = write_project(tmp_path, "1.2.3")
    assert main(["1.2.3"], project) == 0
    assert capsys.readouterr().out == "### Added\n\n- Something\n"
    assert main(["1.2.2"], project) == 1
    assert capsys.readouterr().err == "Cargo.toml has version 1.2.3, not 1.2.2: set it there first\n"
    assert main(["1.2.4"], write_project(tmp_path, "1.2.4")) == 1
    assert "rename `## Unreleased`" in capsys.readouterr().err


def test_notes_of_what_is_not_released_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("###")


def test_the_version_stands_in_one_place() -> None:
    assert forebay.__version__ == read_version()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["dynamic"] == ["version"]
    named = [path for path in ROOT.glob("rust/*/Cargo.toml") if re.search(r'^version = "', path.read_text(), re.M)]
    assert named == []


def list_jobs() -> list[Any]:
    return [
        pytest.param(job, id=f"{path.stem}-{name}")
        for path in WORKFLOWS
        for name, job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items()
    ]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_no_rights_of_its_own(path: Path) -> None:
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["permissions"] == {}


@pytest.mark.parametrize("job", list_jobs())
def test_a_job_is_bounded_and_names_its_rights(job: dict[str, Any]) -> None:
    assert job["timeout-minutes"] <= 45
    assert job["permissions"]["contents"] == "read" or job["name"] == "release on GitHub"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_to_a_commit_and_name_its_version(path: Path) -> None:
    used = re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))
    assert used
    assert [line for line in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


def test_one_commit_stands_for_each_version_of_an_action() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    pins = set(re.findall(r"uses: ([^@]+)@(\w+) # (\S+)", text))
    assert len({name for name, _, _ in pins}) == len(pins)


def test_only_tested_wheels_for_supported_systems_are_published() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))["jobs"]
    assert set(jobs["publish"]["needs"]) >= {"smoke", "smoke-musl", "sdist", "sbom"}
    built = {entry["name"] for entry in jobs["build"]["strategy"]["matrix"]["include"]}
    tested = {
        entry["wheels"] for name in ("smoke", "smoke-musl") for entry in jobs[name]["strategy"]["matrix"]["include"]
    }
    assert tested == built
    assert {name for name in built if not name.startswith("wheels-")} == {
        "unpublished-windows-x86_64",
        "unpublished-windows-aarch64",
    }
    (download,) = [step for step in jobs["publish"]["steps"] if "download-artifact" in step["uses"]]
    assert download["with"]["pattern"] == "wheels-*"
