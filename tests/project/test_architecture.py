"""ARCHITECTURE.md names files that exist, and the layers that import-linter checks."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def test_every_named_file_exists() -> None:
    named = set(re.findall(r"`([a-z_/]+\.py)`", TEXT))
    assert len(named) > 30
    folders = (ROOT, ROOT / "python" / "forebay", ROOT / "benches")
    assert [name for name in sorted(named) if not any((folder / name).is_file() for folder in folders)] == []


def test_the_diagram_shows_every_layer_in_order() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = config["tool"]["importlinter"]["contracts"]
    layers = re.findall(r"forebay\.(\w+)", " ".join(contract["layers"]))
    picture = TEXT[TEXT.index("```") : TEXT.index("_core  ")]
    positions = [re.search(rf"\b{layer}\b", picture) for layer in layers if layer != "errors"]
    starts = [match.start() for match in positions if match is not None]
    assert len(starts) == len(layers) - 1
    assert starts == sorted(starts)


def test_every_package_is_a_layer() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = config["tool"]["importlinter"]["contracts"]
    layers = set(re.findall(r"forebay\.(\w+)", " ".join(contract["layers"])))
    packages = {path.parent.name for path in (ROOT / "python" / "forebay").glob("*/__init__.py")}
    assert packages <= layers
