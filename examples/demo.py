"""Show what `forebay wrap` does with a tool result of 50 MB from an unmodified server.

A direct client receives all of it. A client of `forebay wrap -- SERVER` receives a descriptor, reads a page, searches,
asks questions by conditions and in SQL, and passes the whole result to another tool by its handle.
"""

import hashlib
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from peer import Peer, connect
from running import command

PAGES = 7_600
BYTES_PER_TOKEN = 4
CRAWL_ARGUMENTS = {"url": "https://example.com/", "max_pages": PAGES}


class CallPrinter:
    """Calls tools and prints each call with its duration and response size."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._width = min(shutil.get_terminal_size((100, 24)).columns, 110)
        self.sizes: list[int] = []

    def call(self, tool: str, **arguments: Any) -> str:
        """Call a tool and return the text of its result."""
        start = time.perf_counter()
        line = self._peer.request("tools/call", {"name": tool, "arguments": arguments})
        seconds = time.perf_counter() - start
        self.sizes.append(len(line))
        shown = ", ".join(f"{name}={json.dumps(value)}" for name, value in arguments.items())
        print(f"\n{self._fit(f'{tool}({shown})', 34)}  {len(line):>11,} bytes  {seconds * 1e3:>8,.1f} ms")
        return str(json.loads(line)["result"]["content"][0]["text"])

    def print_text(self, text: str, lines: int = 1) -> None:
        width = self._width - 4
        for start in range(0, min(len(text), width * lines), width):
            print("   ", text[start : start + width].replace("\n", " "))

    def _fit(self, text: str, room: int) -> str:
        width = self._width - room
        return text.ljust(width) if len(text) <= width else text[: width - 1] + "…"


def format_tokens(size: int) -> str:
    return f"about {size // BYTES_PER_TOKEN:,} tokens"


def crawl_directly(server: list[str]) -> tuple[int, str]:
    """Call the server without forebay; return the size of the response and its text."""
    print("Without forebay")
    with connect(server) as peer:
        printer = CallPrinter(peer)
        text = printer.call("crawl", **CRAWL_ARGUMENTS)
    print(f"    all of it: {format_tokens(printer.sizes[0])}, if any host lets that through")
    return printer.sizes[0], text


def crawl_through_forebay(server: list[str], folder: Path, text: str) -> int:
    """Make the same call through the gateway and use its handle; return the total size of all responses."""
    wrapped = [
        *(sys.executable, "-m", "forebay", "wrap", "--store", (folder / "store").as_uri()),
        *("--file-refs", "--file-root", str(folder), "--"),
        *server,
    ]
    print("\nBehind forebay wrap --file-refs -- SERVER")
    with connect(wrapped) as peer:
        printer = CallPrinter(peer)
        descriptor = json.loads(printer.call("crawl", **CRAWL_ARGUMENTS))
        handle = descriptor["output_handle"]
        summary = {key: descriptor[key] for key in ("output_handle", "size_bytes", "item_count", "outline")}
        printer.print_text(json.dumps(summary, ensure_ascii=False), 3)

        middle = {"output_handle": handle, "offset": PAGES // 2, "limit": 3, "fields": ["number", "url", "title"]}
        printer.print_text(
            json.dumps(json.loads(printer.call("output_fetch", **middle))["content"], ensure_ascii=False)
        )
        found = json.loads(printer.call("output_search", output_handle=handle, pattern="glacier größe", limit=2))
        printer.print_text("  ".join(f"item {match['item']}: {match['context']}" for match in found["matches"]))

        where = {"title": {"contains": "glacier"}, "depth": {">": 3}}
        page = json.loads(printer.call("output_fetch", output_handle=handle, where=where, fields=["url"], limit=1))
        printer.print_text(f"{page['total']:,} items match; the first: {json.dumps(page['content'][0])}")
        sql = "SELECT depth, count(*) AS pages, max(length(text)) FROM items GROUP BY 1 ORDER BY 2 DESC LIMIT 3"
        answer = json.loads(printer.call("output_query", output_handle=handle, sql=sql))
        printer.print_text(json.dumps([column["name"] for column in answer["columns"]]) + f" {answer['rows']}")

        attached = json.loads(printer.call("attach", name="crawl", text={"$handle": handle}))
        is_whole = attached["sha256"] == hashlib.sha256(text.encode()).hexdigest()
        printer.print_text(f"the server has {attached['bytes']:,} bytes, {'the same' if is_whole else 'NOT the same'}")
    if not is_whole:
        raise SystemExit(1)
    return sum(printer.sizes)


def main() -> None:
    server = command("server.py", "--plain")
    whole, text = crawl_directly(server)
    with tempfile.TemporaryDirectory(prefix="forebay-demo-") as folder:
        read = crawl_through_forebay(server, Path(folder), text)
    print(f"\nA plain client: {whole:,} bytes, {format_tokens(whole)}.")
    ratio = f"1/{whole // read:,}"
    print(f"Through forebay: {read:,} bytes, {format_tokens(read)}, and every byte still there: {ratio} of it.")


if __name__ == "__main__":
    main()
