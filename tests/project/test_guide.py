"""The guides' blocks run, one after the other, and what they assert holds."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

DOCS = Path(__file__).resolve().parents[2] / "docs"


# The gateway is a command, and what its guide says of it has a test of its own.
@pytest.mark.parametrize("guide", sorted(DOCS.glob("[!g]*.md")), ids=lambda guide: guide.stem)
def test_a_guide_runs(guide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_HOME", str(tmp_path / "home"))
    blocks = re.findall(r"```python\n(.*?)```", guide.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    exec(compile("\n".join(blocks), guide.name, "exec"), {})  # noqa: S102 - our own examples
