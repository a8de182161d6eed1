"""The code blocks of the pages: Python runs, transcripts print what they show, commands parse, configurations load."""

import json
import os
import re
import sys
from pathlib import Path

import jsonschema
import orjson
import pytest
import yaml
from code_blocks import Block, Transcript, find_blocks, find_forebay_commands, parse_command
from forebay.config.load import load_settings
from forebay.outputs.export import ExportRoots
from forebay.outputs.tools import OutputTools
from stores import store_at

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
ALL_PAGES = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]

MAX_UNCHECKED = 12
"""Maximum number of blocks that no test checks."""

OTHERWISE_CHECKED = {"gateway.md"}
"""Pages whose Python needs servers; tests/hub/test_guide.py runs it."""


def name_page(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").as_posix()


def blocks_in(*languages: str, pages: list[Path] = ALL_PAGES) -> list[Block]:
    """Return all blocks in these languages that can be checked."""
    found = [block for page in pages for block in find_blocks(page)]
    return [block for block in found if block.language in languages and not block.is_unchecked]


def is_run(path: Path) -> bool:
    """Return whether a page has code that runs as a whole, in the order of the page."""
    languages = {block.language for block in find_blocks(path) if not block.is_unchecked}
    return bool(languages & {"python", "console"}) and path.name not in OTHERWISE_CHECKED


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if is_run(page)], ids=name_page)
def test_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("FOREBAY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    transcript = Transcript(folder, dict(os.environ))
    names: dict[str, object] = {"__name__": "guide"}
    for block in find_blocks(page):
        if block.is_unchecked:
            continue
        if block.file_name is not None:
            (folder / block.file_name).write_text(block.code, encoding="utf-8")
        elif block.language == "python":
            # Line numbers in errors are those of the page.
            exec(compile("\n" * block.line + block.code, block.page, "exec"), names)  # noqa: S102 - our own examples
        elif block.language == "console":
            transcript.check(block)


@pytest.mark.parametrize("block", blocks_in("sh", "console"), ids=str)
def test_commands_parse(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in find_forebay_commands(block):
        parse_command(arguments, monkeypatch)


def test_commands_are_found() -> None:
    script = (
        "A=1 forebay put 'a b' | jq . && forebay ls > x  # forebay nothing\n"
        "for x in $(forebay ls --json); do\nforebay rm \\\n  y\n"
    )
    found = find_forebay_commands(Block("page", 1, "sh", script, is_unchecked=False))
    assert found == [["put", "a b"], ["ls"], ["ls", "--json"], ["rm", "y"]]
    assert sum(len(find_forebay_commands(block)) for block in blocks_in("sh", "console")) > 50


@pytest.mark.parametrize("block", blocks_in("json"), ids=str)
def test_json_is_valid(block: Block) -> None:
    try:
        json.loads(block.code)
    except ValueError:
        # Several values, one on each line.
        for line in block.code.splitlines():
            orjson.loads(line)


def test_calls_of_tools_have_the_arguments_of_the_tools(tmp_path: Path) -> None:
    with store_at(tmp_path) as store:
        roots = ExportRoots([tmp_path], store.folder)
        tools = OutputTools(store, prefix="", journal=True, export_roots=roots).list_definitions()
    schemas = {tool["name"]: tool["inputSchema"] for tool in tools}
    calls = re.findall(r'^\{"name": ".*', "\n".join(block.code for block in blocks_in("json")), re.MULTILINE)
    checked = 0
    for call in map(json.loads, calls):
        if call["name"] in schemas:
            jsonschema.validate(call["arguments"], {**schemas[call["name"]], "additionalProperties": False})
            checked += 1
    assert checked >= 4


@pytest.mark.parametrize("block", blocks_in("toml"), ids=str)
def test_a_configuration_loads(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "forebay.toml"
    path.write_text(block.code, encoding="utf-8")
    for name in re.findall(r"\$\{(\w+)\}", block.code):
        monkeypatch.setenv(name, "value")
    load_settings("serve", {"config": str(path)}, os.environ)


def test_yaml_is_valid() -> None:
    for block in blocks_in("yaml"):
        yaml.safe_load(block.code)


def test_every_block_is_checked_or_says_why_not() -> None:
    checked = {"python", "console", "sh", "json", "toml", "yaml", "text"}
    blocks = [block for page in ALL_PAGES for block in find_blocks(page)]
    unknown = [f"{block}: {block.language or 'no language'}" for block in blocks if block.language not in checked]
    marked = [str(block) for block in blocks if block.is_unchecked]
    problems = [name for name in unknown if name.partition(": ")[0] not in marked]
    assert problems == [], "name the language of a block, or put a line `*Not checked: REASON*` above it"
    assert len(marked) <= MAX_UNCHECKED, f"these blocks are not checked: {marked}"
