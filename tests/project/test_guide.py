"""The Python blocks of the guides run, and their assertions hold."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

DOCS = Path(__file__).resolve().parents[2] / "docs"


# The gateway's guide has its own test, and those to clients and the pager have no Python.
GUIDES = sorted(guide for guide in DOCS.glob("*.md") if guide.stem not in ("clients", "gateway", "view"))


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_a_guide_runs(guide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_HOME", str(tmp_path / "home"))
    blocks = re.findall(r"```python\n(.*?)```", guide.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    exec(compile("\n".join(blocks), guide.name, "exec"), {})  # noqa: S102 - our own examples
