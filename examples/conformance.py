"""Run the protocol's conformance suite against a server with and without forebay.

Then the Inspector's command reads a large result of the example server. `make conformance` installs what this needs.
Fails if a scenario is worse with forebay than without, if a scored scenario fails, or if the Inspector fails.
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

TIMEOUT_SECONDS = 600

SUITES = {
    "2025-11-25": ["--suite", "all"],
    "2026-07-28": ["--requirements", "2026-07-28"],
}

SCENARIO_LINE = re.compile(r"^[✓✗] (\S+): (\d+) passed, (\d+) failed", re.MULTILINE)
UNSCORED_LINE = re.compile(r"^  [✓✗] (\S+) \((?:extension|pending|added-after-release)\)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The number of passed and failed checks of a scenario."""

    passed: int
    failed: int

    def __str__(self) -> str:
        return f"{self.passed}/{self.passed + self.failed}"

    def is_worse_than(self, other: "Outcome", optional_checks: int = 0) -> bool:
        return self.failed > other.failed or self.passed < other.passed - optional_checks


OPTIONAL_CHECKS = {"server-sse-multiple-streams": 1}
"""The number of checks that a scenario leaves out if responses are plain JSON, which servers may send."""


class Node:
    """Runs programs from a folder of npm packages."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self._node = folder / "wheel" / "bin" / "node"
        self._packages = folder / "node_modules"
        self._scratch = scratch

    def run_suite(self, revision: str, url: str) -> str:
        results = tempfile.mkdtemp(dir=self._scratch)
        script = f"suite-{revision}/dist/index.js"
        return self._run(script, "server", "--url", url, *SUITES[revision], "--output-dir", results).stdout

    def server_command(self, server: str, *arguments: str, deterministic: bool = False) -> list[str]:
        """Return the command of a reference server; `deterministic` replaces its random numbers by a constant."""
        script = self._packages / "@modelcontextprotocol" / f"server-{server}" / "dist" / "index.js"
        first = ["--import", "data:text/javascript,Math.random=()=>0.1"] if deterministic else []
        return [str(self._node), *first, str(script), *arguments]

    def inspect(self, server: str | Sequence[str], *arguments: str) -> Any:
        """Return the parsed output of the Inspector for a server's URL or command."""
        script = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
        # The Inspector consumes the first `--` itself.
        target = ["--transport", "http", "--", server] if isinstance(server, str) else ["--", *server]
        process = self._run(script, "--cli", *arguments, *target)
        if process.returncode:
            raise ValueError(f"the Inspector ended with {process.returncode}: {process.stderr.strip()[-300:]}")
        return json.loads(process.stdout)

    def _run(self, script: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        # The suite and the Inspector write to the home directory.
        environment = {**os.environ, "HOME": str(self._scratch)}
        command = [str(self._node), str(self._packages / script), *arguments]
        return subprocess.run(  # noqa: S603 - pinned packages
            command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False, env=environment
        )


def parse_report(report: str) -> dict[str, Outcome]:
    """Return the outcome of each scenario in a suite's report."""
    found = {name: Outcome(int(passed), int(failed)) for name, passed, failed in SCENARIO_LINE.findall(report)}
    if not found:
        raise ValueError(f"the suite reports nothing: {report.strip()[-300:]}")
    return found


def judge(name: str, before: Outcome, after: Outcome, *, is_scored: bool) -> str:
    """Return the verdict on a scenario, in capitals if it counts as a failure."""
    if after.is_worse_than(before, OPTIONAL_CHECKS.get(name, 0)):
        return "WORSE"
    if after.failed:
        return "FAILS" if is_scored else "not scored: the server does not offer it"
    return "ok" if after.passed else "nothing is checked"


def compare(revision: str, setup: str, plain_report: str, forebay_report: str) -> list[str]:
    """Print the outcomes of two runs side by side and return the problems."""
    before, after, not_scored = (
        parse_report(plain_report),
        parse_report(forebay_report),
        set(UNSCORED_LINE.findall(forebay_report)),
    )
    problems = [f"{name} ran only once" for name in before.keys() ^ after.keys()]
    print(f"\n{revision:48} without  {setup}")
    for name in before.keys() & after.keys() if problems else before:
        verdict = judge(name, before[name], after[name], is_scored=name not in not_scored)
        if verdict.isupper():
            problems.append(f"{name} of {revision}, {setup}: {verdict}")
        print(f"  {name:46} {before[name]!s:>7}  {after[name]!s:>7}  {verdict}")
    return problems


def run_suites(node: Node, store: Path) -> list[str]:
    def run(url: str) -> dict[str, str]:
        return {revision: node.run_suite(revision, url) for revision in SUITES}

    with serving("conformance_server.py") as url:
        plain = run(url)
        with gateway(url, store) as gateway_url:
            with_forebay = {"behind forebay serve": run(gateway_url)}
    with serving("conformance_server.py", "--forebay", "--store", store.as_uri()) as url:
        with_forebay["with forebay in it"] = run(url)
    return [
        problem
        for how, reports in with_forebay.items()
        for revision in SUITES
        for problem in compare(revision, how, plain[revision], reports[revision])
    ]


class Inspection:
    """Reads a large result of the example server with the Inspector's command."""

    def __init__(self, node: Node, url: str) -> None:
        self._node, self._url = node, url
        self._handle = "none"

    def steps(self) -> dict[str, Callable[[], str]]:
        return {
            "tools/list --strict": self.list_tools,
            "tools/call crawl, output_mode=handle": self.store_crawl,
            "tools/call oc_output_fetch": self.fetch_last_page,
        }

    def list_tools(self) -> str:
        tools = self._node.inspect(self._url, "--strict", "--method", "tools/list")["tools"]
        names = {tool["name"] for tool in tools}
        if not {"crawl", "oc_output_fetch", "oc_output_search", "oc_journal"} <= names:
            raise ValueError(f"it lists {', '.join(names)}")
        return f"{len(names)} tools"

    def store_crawl(self) -> str:
        descriptor = self._call("crawl", "url=http://localhost/", "max_pages=30", "output_mode=handle")
        self._handle = descriptor["output_handle"]
        return f"{descriptor['size_bytes']} bytes under {self._handle}"

    def fetch_last_page(self) -> str:
        page = self._call("oc_output_fetch", f"output_handle={self._handle}", "offset=28")
        if [item["number"] for item in page["content"]] != [28, 29] or not page["eof"]:
            raise ValueError("the page has other items")
        return f"items 28 and 29 of {page['total']}"

    def _call(self, tool: str, *arguments: str) -> Any:
        named = ["--tool-name", tool, "--tool-arg", *arguments]
        result = self._node.inspect(self._url, "--method", "tools/call", *named)
        return json.loads(result["content"][0]["text"])


def run_inspector(node: Node, store: Path) -> list[str]:
    """Print the outcome of each Inspector step and return the problems."""
    problems = []
    print("\nInspector")
    with serving("server.py", "--store", store.as_uri()) as url:
        for title, run in Inspection(node, url).steps().items():
            try:
                result, detail = "ok", run()
            except (ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
                result, detail = "FAILS", f"{type(error).__name__}: {error}"
                problems.append(f"Inspector, {title}: FAILS")
            print(f"  {title:46} {result}: {detail}")
    return problems


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        node = Node(Path(sys.argv[1]).resolve(), Path(folder))
        problems = run_suites(node, Path(folder) / "suites") + run_inspector(node, Path(folder) / "inspector")
    print(
        "\n" + ("; ".join(problems) if problems else "no scenario is worse with forebay, and all that are scored pass")
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
