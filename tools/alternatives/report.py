"""Write the tables and the picture of the comparison from its results.

    python -m alternatives.report

The results are in `benches/alternatives.json` (`make alternatives`) and `benches/clients_direct.json`
(`make clients-direct`). In a document, a table stands between a comment with its name and the comment `end`.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from alternatives.picture import draw, format_bytes

__all__ = ["DOCUMENTS", "iter_tables", "read_results", "replace_tables"]

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "alternatives.md")
PICTURE = ROOT / "docs" / "images" / "before-after.svg"

Results = Mapping[str, Any]


def read_results() -> tuple[Results, Results]:
    """Return the results of the comparison, and those of the clients without a gateway."""
    folder = ROOT / "benches"
    return tuple(json.loads((folder / name).read_bytes()) for name in ("alternatives.json", "clients_direct.json"))


def iter_tables() -> Iterator[tuple[str, str]]:
    """Yield the name of each table, and the table in Markdown."""
    results, clients = read_results()
    yield "comparison", _format(_iter_comparison(results))
    yield "setups", _format(_iter_setups(results))
    yield "clients", _format(_iter_clients(clients))


def replace_tables(text: str) -> str:
    """Return a text with the current content of each table."""
    for name, table in iter_tables():
        pattern = rf"(<!-- {name}: [^\n]*-->\n).*?(<!-- end -->)"
        text = re.sub(pattern, lambda found, table=table: found[1] + table + found[2], text, flags=re.DOTALL)  # type: ignore[misc]
    return text


def _iter_comparison(results: Results) -> Iterator[Sequence[str]]:
    number, count = results["payload"]["number"], results["payload"]["orders"]
    yield "", "first response", "valid JSON", f"order {number:,}", "the count", "readable orders", "time"
    for row in results["ways"]:
        if "problem" in row:
            yield row["name"], "failed", "", "", "", "", ""
            continue
        order, answer = row["order"], row["answer"]
        found = "no" if order["verdict"] == "missing" else f"{order['verdict']}, {_describe_cost(order)}"
        right = "no" if answer["value"] is None else f"{answer['value']}, {_describe_cost(answer)}"
        readable = "all" if row["readable"]["orders"] == count else f"{row['readable']['orders']:,} of {count:,}"
        first = row["first"]
        valid = "yes" if first["is_json"] else "no"
        yield (
            row["name"],
            format_bytes(first["bytes"]),
            valid,
            found,
            right,
            readable,
            _format_seconds(first["seconds"]),
        )


def _iter_setups(results: Results) -> Iterator[Sequence[str]]:
    yield "", "version", "set up with"
    for row in results["ways"]:
        yield row["name"], row["version"], row["setup"]


def _iter_clients(clients: Results) -> Iterator[Sequence[str]]:
    yield "client", "reaches the model", "order in it", "how it begins, or what went wrong"
    for row in clients["clients"]:
        seen = f"{row['characters']:,} characters" if "characters" in row else "not run"
        text = row.get("beginning") or row["problem"] or ""
        beginning = text.replace("|", r"\|").replace("`", "'")[:110]
        yield f"{row['name']} {row['version']}", seen, "yes" if row.get("has_order") else "no", f"`{beginning}`"


def _describe_cost(cost: Mapping[str, int]) -> str:
    calls = "1 call" if cost["calls"] == 1 else f"{cost['calls']:,} calls"
    return f"{calls}, {format_bytes(cost['bytes'])}"


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def _format(rows: Iterator[Sequence[str]]) -> str:
    header, *lines = rows
    table = [header, ["---"] * len(header), *lines]
    text = "".join("| " + " | ".join(row).strip() + " |\n" for row in table)
    # A number and its unit stay on one line.
    return re.sub(r"(?<=\d) (?=(?:[MK]?B|s|calls?)\b)", "\N{NO-BREAK SPACE}", text)


def main() -> int:
    for document in DOCUMENTS:
        document.write_text(replace_tables(document.read_text(encoding="utf-8")), encoding="utf-8")
    PICTURE.write_text(draw(*read_results()), encoding="utf-8")
    print(next(table for name, table in iter_tables() if name == "comparison"), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
