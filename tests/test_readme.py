"""The example in the README does what its comments say."""

import json
import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 1
    orders = [{"id": n, "total": n / 2, "note": "refund of it failed" if n % 10 == 3 else "ok"} for n in range(200_100)]
    monkeypatch.chdir(tmp_path)
    Path("orders.json").write_text(json.dumps({"orders": orders, "page": 1}), encoding="utf-8")
    names: dict[str, object] = {}
    lines = blocks[0].replace("headgate.outline", "shape = headgate.outline")
    exec(lines.replace("headgate.search", "matches = headgate.search"), names)  # noqa: S102 - our own example
    assert names["shape"] == "{orders: [{id: int, total: float, note: str}] ×200100, page: int}"
    assert json.loads(names["page"].content) == orders[200_000:200_050]  # type: ignore[attr-defined]
    assert [match.item for match in names["matches"]] == list(range(3, 503, 10))  # type: ignore[attr-defined]
