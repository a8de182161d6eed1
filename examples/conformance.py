"""Holds a server with forebay against the protocol's conformance suite, beside the same server without it.

Then the Inspector's command reads a large result of the example server. `make conformance` sets up what it needs.
Fails if any scenario is worse with forebay than without, if one that is scored fails, or if the Inspector does.
"""

import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from running import gateway, serving

PATIENCE = 600

SUITES = {
    "2025-11-25": ["--suite", "all"],
    "2026-07-28": ["--requirements", "2026-07-28"],
}

SUMMED = re.compile(r"^[✓✗] (\S+): (\d+) passed, (\d+) failed", re.MULTILINE)
NOT_SCORED = re.compile(r"^  [✓✗] (\S+) \((?:extension|pending|added-after-release)\)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How many checks of a scenario passed, and how many did not."""

    passed: int
    failed: int

    def __str__(self) -> str:
        return f"{self.passed}/{self.passed + self.failed}"

    def is_worse_than(self, other: "Outcome") -> bool:
        return self.failed > other.failed or self.passed < other.passed


class Node:
    """Programs of a folder of npm packages."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self._node = folder / "wheel" / "bin" / "node"
        self._packages = folder / "node_modules"
        self._scratch = scratch

    def suite(self, revision: str, url: str) -> str:
        results = tempfile.mkdtemp(dir=self._scratch)
        script = f"suite-{revision}/dist/index.js"
        return self._run(script, "server", "--url", url, *SUITES[revision], "--output-dir", results).stdout

    def command(self, server: str, *arguments: str, fixed: bool = False) -> list[str]:
        """The command of one of the protocol's own servers; `fixed` is one for whom nothing is random."""
        script = self._packages / "@modelcontextprotocol" / f"server-{server}" / "dist" / "index.js"
        first = ["--import", "data:text/javascript,Math.random=()=>0.1"] if fixed else []
        return [str(self._node), *first, str(script), *arguments]

    def inspected(self, server: str | Sequence[str], *arguments: str) -> Any:
        """What the Inspector prints of a server at a URL, or of a command."""
        script = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
        # The first -- of its arguments is its own.
        target = ["--transport", "http", "--", server] if isinstance(server, str) else ["--", *server]
        done = self._run(script, "--cli", *arguments, *target)
        if done.returncode:
            raise ValueError(f"the Inspector ended with {done.returncode}: {done.stderr.strip()[-300:]}")
        return json.loads(done.stdout)

    def _run(self, script: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        # Both keep files in the home of whoever runs them.
        environment = {**os.environ, "HOME": str(self._scratch)}
        command = [str(self._node), str(self._packages / script), *arguments]
        return subprocess.run(  # noqa: S603 - pinned packages
            command, capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment
        )


def outcomes(report: str) -> dict[str, Outcome]:
    """Of a suite's report, each scenario's outcome."""
    found = {name: Outcome(int(passed), int(failed)) for name, passed, failed in SUMMED.findall(report)}
    if not found:
        raise ValueError(f"the suite reports nothing: {report.strip()[-300:]}")
    return found


def judged(before: Outcome, after: Outcome, *, is_scored: bool) -> str:
    """In capitals where it is forebay's fault, or a fault at all."""
    if after.is_worse_than(before):
        return "WORSE"
    if after.failed:
        return "FAILS" if is_scored else "not scored: the server does not offer it"
    return "ok" if after.passed else "nothing is checked"


def compared(revision: str, how: str, without: str, gated: str) -> list[str]:
    """Prints a suite's scenarios beside each other; says what is wrong."""
    before, after, not_scored = outcomes(without), outcomes(gated), set(NOT_SCORED.findall(gated))
    wrong = [f"{name} ran only once" for name in before.keys() ^ after.keys()]
    print(f"\n{revision:48} without  {how}")
    for name in before.keys() & after.keys() if wrong else before:
        verdict = judged(before[name], after[name], is_scored=name not in not_scored)
        if verdict.isupper():
            wrong.append(f"{name} of {revision}, {how}: {verdict}")
        print(f"  {name:46} {before[name]!s:>7}  {after[name]!s:>7}  {verdict}")
    return wrong


def run_suites(node: Node, store: Path) -> list[str]:
    def run(url: str) -> dict[str, str]:
        return {revision: node.suite(revision, url) for revision in SUITES}

    with serving("conformance_server.py") as url:
        without = run(url)
        with gateway(url, store) as behind:
            gated = {"behind forebay serve": run(behind)}
    with serving("conformance_server.py", "--forebay", "--store", store.as_uri()) as url:
        gated["with forebay in it"] = run(url)
    return [
        problem
        for how, reports in gated.items()
        for revision in SUITES
        for problem in compared(revision, how, without[revision], reports[revision])
    ]


class Inspection:
    """The Inspector's command, reading a large result of the example server."""

    def __init__(self, node: Node, url: str) -> None:
        self._node, self._url = node, url
        self._handle = "none"

    def steps(self) -> dict[str, Callable[[], str]]:
        return {
            "tools/list --strict": self.listed,
            "tools/call crawl, output_mode=handle": self.crawled,
            "tools/call oc_output_fetch": self.fetched,
        }

    def listed(self) -> str:
        tools = self._node.inspected(self._url, "--strict", "--method", "tools/list")["tools"]
        names = {tool["name"] for tool in tools}
        if not {"crawl", "oc_output_fetch", "oc_output_search", "oc_journal"} <= names:
            raise ValueError(f"it lists {', '.join(names)}")
        return f"{len(names)} tools"

    def crawled(self) -> str:
        descriptor = self._called("crawl", "url=http://localhost/", "max_pages=30", "output_mode=handle")
        self._handle = descriptor["output_handle"]
        return f"{descriptor['size_bytes']} bytes under {self._handle}"

    def fetched(self) -> str:
        page = self._called("oc_output_fetch", f"output_handle={self._handle}", "offset=28")
        if [item["number"] for item in page["content"]] != [28, 29] or not page["eof"]:
            raise ValueError("the page has other items")
        return f"items 28 and 29 of {page['total']}"

    def _called(self, tool: str, *arguments: str) -> Any:
        named = ["--tool-name", tool, "--tool-arg", *arguments]
        result = self._node.inspected(self._url, "--method", "tools/call", *named)
        return json.loads(result["content"][0]["text"])


def inspect(node: Node, store: Path) -> list[str]:
    """Prints what the Inspector came to; says what is wrong."""
    wrong = []
    print("\nInspector")
    with serving("server.py", "--store", store.as_uri()) as url:
        for title, run in Inspection(node, url).steps().items():
            try:
                result, detail = "ok", run()
            except (ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
                result, detail = "FAILS", f"{type(error).__name__}: {error}"
                wrong.append(f"Inspector, {title}: FAILS")
            print(f"  {title:46} {result}: {detail}")
    return wrong


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        node = Node(Path(sys.argv[1]).resolve(), Path(folder))
        wrong = run_suites(node, Path(folder) / "suites") + inspect(node, Path(folder) / "inspector")
    print("\n" + ("; ".join(wrong) if wrong else "no scenario is worse with forebay, and all that are scored pass"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
