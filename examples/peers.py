"""Holds real servers behind the gateway against the same servers without it. `make peers` sets up what it needs.

Three of the protocol's own servers, over stdio: a raw conversation is compared byte by byte, then what the SDK's client
and the Inspector's command make of them, and last they are used. Ends with 0 if all of it holds.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import forebay
from conformance import Node
from conversation import Step, played
from differences import compared
from everything import REPLIES, STEPS
from files_and_graphs import GRAPHS, files, prepared
from peer_clients import MODES, inspected, seen
from peer_use import USES
from scenarios import Failed, check

OUTPUT_MODES = ("inline", "auto")

ECHO = ("echo", {"message": 'naïve "quoted"'})
CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "everything": [
        ECHO,
        ("get-structured-content", {"location": "Chicago"}),
        ("get-tiny-image", {}),
        ("trigger-sampling-request", {"prompt": "say something", "maxTokens": 10}),
        ("trigger-elicitation-request", {}),
        ("trigger-long-running-operation", {"duration": 0.2, "steps": 2}),
        ("get-sum", {"a": "one"}),
    ],
    "filesystem": [("list_allowed_directories", {}), ("read_text_file", {"path": "none"})],
    "memory": [("read_graph", {}), ("search_nodes", {"query": "x"})],
}
INSPECTIONS = {
    "tools/list": (),
    "tools/call": ("--tool-name", "echo", "--tool-arg", "message=naïve"),
    "resources/list": (),
    "resources/templates/list": (),
    "prompts/list": (),
    "prompts/get": ("--prompt-name", "args-prompt", "--prompt-args", "city=Zürich"),
}


class Peers:
    """The servers, and the gateway before them."""

    def __init__(self, node: Node, scratch: Path) -> None:
        self.node, self._scratch = node, scratch
        self.store = (scratch / "store").as_uri()
        self.folder = scratch / "files"
        self.folder.mkdir()
        self._graph = scratch / "graph.jsonl"
        self._commands = {
            "everything": node.command("everything", "stdio", fixed=True),
            "filesystem": node.command("filesystem", str(self.folder)),
            "memory": ["env", f"MEMORY_FILE_PATH={self._graph}", *node.command("memory")],
        }

    def wrap(self, server: Sequence[str], *options: str) -> list[str]:
        # One of them does not end with its input, and is told to after that.
        told = ["--store", self.store, "--shutdown-grace-seconds", "1", *options]
        return [sys.executable, "-m", "forebay", "wrap", *told, "--", *server]

    def fresh(self, server: str, *options: str) -> list[str]:
        """The command of a server that starts as it did before; with options it is behind the gateway."""
        prepared(self.folder)
        self._graph.unlink(missing_ok=True)
        return self.wrap(self._commands[server], *options) if options else self._commands[server]

    def steps(self, server: str) -> Sequence[Step]:
        return {"everything": STEPS, "filesystem": files(self.folder), "memory": GRAPHS}[server]

    def conversation(self, server: str) -> "Mapping[str, Callable[[], str]]":
        """The same conversation twice with the server, and between them through the gateway."""
        steps = self.steps(server)
        first = played(self.fresh(server), steps, REPLIES)
        through = {mode: played(self.fresh(server, "--output-mode", mode), steps, REPLIES) for mode in OUTPUT_MODES}
        again = played(self.fresh(server), steps, REPLIES)

        def held(mode: str) -> str:
            with forebay.open_store(self.store, sweep_interval=0) as store:
                verdict = compared(first, again, through[mode], store)
            check(not verdict.wrong, str(verdict))
            return str(verdict)

        return {mode: partial(held, mode) for mode in OUTPUT_MODES}

    def sdk(self, server: str, mode: str) -> str:
        direct = seen(self.fresh(server), mode, CALLS[server])
        through = seen(self.fresh(server, "--output-mode", "inline"), mode, CALLS[server])
        for before, after in zip(direct, through, strict=True):
            check(before == after, f"{str(before)[:200]} became {str(after)[:200]}")
        return f"{len(direct)} answers are equal"

    def inspector(self, method: str) -> str:
        direct = inspected(self.node, self.fresh("everything"), method, *INSPECTIONS[method])
        through = inspected(
            self.node, self.fresh("everything", "--output-mode", "inline"), method, *INSPECTIONS[method]
        )
        check(direct == through, f"{str(direct)[:200]} became {str(through)[:200]}")
        return f"{len(str(direct))} characters are equal"

    def use(self, title: str) -> str:
        with tempfile.TemporaryDirectory(dir=self._scratch) as folder:
            return USES[title](self.node, self.wrap, Path(folder))


class Tally:
    """Prints how each comparison went, and counts."""

    def __init__(self) -> None:
        self.held = self.made = 0

    def add(self, title: str, run: Callable[[], str]) -> None:
        self.made += 1
        try:
            detail = run()
        except (Failed, ValueError, KeyError, TypeError, RuntimeError, OSError, subprocess.SubprocessError) as error:
            print(f"FAIL {title}: {type(error).__name__}: {error}", flush=True)
            return
        self.held += 1
        print(f"OK   {title}: {detail}", flush=True)


def main() -> int:
    tally = Tally()
    with tempfile.TemporaryDirectory() as scratch:
        # Some SDKs send deprecation warnings to whoever reads standard error, which is nobody here.
        os.environ["PYTHONWARNINGS"] = "ignore"
        peers = Peers(Node(Path(sys.argv[1]).resolve(), Path(scratch)), Path(scratch))
        for server in CALLS:
            for mode, run in peers.conversation(server).items():
                tally.add(f"{server}: bytes of {len(peers.steps(server))} steps, {mode}", run)
            for mode in MODES:
                tally.add(f"{server}: the SDK's client, {mode}", partial(peers.sdk, server, mode))
        for method in INSPECTIONS:
            tally.add(f"everything: the Inspector, {method}", partial(peers.inspector, method))
        for title in USES:
            tally.add(title, partial(peers.use, title))
    print(f"{tally.held} of {tally.made} comparisons hold")
    return 0 if tally.held == tally.made else 1


if __name__ == "__main__":
    sys.exit(main())
