"""Send one large result through forebay and the alternatives, and record what a model can do with it.

    python -m alternatives.run --environments target/alternatives benches/alternatives.json

Each way is a real server, or a gateway in front of one, and the same client calls all of them over stdio.
`make alternatives` installs the pinned versions first.
"""

import argparse
import datetime
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from alternatives.client import CallFailed, connect
from alternatives.orders import COUNT, NUMBER, count_matches, find_order, make_payload
from alternatives.ways import WAYS, Session, Way, Workspace

__all__ = ["compare_order", "main", "measure"]

ROUNDS = 3
"""Number of calls of the tool. The fastest one counts, because other load on the machine only adds time."""

LONG_SECONDS = 60
"""A call that takes longer is not repeated."""


def measure(way: Way, payload: str, environments: Path) -> dict[str, Any]:
    """Return what a model gets from one way, and what it can do with it."""
    python = environments.absolute() / way.environment / "bin" / "python" if way.environment else Path(sys.executable)
    row: dict[str, Any] = {"name": way.name, "version": _get_version(python, way.package), "setup": way.setup}
    try:
        seconds: list[float] = []
        while len(seconds) < ROUNDS and max(seconds, default=0) < LONG_SECONDS:
            with _start_session(way, python) as session:
                seconds.append(session.first.seconds)
                if len(seconds) == 1:
                    text = session.first.text
                    row["first"] = {"bytes": session.first.size, "is_json": _is_json(text), "beginning": text[:300]}
                    row |= _answer_questions(way, session, payload)
        row["first"]["seconds"] = round(min(seconds), 3)
    except CallFailed as error:
        row["problem"] = str(error)
    return row


def _answer_questions(way: Way, session: Session, payload: str) -> dict[str, Any]:
    """Look up an order, read everything, and answer the question."""

    def count_cost(action: Callable[[], Any]) -> tuple[Any, dict[str, int]]:
        """Return the result of an action, and the calls and bytes until then, including the first response."""
        done = len(session.client.replies)
        result = action()
        read = [session.first, *session.client.replies[done:]]
        return result, {"calls": len(read), "bytes": sum(reply.size for reply in read)}

    text, order_cost = count_cost(lambda: way.read_order(session))
    everything, reading_cost = count_cost(lambda: list(way.read_all(session)))
    readable = len({order["id"] for order in everything})
    if way.has_queries:
        answer, answer_cost = count_cost(lambda: way.ask(session))
    else:
        answer, answer_cost = count_matches(everything) if readable == COUNT else None, reading_cost
    return {
        "order": {"verdict": compare_order(text, find_order(payload, NUMBER)), **order_cost},
        "readable": {"orders": readable, **reading_cost},
        "answer": {"value": answer, "is_by_query": way.has_queries, **answer_cost},
    }


def compare_order(text: str, order: str) -> str:
    """Return how an order appears in a text: `same bytes`, `same values` or `missing`.

    In `same values`, numbers may be written differently, such as 1.5 for 1.50.
    """
    if order in text:
        return "same bytes"
    expected = json.loads(order, parse_float=Decimal)
    decoder = json.JSONDecoder(parse_float=Decimal)
    start = text.find("{")
    while start >= 0:
        try:
            value, _ = decoder.raw_decode(text, start)
        except ValueError:
            value = None
        if value == expected:
            return "same values"
        start = text.find("{", start + 1)
    return "missing"


@contextmanager
def _start_session(way: Way, python: Path) -> Iterator[Session]:
    with tempfile.TemporaryDirectory(prefix="forebay-alternatives-") as name:
        folder = Path(name)
        # A home folder of its own, so that the user's configuration and stores have no effect.
        environment = {**os.environ, "HOME": name, "FOREBAY_HOME": str(folder / "home")}
        with connect(way.command(Workspace(python, folder)), folder, environment) as client:
            yield Session(client, way.start(client))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _get_version(python: Path, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.check_output([python, "-c", code], text=True).strip()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compare forebay with its alternatives.")
    parser.add_argument("--environments", type=Path, required=True, help="the folder of the Python environments")
    parser.add_argument("results", type=Path, help="the file to write")
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="measure only the ways of these packages again")
    options = parser.parse_args(arguments)
    payload = make_payload()
    expected = count_matches(json.loads(payload)["orders"])
    old = {row["name"]: row for row in json.loads(options.results.read_bytes())["ways"]} if options.packages else {}
    rows = []
    for way in WAYS:
        if options.packages and way.package not in options.packages:
            rows.append(old[way.name])
            continue
        print(f"{way.name} …", file=sys.stderr, flush=True)
        rows.append(measure(way, payload, options.environments))
        print(json.dumps(rows[-1], ensure_ascii=False), file=sys.stderr, flush=True)
    wrong = [row["name"] for row in rows if row.get("answer", {}).get("value") not in (None, expected)]
    if wrong:
        sys.exit(f"the answer is not {expected}: {', '.join(wrong)}")
    encoded = payload.encode()
    described = {"bytes": len(encoded), "sha256": hashlib.sha256(encoded).hexdigest()}
    results = {
        "date": datetime.date.today().isoformat(),
        "payload": {**described, "orders": COUNT, "number": NUMBER, "matches": expected},
        "ways": rows,
    }
    options.results.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if any("problem" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
