"""The main job, before your eyes: a server that knows nothing of forebay, and an answer of 50 MB.

A plain client is sent all of it. A client of `forebay wrap -- SERVER` gets a descriptor, reads on from there, and
hands the whole to another tool of the server without having seen it.
"""

import hashlib
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from peer import Peer, talking
from running import command

PAGES = 7_600
BYTES_A_TOKEN = 4
CALL = {"url": "https://example.com/", "max_pages": PAGES}


class Show:
    """Prints each call, how long it took and what came back, and adds that up."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._width = min(shutil.get_terminal_size((100, 24)).columns, 110)
        self.sizes: list[int] = []

    def call(self, tool: str, **arguments: Any) -> str:
        """What a tool answers as text."""
        start = time.perf_counter()
        line = self._peer.ask("tools/call", {"name": tool, "arguments": arguments})
        seconds = time.perf_counter() - start
        self.sizes.append(len(line))
        asked = ", ".join(f"{name}={json.dumps(value)}" for name, value in arguments.items())
        print(f"\n{self._cut(f'{tool}({asked})', 34)}  {len(line):>11,} bytes  {seconds * 1e3:>8,.1f} ms")
        return str(json.loads(line)["result"]["content"][0]["text"])

    def shown(self, text: str, lines: int = 1) -> None:
        width = self._width - 4
        for start in range(0, min(len(text), width * lines), width):
            print("   ", text[start : start + width].replace("\n", " "))

    def _cut(self, text: str, room: int) -> str:
        width = self._width - room
        return text.ljust(width) if len(text) <= width else text[: width - 1] + "…"


def tokens(size: int) -> str:
    return f"about {size // BYTES_A_TOKEN:,} tokens"


def plainly(server: list[str]) -> tuple[int, str]:
    """What a client gets without forebay: how many bytes, and what they say."""
    print("Without forebay")
    with talking(server) as peer:
        show = Show(peer)
        text = show.call("crawl", **CALL)
    print(f"    all of it: {tokens(show.sizes[0])}, if any host lets that through")
    return show.sizes[0], text


def gated(server: list[str], folder: Path, text: str) -> int:
    """The same through the gateway; gives what the client got in all."""
    wrapped = [
        *(sys.executable, "-m", "forebay", "wrap", "--store", (folder / "store").as_uri()),
        *("--file-refs", "--file-root", str(folder), "--"),
        *server,
    ]
    print("\nBehind forebay wrap --file-refs -- SERVER")
    with talking(wrapped) as peer:
        show = Show(peer)
        descriptor = json.loads(show.call("crawl", **CALL))
        handle = descriptor["output_handle"]
        shape = {key: descriptor[key] for key in ("output_handle", "size_bytes", "item_count", "outline")}
        show.shown(json.dumps(shape, ensure_ascii=False), 3)

        middle = {"output_handle": handle, "offset": PAGES // 2, "limit": 3, "fields": ["number", "url", "title"]}
        show.shown(json.dumps(json.loads(show.call("output_fetch", **middle))["content"], ensure_ascii=False))
        found = json.loads(show.call("output_search", output_handle=handle, pattern="glacier größe", limit=2))
        show.shown("  ".join(f"item {match['item']}: {match['context']}" for match in found["matches"]))

        kept = json.loads(show.call("attach", name="crawl", text={"$handle": handle}))
        is_whole = kept["sha256"] == hashlib.sha256(text.encode()).hexdigest()
        show.shown(f"the server has {kept['bytes']:,} bytes, {'the same' if is_whole else 'NOT the same'}")
    if not is_whole:
        raise SystemExit(1)
    return sum(show.sizes)


def main() -> None:
    server = command("server.py", "--plain")
    whole, text = plainly(server)
    with tempfile.TemporaryDirectory(prefix="forebay-demo-") as folder:
        read = gated(server, Path(folder), text)
    print(f"\nA plain client: {whole:,} bytes, {tokens(whole)}.")
    print(f"Through forebay: {read:,} bytes, {tokens(read)}, and every byte still there: 1/{whole // read:,} of it.")


if __name__ == "__main__":
    main()
