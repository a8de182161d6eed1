"""Six scenarios of the capability filter, end to end: a real server on stdio, in both eras, and no SDK on this side.

Prints a line each and ends with 0 if all of them hold. With --gateway the filter is in `forebay wrap` before a server
that knows nothing of forebay, in place of inside of the server.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from browser import CAPABILITIES, HOME
from peer import Peer, Stateless, talking
from running import command
from scenarios import Failed, check

LEAST_REDUCTION = 25
OURS = {"output_fetch", "output_search", "journal", "expand_tools"}
HIDDEN = "network*,geolocation,drag_drop,workflow"

SERVER = "browser_server.py"


class Bench:
    """Starts the server in one way of speaking, with forebay in it or before it."""

    def __init__(self, speaks: type[Peer], *, gateway: bool) -> None:
        self.speaks = speaks
        self._gateway = gateway

    @contextlib.contextmanager
    def plain(self) -> Iterator[Peer]:
        with talking(command(SERVER, "--plain"), self.speaks) as peer:
            yield peer

    @contextlib.contextmanager
    def gated(self, *flags: str) -> Iterator[Peer]:
        with tempfile.TemporaryDirectory() as folder:
            told = ["--store", (Path(folder) / "store").as_uri(), "--journal", *flags]
            wrapped = [sys.executable, "-m", "forebay", "wrap", *told, "--", *command(SERVER, "--plain")]
            with talking(wrapped if self._gateway else command(SERVER, *told), self.speaks) as peer:
                yield peer


def is_insertion(before: bytes, after: bytes) -> bool:
    """Whether one is the other with something put in at one place."""
    pairs = enumerate(zip(before, after, strict=False))
    start = next((index for index, (old, new) in pairs if old != new), len(before))
    return len(after) >= len(before) and after.endswith(before[start:])


def default_is_unchanged(bench: Bench) -> str:
    with bench.plain() as plain, bench.gated() as gated:
        before, after = plain.listing(), gated.listing()
        added = set(gated.tools()) - set(plain.tools())
    check(is_insertion(before, after), "the list differs by more than what was added")
    check(added == OURS - {"expand_tools"}, f"other tools were added: {sorted(added)}")
    return f"{len(before)} bytes, and {len(after) - len(before)} of forebay's"


def only_core_is_listed(bench: Bench) -> str:
    with bench.gated("--tools-only", "core") as peer:
        tools = peer.tools()
    others = {tool for names in CAPABILITIES.values() for tool in names}
    check(not others & set(tools), f"tools that are not core are listed: {sorted(others & set(tools))}")
    check({"output_fetch", "output_search"} <= set(tools), "handles are stranded")
    return f"{len(tools)} tools"


def disabled_are_gone(bench: Bench) -> str:
    with bench.gated() as peer:
        before = peer.tools()
    with bench.gated("--disable-tools", "workflow,recording") as peer:
        after = peer.tools()
        refused = peer.call("workflow_init", name="w", urls=[])["error"]
        journal = peer.call("journal", action="recent", count=5)
    gone = {*CAPABILITIES["workflow"], *CAPABILITIES["recording"]}
    check(after == [tool for tool in before if tool not in gone], "not exactly these two groups are gone")
    check(refused["code"] == "CAPABILITY_DISABLED", "a tool that is not listed can be called")
    check(any(event["event"] == "capability_denied" for event in journal), "the journal does not have it")
    return f"{len(before)} tools - {len(gone)} = {len(after)}"


def expanding_stays_within(bench: Bench) -> str:
    with bench.gated("--tools-only", "core", "--hidden-tools", HIDDEN) as peer:
        before = peer.tools()
        check(not {"network", "geolocation"} & set(before), "what is hidden is listed")
        refused = peer.call("expand_tools", name="workflow_init")["error"]
        check(refused["code"] == "CAPABILITY_DISABLED", f"the error has the code {refused['code']}")
        check(refused["capability"] == "workflow", f"the capability is {refused['capability']}")
        check(peer.tools() == before and not peer.notified, "the list has changed, or is said to have")
        shown = peer.call("expand_tools", name="geolocation")
        if peer.lists_change:
            check(peer.notified == ["notifications/tools/list_changed"], f"notified: {peer.notified}")
            check(set(peer.tools()) - set(before) == {"geolocation"}, "it did not join the list")
        else:
            check([tool["name"] for tool in shown["tools"]] == ["geolocation"], "its definition is not in the answer")
            check(peer.tools() == before and not peer.notified, "the list has changed by a call")
        check("geolocation" in peer.call("geolocation", latitude=1.5, longitude=2.5), "it cannot be called")
    return f"CAPABILITY_DISABLED {refused['capability']}; geolocation is shown"


def list_is_smaller(bench: Bench) -> str:
    with bench.gated() as default, bench.gated("--tools-only", "core") as core:
        most, least = len(default.listing()), len(core.listing())
    reduction = 100 - 100 * least // most
    figures = f"default={most} core={least} reduction={reduction}%"
    check(reduction >= LEAST_REDUCTION, f"{figures}: less than {LEAST_REDUCTION}%")
    return figures


def skill_is_replayed(bench: Bench) -> str:
    outcome = {"url": "https://example.com/info", "text": "reserved for documentation"}
    with bench.gated() as peer:
        peer.call("oc_recording_start", name="more")
        peer.call("navigate", url=HOME)
        peer.call("read_page")
        peer.call("interact", element="More information…")
        peer.call("oc_recording_stop")
        skill = peer.call("oc_recording_export", name="more")["steps"]
        recorded = peer.call("oc_assert", **outcome)
    check(len(skill) == 3, f"{len(skill)} steps were recorded")
    check(recorded == {"verdict": "pass"}, "the outcome was another one when it was recorded")
    with bench.gated("--tools-only", "core") as peer:
        check(peer.call("oc_assert", **outcome) != recorded, "the outcome is there before the skill is replayed")
        for step in skill:
            check("error" not in peer.call(step["tool"], **step["arguments"]), f"{step['tool']} failed")
        check(peer.call("oc_assert", **outcome) == recorded, "the verdict is another one")
    return f"{len(skill)} steps, {recorded['verdict']}"


SCENARIOS: list[tuple[str, Callable[[Bench], str]]] = [
    ("without flags the list is as it was", default_is_unchanged),
    ("--tools-only core", only_core_is_listed),
    ("--disable-tools workflow,recording", disabled_are_gone),
    ("expand_tools stays within what is allowed", expanding_stays_within),
    ("the list is smaller", list_is_smaller),
    ("a recorded skill is replayed with core alone", skill_is_replayed),
]


def holds(bench: Bench, number: int, title: str, run: Callable[[Bench], str]) -> bool:
    try:
        result, detail = "OK", run(bench)
    except (Failed, KeyError, TypeError, ValueError, OSError, subprocess.TimeoutExpired) as error:
        result, detail = "FAIL", f"{type(error).__name__}: {error}"
    print(f"{result:4} {number} {bench.speaks.name:10} {title}: {detail}", flush=True)
    return result == "OK"


def main() -> int:
    parser = argparse.ArgumentParser(description=f"Runs the scenarios against examples/{SERVER}.")
    parser.add_argument("--gateway", action="store_true", help="with `forebay wrap` before the server")
    asked = parser.parse_args()
    done = [
        holds(Bench(speaks, gateway=asked.gateway), number, title, run)
        for speaks in (Peer, Stateless)
        for number, (title, run) in enumerate(SCENARIOS, 1)
    ]
    print(f"{sum(done)} of {len(done)} scenarios hold")
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
