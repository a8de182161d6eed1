"""Seven scenarios of output handles, end to end: a real server, real HTTP, and no SDK on this side.

Each is run in three ways of speaking: bare, as `curl` does; after the handshake that the protocol had until 2025-11-25;
and by the headers that it has since 2026-07-28. Prints a line each and ends with 0 if all of them hold.
"""

import argparse
import contextlib
import json
import re
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from running import EXAMPLES, serving

RECORD = EXAMPLES.parent / "target" / "output-handles-bytes.txt"

HANDLE = re.compile(r"oh_[A-Z0-9]{12}")
MOST_BYTES = 4096
MOST_RATIO = 0.10
PATIENCE = 30.0

CLIENT = {"name": "scenarios", "version": "1"}


class Bare:
    """Speaks JSON-RPC over HTTP, and says no more than has to be said."""

    name = "bare"

    def __init__(self, url: str) -> None:
        self._url = url
        self._id = 0

    def ask(self, method: str, params: dict[str, Any]) -> bytes:
        """The body of an answer."""
        self._id += 1
        return self._post({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}, {})[0]

    def _post(self, message: dict[str, Any], headers: dict[str, str]) -> tuple[bytes, dict[str, str]]:
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream", **headers}
        request = urllib.request.Request(self._url, json.dumps(message).encode(), headers)  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310
            return answer.read(), {name.lower(): value for name, value in answer.headers.items()}

    def call(self, tool: str, **arguments: Any) -> bytes:
        return self.ask("tools/call", {"name": tool, "arguments": arguments})


class Handshake(Bare):
    """Introduces itself first, and keeps to what was agreed on."""

    name = "handshake"
    version = "2025-11-25"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._agreed: dict[str, str] = {}
        hello = {"protocolVersion": self.version, "capabilities": {}, "clientInfo": CLIENT}
        answer = json.loads(self.ask("initialize", hello))
        check(answer["result"]["protocolVersion"] == self.version, "the server speaks another version")
        self._agreed["mcp-protocol-version"] = self.version
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"}, {})

    def _post(self, message: dict[str, Any], headers: dict[str, str]) -> tuple[bytes, dict[str, str]]:
        body, received = super()._post(message, {**self._agreed, **headers})
        if session := received.get("mcp-session-id"):
            self._agreed["mcp-session-id"] = session
        return body, received


class Stateless(Bare):
    """Says with every request who it is and which version it speaks."""

    name = "2026-07-28"
    version = "2026-07-28"

    def ask(self, method: str, params: dict[str, Any]) -> bytes:
        about = {"protocolVersion": self.version, "clientInfo": CLIENT, "clientCapabilities": {}}
        meta = {f"io.modelcontextprotocol/{key}": value for key, value in about.items()}
        return super().ask(method, {**params, "_meta": meta})

    def _post(self, message: dict[str, Any], headers: dict[str, str]) -> tuple[bytes, dict[str, str]]:
        routing = {"mcp-protocol-version": self.version, "mcp-method": message["method"]}
        if "name" in message["params"]:
            routing["mcp-name"] = message["params"]["name"]
        return super()._post(message, {**routing, **headers})


class Failed(Exception):
    """A scenario does not hold."""


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Failed(otherwise)


def told(body: bytes) -> Any:
    """What an answer's first block says, as JSON."""
    return json.loads(json.loads(body)["result"]["content"][0]["text"])


def check_not_found(body: bytes) -> None:
    check(json.loads(body)["result"]["isError"] is True, "it is no error")
    check(told(body)["error"]["code"] == "output_handle_not_found", "the error has another code")


def default_is_inline(peer: Bare) -> str:
    peer.call("navigate", url="https://example.com")
    page = told(peer.call("read_page"))
    check("output_handle" not in page, "a result became a handle, and nobody asked for one")
    check(page["url"] == "https://example.com", "this is not the page that was opened")
    return f"{len(page['text'])} characters"


def handle_is_described(peer: Bare) -> str:
    descriptor = told(peer.call("read_page", output_mode="handle"))
    check(bool(HANDLE.fullmatch(descriptor["output_handle"])), "a handle looks different")
    check(descriptor["size_bytes"] > 0, "the size is zero")
    check(0 < len(descriptor["preview"].encode()) <= 2048, "the preview is empty, or above 2,048 bytes")
    check(descriptor["fetch_with"] == "oc_output_fetch", "it does not say what to fetch it with")
    return f"handle={descriptor['output_handle']} size={descriptor['size_bytes']}"


