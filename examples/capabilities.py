"""Six end-to-end scenarios of the capability filter, on stdio, in two protocol versions and without a client SDK.

Prints a line per scenario and exits with 0 if all of them hold. With --gateway the filter runs in `forebay wrap` in
front of an unmodified server instead of inside the server.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from browser import CAPABILITIES, HOME
from peer import Peer, Stateless, connect
from running import command
from scenarios import Failed, check

MIN_REDUCTION_PERCENT = 25
OUR_TOOLS = {"output_fetch", "output_search", "output_query", "journal", "expand_tools"}
HIDDEN = "network*,geolocation,drag_drop,workflow"

SERVER = "browser_server.py"


class Launcher:
    """Starts the server for one kind of client, with forebay inside it or in front of it."""

    def __init__(self, peer_class: type[Peer], *, gateway: bool) -> None:
        self.peer_class = peer_class
        self._gateway = gateway

    @contextlib.contextmanager
    def plain(self) -> Iterator[Peer]:
        with connect(command(SERVER, "--plain"), self.peer_class) as peer:
            yield peer

    @contextlib.contextmanager
    def with_forebay(self, *flags: str) -> Iterator[Peer]:
        with tempfile.TemporaryDirectory() as folder:
            flags_and_store = ["--store", (Path(folder) / "store").as_uri(), "--journal", *flags]
            wrapped = [sys.executable, "-m", "forebay", "wrap", *flags_and_store, "--", *command(SERVER, "--plain")]
            with connect(wrapped if self._gateway else command(SERVER, *flags_and_store), self.peer_class) as peer:
                yield peer


def is_insertion(before: bytes, after: bytes) -> bool:
    """Return whether `after` is `before` with bytes inserted at one position."""
    pairs = enumerate(zip(before, after, strict=False))
    start = next((index for index, (old, new) in pairs if old != new), len(before))
    return len(after) >= len(before) and after.endswith(before[start:])


def check_default_list(launcher: Launcher) -> str:
    with launcher.plain() as plain, launcher.with_forebay() as gated:
        before, after = plain.list_tools(), gated.list_tools()
        added = set(gated.tool_names()) - set(plain.tool_names())
    check(is_insertion(before, after), "the list differs by more than what was added")
    check(added == OUR_TOOLS - {"expand_tools"}, f"other tools were added: {sorted(added)}")
    return f"{len(before)} bytes, and {len(after) - len(before)} of forebay's"


def check_tools_only(launcher: Launcher) -> str:
    with launcher.with_forebay("--tools-only", "core") as peer:
        tools = peer.tool_names()
    others = {tool for names in CAPABILITIES.values() for tool in names}
    check(not others & set(tools), f"tools that are not core are listed: {sorted(others & set(tools))}")
    check({"output_fetch", "output_search"} <= set(tools), "handles are stranded")
    return f"{len(tools)} tools"


def check_disable_tools(launcher: Launcher) -> str:
    with launcher.with_forebay() as peer:
        before = peer.tool_names()
    with launcher.with_forebay("--disable-tools", "workflow,recording") as peer:
        after = peer.tool_names()
        refused = peer.call("workflow_init", name="w", urls=[])["error"]
        journal = peer.call("journal", action="recent", count=5)
    gone = {*CAPABILITIES["workflow"], *CAPABILITIES["recording"]}
    check(after == [tool for tool in before if tool not in gone], "not exactly these two groups are gone")
    check(refused["code"] == "CAPABILITY_DISABLED", "a tool that is not listed can be called")
    check(any(event["event"] == "capability_denied" for event in journal), "the journal does not have it")
    return f"{len(before)} tools - {len(gone)} = {len(after)}"


def check_expand_tools(launcher: Launcher) -> str:
    with launcher.with_forebay("--tools-only", "core", "--hidden-tools", HIDDEN) as peer:
        before = peer.tool_names()
        check(not {"network", "geolocation"} & set(before), "what is hidden is listed")
        refused = peer.call("expand_tools", name="workflow_init")["error"]
        check(refused["code"] == "CAPABILITY_DISABLED", f"the error has the code {refused['code']}")
        check(refused["capability"] == "workflow", f"the capability is {refused['capability']}")
        check(peer.tool_names() == before and not peer.notifications, "the list has changed, or a notification says so")
        shown = peer.call("expand_tools", name="geolocation")
        if peer.has_list_changes:
            check(peer.notifications == ["notifications/tools/list_changed"], f"notified: {peer.notifications}")
            check(set(peer.tool_names()) - set(before) == {"geolocation"}, "it did not join the list")
        else:
            check([tool["name"] for tool in shown["tools"]] == ["geolocation"], "its definition is not in the answer")
            check(peer.tool_names() == before and not peer.notifications, "the list has changed by a call")
        check("geolocation" in peer.call("geolocation", latitude=1.5, longitude=2.5), "it cannot be called")
    return f"CAPABILITY_DISABLED {refused['capability']}; geolocation is shown"


def check_list_size(launcher: Launcher) -> str:
    with launcher.with_forebay() as default, launcher.with_forebay("--tools-only", "core") as core:
        default_bytes, core_bytes = len(default.list_tools()), len(core.list_tools())
    reduction = 100 - 100 * core_bytes // default_bytes
    figures = f"default={default_bytes} core={core_bytes} reduction={reduction}%"
    check(reduction >= MIN_REDUCTION_PERCENT, f"{figures}: less than {MIN_REDUCTION_PERCENT}%")
    return figures


def check_replay(launcher: Launcher) -> str:
    outcome = {"url": "https://example.com/info", "text": "reserved for documentation"}
    with launcher.with_forebay() as peer:
        peer.call("oc_recording_start", name="more")
        peer.call("navigate", url=HOME)
        peer.call("read_page")
        peer.call("interact", element="More information…")
        peer.call("oc_recording_stop")
        skill = peer.call("oc_recording_export", name="more")["steps"]
        recorded = peer.call("oc_assert", **outcome)
    check(len(skill) == 3, f"{len(skill)} steps were recorded")
    check(recorded == {"verdict": "pass"}, "the outcome was another one when it was recorded")
    with launcher.with_forebay("--tools-only", "core") as peer:
        check(peer.call("oc_assert", **outcome) != recorded, "the outcome is there before the skill is replayed")
        for step in skill:
            check("error" not in peer.call(step["tool"], **step["arguments"]), f"{step['tool']} failed")
        check(peer.call("oc_assert", **outcome) == recorded, "the verdict is another one")
    return f"{len(skill)} steps, {recorded['verdict']}"


SCENARIOS: list[tuple[str, Callable[[Launcher], str]]] = [
    ("without flags the list is as it was", check_default_list),
    ("--tools-only core", check_tools_only),
    ("--disable-tools workflow,recording", check_disable_tools),
    ("expand_tools stays within what is allowed", check_expand_tools),
    ("the list is smaller", check_list_size),
    ("a recorded skill is replayed with core alone", check_replay),
]


def run_scenario(launcher: Launcher, number: int, title: str, run: Callable[[Launcher], str]) -> bool:
    try:
        result, detail = "OK", run(launcher)
    except (Failed, KeyError, TypeError, ValueError, OSError, subprocess.TimeoutExpired) as error:
        result, detail = "FAIL", f"{type(error).__name__}: {error}"
    print(f"{result:4} {number} {launcher.peer_class.name:10} {title}: {detail}", flush=True)
    return result == "OK"


def main() -> int:
    parser = argparse.ArgumentParser(description=f"Run the scenarios against examples/{SERVER}.")
    parser.add_argument("--gateway", action="store_true", help="run the server behind `forebay wrap`")
    options = parser.parse_args()
    results = [
        run_scenario(Launcher(peer_class, gateway=options.gateway), number, title, run)
        for peer_class in (Peer, Stateless)
        for number, (title, run) in enumerate(SCENARIOS, 1)
    ]
    print(f"{sum(results)} of {len(results)} scenarios hold")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
