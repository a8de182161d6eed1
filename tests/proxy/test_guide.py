"""Flags, options and commands that docs/gateway.md names exist."""

import json
import os
import re
from pathlib import Path

import pytest
from command import run
from forebay.config.load import load_settings
from forebay.config.options import OPTIONS
from forebay.config.upstreams import UPSTREAM_KEYS
from forebay.outputs.references.reference import parse_reference

DOCS = Path(__file__).resolve().parents[2]
GUIDE = (DOCS / "docs" / "gateway.md").read_text(encoding="utf-8")
COMMANDS = ("wrap", "adopt", "config", "lint-tools", "serve", "token", "ls", "doctor", "export")


@pytest.mark.slow
def test_every_flag_exists() -> None:
    known = set(re.findall(r"--[a-z][a-z-]+", " ".join(run(command, "--help").out.decode() for command in COMMANDS)))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", GUIDE))
    assert {"--file-refs", "--tools-only"} <= named
    assert named - known == set()


def test_every_variable_exists() -> None:
    named = set(re.findall(r"FOREBAY_[A-Z_]+", GUIDE))
    assert named
    assert named - {option.variable for option in OPTIONS.values()} - {"FOREBAY_HEADER_A"} == set()


@pytest.mark.parametrize("line", re.findall(r'^\{"name".*$', GUIDE, re.MULTILINE))
def test_every_reference_is_valid(line: str) -> None:
    call = json.loads(line)
    arguments = call["arguments"]
    referring = [name for name, value in arguments.items() if isinstance(value, dict) and parse_reference(value)]
    assert referring in ([["content"], ["body"], ["page"]] if call["name"] != "output_export" else [[]])


def test_the_configuration_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
    path = tmp_path / "forebay.toml"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setenv("CRM_TOKEN", "t")
    settings = load_settings("serve", {"config": str(path)}, os.environ)
    assert [*settings.upstreams] == ["files", "crm", "shop", "tools"]


def test_every_key_of_an_upstream_is_documented() -> None:
    told = [set(re.findall(r"`(\w+)`", row)) for row in re.findall(r"^\| (?:an?|any) .*$", GUIDE, re.M)]
    assert told == [*({kind, *more} for kind, more in UPSTREAM_KEYS.items()), {"prefix"}]
