"""Seven end-to-end scenarios of output handles, over real HTTP and without an SDK on the client side.

Each runs with three clients: without a handshake, as `curl` does; with the handshake of protocol 2025-11-25; and with
the headers of protocol 2026-07-28. Prints a line per scenario and exits with 0 if all of them hold.
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
MAX_RESPONSE_BYTES = 4096
MAX_RATIO = 0.10
TIMEOUT_SECONDS = 30.0

CLIENT = {"name": "scenarios", "version": "1"}


class Bare:
    """A JSON-RPC client over HTTP that sends only the required headers."""

    name = "bare"

    def __init__(self, url: str) -> None:
        self._url = url
        self._id = 0

    def request(self, method: str, params: dict[str, Any]) -> bytes:
        """Send a request and return the body of the response."""
        self._id += 1
        return self._post({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}, {})[0]

    def _post(self, message: dict[str, Any], headers: dict[str, str]) -> tuple[bytes, dict[str, str]]:
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream", **headers}
        request = urllib.request.Request(self._url, json.dumps(message).encode(), headers)  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
            return answer.read(), {name.lower(): value for name, value in answer.headers.items()}

    def call(self, tool: str, **arguments: Any) -> bytes:
        return self.request("tools/call", {"name": tool, "arguments": arguments})


class Handshake(Bare):
    """A client of protocol 2025-11-25: initializes first, then sends the negotiated version and session id."""

    name = "handshake"
    version = "2025-11-25"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._session_headers: dict[str, str] = {}
        params = {"protocolVersion": self.version, "capabilities": {}, "clientInfo": CLIENT}
        response = json.loads(self.request("initialize", params))
        check(response["result"]["protocolVersion"] == self.version, "the server speaks another version")
        self._session_headers["mcp-protocol-version"] = self.version
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"}, {})

    def _post(self, message: dict[str, Any], headers: dict[str, str]) -> tuple[bytes, dict[str, str]]:
        body, received = super()._post(message, {**self._session_headers, **headers})
        if session := received.get("mcp-session-id"):
            self._session_headers["mcp-session-id"] = session
        return body, received


class Stateless(Bare):
    """A client of protocol 2026-07-28, which sends its version and client info with every request."""

    name = "2026-07-28"
    version = "2026-07-28"

    def request(self, method: str, params: dict[str, Any]) -> bytes:
        client_info = {"protocolVersion": self.version, "clientInfo": CLIENT, "clientCapabilities": {}}
        meta = {f"io.modelcontextprotocol/{key}": value for key, value in client_info.items()}
        return super().request(method, {**params, "_meta": meta})

    def _post(self, message: dict[str, Any], headers: dict[str, str]) -> tuple[bytes, dict[str, str]]:
        routing = {"mcp-protocol-version": self.version, "mcp-method": message["method"]}
        if "name" in message["params"]:
            routing["mcp-name"] = message["params"]["name"]
        return super()._post(message, {**routing, **headers})


class Failed(Exception):
    """A scenario does not hold."""


def check(condition: bool, problem: str) -> None:
    if not condition:
        raise Failed(problem)


def parse_result(body: bytes) -> Any:
    """Return the first content block of a response, parsed as JSON."""
    return json.loads(json.loads(body)["result"]["content"][0]["text"])


def check_not_found(body: bytes) -> None:
    check(json.loads(body)["result"]["isError"] is True, "it is no error")
    check(parse_result(body)["error"]["code"] == "output_handle_not_found", "the error has another code")


def check_inline_default(peer: Bare) -> str:
    peer.call("navigate", url="https://example.com")
    page = parse_result(peer.call("read_page"))
    check("output_handle" not in page, "a result became a handle, and nobody asked for one")
    check(page["url"] == "https://example.com", "this is not the page that was opened")
    return f"{len(page['text'])} characters"


def check_descriptor(peer: Bare) -> str:
    descriptor = parse_result(peer.call("read_page", output_mode="handle"))
    check(bool(HANDLE.fullmatch(descriptor["output_handle"])), "a handle looks different")
    check(descriptor["size_bytes"] > 0, "the size is zero")
    check(0 < len(descriptor["preview"].encode()) <= 2048, "the preview is empty, or above 2,048 bytes")
    check(descriptor["fetch_with"] == "oc_output_fetch", "it does not say what to fetch it with")
    return f"handle={descriptor['output_handle']} size={descriptor['size_bytes']}"


def check_pages(peer: Bare) -> str:
    inline = parse_result(peer.call("crawl", url="https://example.com", max_pages=23))
    descriptor = parse_result(peer.call("crawl", url="https://example.com", max_pages=23, output_mode="handle"))
    check(descriptor["item_count"] == 23, "the items are counted wrong")
    items: list[Any] = []
    offset: int | None = 0
    while offset is not None:
        page = parse_result(
            peer.call("oc_output_fetch", output_handle=descriptor["output_handle"], offset=offset, limit=10)
        )
        check(page["returned"] == len(page["content"]) <= 10, "a page has more than it says, or than was asked for")
        check(page["total"] == 23, "the total is wrong")
        check((page["next_offset"] is None) == page["eof"], "next_offset and eof contradict each other")
        items += page["content"]
        check(page["eof"] or page["next_offset"] == len(items), "the next page starts somewhere else")
        offset = page["next_offset"]
    check(items == inline["pages"], "the pages together are not the inline result")
    return f"items={len(items)}"


def check_unknown_handle(peer: Bare) -> str:
    check_not_found(peer.call("oc_output_fetch", output_handle="oh_DEADBEEF0000"))
    return "output_handle_not_found"


def check_response_size(peer: Bare, sizes: list[str]) -> str:
    arguments: dict[str, Any] = {"url": "http://localhost:9991/", "max_pages": 30}
    inline = len(peer.call("crawl", **arguments))
    handle = len(peer.call("crawl", **arguments, output_mode="handle"))
    figures = f"inline={inline} handle={handle} ratio={handle / inline:.4f}"
    sizes.append(f"{peer.name}: {figures}")
    check(inline > 100_000, f"{figures}: there is nothing to spare")
    check(handle <= MAX_RESPONSE_BYTES, f"{figures}: the answer is above {MAX_RESPONSE_BYTES} bytes")
    check(handle / inline <= MAX_RATIO, f"{figures}: the ratio is above {MAX_RATIO}")
    return figures


def check_expired_handle(peer: Bare, store: Path) -> str:
    handle = parse_result(peer.call("read_page", output_mode="handle"))["output_handle"]
    check_not_found(peer.call("oc_output_fetch", output_handle=handle))
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while any(store.rglob(f"{handle}*")):
        check(time.monotonic() < deadline, "no sweep removed its file")
        time.sleep(0.1)
    check_not_found(peer.call("oc_output_fetch", output_handle=handle))
    return "swept"


def check_journal(peer: Bare) -> str:
    handle = parse_result(peer.call("network", count=50, output_mode="handle"))["output_handle"]
    events = parse_result(peer.call("oc_journal", action="recent", count=50))
    created = [event for event in events if event["event"] == "output_handle_created"]
    matching = [event for event in created if event["handle"] == handle]
    check(len(matching) == 1 and matching[0]["source_tool"] == "network", "the journal does not have it, or not once")
    check({"size_bytes", "mime_type", "ts"} <= matching[0].keys(), "the journal says too little")
    return f"events={len(events)}"


Scenario = tuple[int, str, Callable[[], str]]


@contextlib.contextmanager
def connect(client_class: type[Bare], *flags: str) -> Iterator[tuple[Bare, Path]]:
    """Start a server; yield a client of it and the folder of its store."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        with serving("server.py", "--store", store.as_uri(), *flags) as url:
            yield client_class(url), store


