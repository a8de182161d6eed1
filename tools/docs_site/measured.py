"""Tables of what the verbs cost, from `docs/measured.json`."""

import json
from functools import cache
from typing import Any

from docs_site.layout import DOCS

__all__ = ["format_costs"]


@cache
def _load() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DOCS / "measured.json").read_text(encoding="utf-8"))
    return loaded


def format_costs(verb: str) -> str:
    """Return a table of what calls of a verb took."""
    measured = _load()
    if verb == "machine":
        bound = " The machine did other work at the same time, so they are upper bounds." if measured["is_busy"] else ""
        times = f"Times are from {measured['machine']}: the best of several runs."
        return f"{times} On other machines the ratios hold, the seconds do not.{bound}"
    rows = [f"| {row['call']} | {row['time']} |" for row in measured["costs"] if row["verb"] == verb]
    if not rows:
        raise LookupError(f"docs/measured.json has no costs of {verb}; measure them with make docs-measure")
    return f"| {measured['payload']} | time |\n|---|---|\n" + "\n".join(rows)
