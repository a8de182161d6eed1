"""Compare real servers with and without the gateway. `make peers` installs what this needs.

For three of the protocol's reference servers over stdio, compares a raw conversation byte by byte, then what the SDK's
client and the Inspector read; then uses the servers through the gateway. Exits with 0 if everything holds.
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
from conversation import Step, run_conversation
from differences import compare
from everything import REPLIES, STEPS
from files_and_graphs import MEMORY_STEPS, filesystem_steps, prepare_files
from peer_clients import MODES, read_with_inspector, read_with_sdk
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
    """The servers, with and without the gateway."""

    def __init__(self, node: Node, scratch: Path) -> None:
        self.node, self._scratch = node, scratch
        self.store = (scratch / "store").as_uri()
        self.folder = scratch / "files"
        self.folder.mkdir()
        self._graph = scratch / "graph.jsonl"
        self._commands = {
            "everything": node.server_command("everything", "stdio", deterministic=True),
            "filesystem": node.server_command("filesystem", str(self.folder)),
            "memory": ["env", f"MEMORY_FILE_PATH={self._graph}", *node.server_command("memory")],
        }

    def wrap(self, server: Sequence[str], *options: str) -> list[str]:
        # One server does not exit when its stdin is closed; do not wait long for it.
        flags = ["--store", self.store, "--shutdown-grace-seconds", "1", *options]
        return [sys.executable, "-m", "forebay", "wrap", *flags, "--", *server]

    def prepare(self, server: str, *options: str) -> list[str]:
        """Reset a server's state and return its command, through the gateway if there are options."""
        prepare_files(self.folder)
        self._graph.unlink(missing_ok=True)
        return self.wrap(self._commands[server], *options) if options else self._commands[server]

    def steps(self, server: str) -> Sequence[Step]:
        return {"everything": STEPS, "filesystem": filesystem_steps(self.folder), "memory": MEMORY_STEPS}[server]

    def compare_conversations(self, server: str) -> "Mapping[str, Callable[[], str]]":
        """Run a conversation directly, through the gateway, and directly again; return a check per output mode."""
        steps = self.steps(server)
        direct = run_conversation(self.prepare(server), steps, REPLIES)
        through = {
            mode: run_conversation(self.prepare(server, "--output-mode", mode), steps, REPLIES) for mode in OUTPUT_MODES
        }
        repeated = run_conversation(self.prepare(server), steps, REPLIES)

        def compare_mode(mode: str) -> str:
            with forebay.open_store(self.store, sweep_interval=0) as store:
                verdict = compare(direct, repeated, through[mode], store)
            check(not verdict.wrong, str(verdict))
            return str(verdict)

        return {mode: partial(compare_mode, mode) for mode in OUTPUT_MODES}

    def compare_sdk_client(self, server: str, mode: str) -> str:
        direct = read_with_sdk(self.prepare(server), mode, CALLS[server])
        through = read_with_sdk(self.prepare(server, "--output-mode", "inline"), mode, CALLS[server])
        for before, after in zip(direct, through, strict=True):
            check(before == after, f"{str(before)[:200]} became {str(after)[:200]}")
        return f"{len(direct)} answers are equal"

    def compare_inspector(self, method: str) -> str:
        direct = read_with_inspector(self.node, self.prepare("everything"), method, *INSPECTIONS[method])
        through = read_with_inspector(
            self.node, self.prepare("everything", "--output-mode", "inline"), method, *INSPECTIONS[method]
        )
        check(direct == through, f"{str(direct)[:200]} became {str(through)[:200]}")
        return f"{len(str(direct))} characters are equal"

    def run_use(self, title: str) -> str:
        with tempfile.TemporaryDirectory(dir=self._scratch) as folder:
            return USES[title](self.node, self.wrap, Path(folder))


class Tally:
    """Prints the result of each comparison and counts them."""

    def __init__(self) -> None:
        self.passed = self.total = 0

    def add(self, title: str, run: Callable[[], str]) -> None:
        self.total += 1
        try:
            detail = run()
        except (Failed, ValueError, KeyError, TypeError, RuntimeError, OSError, subprocess.SubprocessError) as error:
            print(f"FAIL {title}: {type(error).__name__}: {error}", flush=True)
            return
        self.passed += 1
        print(f"OK   {title}: {detail}", flush=True)


def main() -> int:
    tally = Tally()
    with tempfile.TemporaryDirectory() as scratch:
        # Deprecation warnings of the SDKs would clutter stderr.
        os.environ["PYTHONWARNINGS"] = "ignore"
        peers = Peers(Node(Path(sys.argv[1]).resolve(), Path(scratch)), Path(scratch))
        for server in CALLS:
            for mode, run in peers.compare_conversations(server).items():
                tally.add(f"{server}: bytes of {len(peers.steps(server))} steps, {mode}", run)
            for mode in MODES:
                tally.add(f"{server}: the SDK's client, {mode}", partial(peers.compare_sdk_client, server, mode))
        for method in INSPECTIONS:
            tally.add(f"everything: the Inspector, {method}", partial(peers.compare_inspector, method))
        for title in USES:
            tally.add(title, partial(peers.run_use, title))
    print(f"{tally.passed} of {tally.total} comparisons hold")
    return 0 if tally.passed == tally.total else 1


if __name__ == "__main__":
    sys.exit(main())