def pages_tile(peer: Bare) -> str:
    inline = told(peer.call("crawl", url="https://example.com", max_pages=23))
    descriptor = told(peer.call("crawl", url="https://example.com", max_pages=23, output_mode="handle"))
    check(descriptor["item_count"] == 23, "the items are counted wrong")
    items: list[Any] = []
    offset: int | None = 0
    while offset is not None:
        page = told(peer.call("oc_output_fetch", output_handle=descriptor["output_handle"], offset=offset, limit=10))
        check(page["returned"] == len(page["content"]) <= 10, "a page has more than it says, or than was asked for")
        check(page["total"] == 23, "the total is wrong")
        check((page["next_offset"] is None) == page["eof"], "next_offset and eof contradict each other")
        items += page["content"]
        check(page["eof"] or page["next_offset"] == len(items), "the next page starts somewhere else")
        offset = page["next_offset"]
    check(items == inline["pages"], "the pages together are not the inline result")
    return f"items={len(items)}"


def unknown_is_an_error(peer: Bare) -> str:
    check_not_found(peer.call("oc_output_fetch", output_handle="oh_DEADBEEF0000"))
    return "output_handle_not_found"


def answer_is_small(peer: Bare, record: list[str]) -> str:
    asked: dict[str, Any] = {"url": "http://localhost:9991/", "max_pages": 30}
    inline = len(peer.call("crawl", **asked))
    handle = len(peer.call("crawl", **asked, output_mode="handle"))
    figures = f"inline={inline} handle={handle} ratio={handle / inline:.4f}"
    record.append(f"{peer.name}: {figures}")
    check(inline > 100_000, f"{figures}: there is nothing to spare")
    check(handle <= MOST_BYTES, f"{figures}: the answer is above {MOST_BYTES} bytes")
    check(handle / inline <= MOST_RATIO, f"{figures}: the ratio is above {MOST_RATIO}")
    return figures


def expired_is_gone(peer: Bare, store: Path) -> str:
    handle = told(peer.call("read_page", output_mode="handle"))["output_handle"]
    check_not_found(peer.call("oc_output_fetch", output_handle=handle))
    deadline = time.monotonic() + PATIENCE
    while any(store.rglob(f"{handle}*")):
        check(time.monotonic() < deadline, "no sweep removed its file")
        time.sleep(0.1)
    check_not_found(peer.call("oc_output_fetch", output_handle=handle))
    return "swept"


def journal_tells(peer: Bare) -> str:
    handle = told(peer.call("network", count=50, output_mode="handle"))["output_handle"]
    events = told(peer.call("oc_journal", action="recent", count=50))
    created = [event for event in events if event["event"] == "output_handle_created"]
    mine = [event for event in created if event["handle"] == handle]
    check(len(mine) == 1 and mine[0]["source_tool"] == "network", "the journal does not have it, or not once")
    check({"size_bytes", "mime_type", "ts"} <= mine[0].keys(), "the journal says too little")
    return f"events={len(events)}"


Scenario = tuple[int, str, Callable[[], str]]


@contextlib.contextmanager
def served(speaks: type[Bare], *flags: str) -> Iterator[tuple[Bare, Path]]:
    """A way of speaking to a server of its own, and the folder of its store."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        with serving("server.py", "--store", store.as_uri(), *flags) as url:
            yield speaks(url), store


def holds(speaks: type[Bare], scenario: Scenario) -> bool:
    number, title, run = scenario
    try:
        result, detail = "OK", run()
    except (Failed, KeyError, TypeError, ValueError, OSError) as error:
        result, detail = "FAIL", f"{type(error).__name__}: {error}"
    print(f"{result:4} {number} {speaks.name:10} {title}: {detail}", flush=True)
    return result == "OK"


def run_all(speaks: type[Bare], record: list[str]) -> list[bool]:
    with served(speaks) as (peer, _):
        done = [
            holds(speaks, scenario)
            for scenario in (
                (1, "without being asked, results stay inline", lambda: default_is_inline(peer)),
                (2, "a handle has a descriptor that can be redeemed", lambda: handle_is_described(peer)),
                (3, "pages give everything exactly once", lambda: pages_tile(peer)),
                (4, "an unknown handle is a structured error", lambda: unknown_is_an_error(peer)),
                (5, "the answer is small, whatever the payload", lambda: answer_is_small(peer, record)),
                (7, "the journal tells of it", lambda: journal_tells(peer)),
            )
        ]
    flags = ("--output-handle-ttl-hours", "0", "--output-handle-sweep-interval-seconds", "2")
    with served(speaks, *flags) as (peer, store):
        done.append(holds(speaks, (6, "what has expired is gone", lambda: expired_is_gone(peer, store))))
    return done


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs the scenarios against examples/server.py.")
    parser.add_argument("--record", type=Path, default=RECORD, help="where the bytes of scenario 5 go")
    asked = parser.parse_args()
    record: list[str] = []
    done = [held for speaks in (Bare, Handshake, Stateless) for held in run_all(speaks, record)]
    asked.record.parent.mkdir(parents=True, exist_ok=True)
    asked.record.write_text("\n".join(record) + "\n", encoding="utf-8")
    print(f"{sum(done)} of {len(done)} scenarios hold; the bytes of scenario 5 are in {asked.record}")
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