def run_scenario(client_class: type[Bare], scenario: Scenario) -> bool:
    number, title, run = scenario
    try:
        result, detail = "OK", run()
    except (Failed, KeyError, TypeError, ValueError, OSError) as error:
        result, detail = "FAIL", f"{type(error).__name__}: {error}"
    print(f"{result:4} {number} {client_class.name:10} {title}: {detail}", flush=True)
    return result == "OK"


def run_all(client_class: type[Bare], sizes: list[str]) -> list[bool]:
    with connect(client_class) as (peer, _):
        results = [
            run_scenario(client_class, scenario)
            for scenario in (
                (1, "without being asked, results stay inline", lambda: check_inline_default(peer)),
                (2, "a handle has a descriptor that can be redeemed", lambda: check_descriptor(peer)),
                (3, "pages give everything exactly once", lambda: check_pages(peer)),
                (4, "an unknown handle is a structured error", lambda: check_unknown_handle(peer)),
                (5, "the answer is small, whatever the payload", lambda: check_response_size(peer, sizes)),
                (7, "the journal tells of it", lambda: check_journal(peer)),
            )
        ]
    flags = ("--output-handle-ttl-hours", "0", "--output-handle-sweep-interval-seconds", "2")
    with connect(client_class, *flags) as (peer, store):
        results.append(
            run_scenario(client_class, (6, "what has expired is gone", lambda: check_expired_handle(peer, store)))
        )
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the scenarios against examples/server.py.")
    parser.add_argument("--record", type=Path, default=RECORD, help="file for the byte counts of scenario 5")
    options = parser.parse_args()
    sizes: list[str] = []
    results = [held for speaks in (Bare, Handshake, Stateless) for held in run_all(speaks, sizes)]
    options.record.parent.mkdir(parents=True, exist_ok=True)
    options.record.write_text("\n".join(sizes) + "\n", encoding="utf-8")
    print(f"{sum(results)} of {len(results)} scenarios hold; the bytes of scenario 5 are in {options.record}")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
