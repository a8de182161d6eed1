"""Use real servers behind the gateway: store large results, read them by handle, and pass them on."""

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conformance import Node
from peer import Peer, connect
from scenarios import check

__all__ = ["USES"]

LINES = 70_000
LINE_NUMBER = 43_210
ENTITY_COUNT = 1000

Wrap = Callable[..., list[str]]


def make_line(number: int) -> str:
    return f'{number:06} naïve 😀 "quoted" \\ back, and what a log has more of such a line\n'


def fetch_text(peer: Peer, handle: str, **options: str) -> str:
    """Return the text of all pages of a stored output, or of a path in it."""
    text, offset = "", 0
    while offset is not None:
        page = peer.call("output_fetch", output_handle=handle, offset=offset, format="text", **options)
        text += page["content"]
        offset = page["next_offset"]
    return text


def read_large_file(node: Node, wrap: Wrap, folder: Path) -> str:
    path = folder / "large.log"
    path.write_text("".join(map(make_line, range(LINES))), encoding="utf-8")
    with connect(wrap(node.server_command("filesystem", str(folder)))) as peer:
        descriptor = peer.call("read_text_file", path=str(path))
        handle, size = descriptor["output_handle"], path.stat().st_size
        check(descriptor["size_bytes"] == size > 5_000_000, f"{descriptor['size_bytes']} of {size} bytes are stored")
        page = peer.call("output_fetch", output_handle=handle, offset=LINE_NUMBER, limit=1, format="lines")
        check(page["content"] == make_line(LINE_NUMBER), f"line {LINE_NUMBER} is {page['content']}")
        found = peer.call("output_search", output_handle=handle, pattern=f"{LINE_NUMBER:06} naïve")
        check([match["line"] for match in found["matches"]] == [LINE_NUMBER], f"{found['matches']} are found")
        check(fetch_text(peer, handle).encode() == path.read_bytes(), "the pages are not the file")
    return f"{size} bytes, a line of them, a match, and all of them"


def write_by_reference(node: Node, wrap: Wrap, folder: Path) -> str:
    path, copy, written = folder / "source.log", folder / "copy.log", folder / "written.log"
    path.write_text("".join(map(make_line, range(LINES))), encoding="utf-8")
    server = node.server_command("filesystem", str(folder))
    with connect(wrap(server, "--file-refs", "--file-root", str(folder))) as peer:
        handle = peer.call("read_text_file", path=str(path))["output_handle"]
        for target, content in ((copy, {"$handle": handle}), (written, {"$file": str(path)})):
            result = json.loads(
                peer.request(
                    "tools/call", {"name": "write_file", "arguments": {"path": str(target), "content": content}}
                )
            )["result"]
            check(not result.get("isError"), str(result)[:300])
    hashes = {hashlib.sha256(file.read_bytes()).hexdigest() for file in (path, copy, written)}
    check(len(hashes) == 1, "what was written is not what was read")
    return f"{path.stat().st_size} bytes, by $handle and by $file, and no byte is another"


def read_large_graph(node: Node, wrap: Wrap, folder: Path) -> str:
    entities = [
        {"name": f"n{n}", "entityType": "thing", "observations": [make_line(n)] * 3} for n in range(ENTITY_COUNT)
    ]
    server = ["env", f"MEMORY_FILE_PATH={folder / 'graph.jsonl'}", *node.server_command("memory")]
    with connect(wrap(server)) as peer:
        peer.request("tools/call", {"name": "create_entities", "arguments": {"entities": entities}})
        descriptor = peer.call("read_graph")
        handle, items = descriptor["output_handle"], []
        check(descriptor["item_count"] == ENTITY_COUNT, f"{descriptor['item_count']} entities are counted")
        offset: int | None = 0
        while offset is not None:
            page = peer.call("output_fetch", output_handle=handle, offset=offset)
            items += page["content"]
            offset = page["next_offset"]
    check(items == entities, "the pages are not the graph")
    return f"{descriptor['size_bytes']} bytes of {ENTITY_COUNT} entities, each of them in the pages"


def read_picture(node: Node, wrap: Wrap, folder: Path) -> str:
    picture = bytes(range(256)) * 1000
    (folder / "picture.png").write_bytes(picture)
    with connect(wrap(node.server_command("filesystem", str(folder)))) as peer:
        descriptor = peer.call("read_media_file", path=str(folder / "picture.png"))
        # The server repeats the block in its structured content, so the whole result is stored as JSON.
        data = base64.b64decode(fetch_text(peer, descriptor["output_handle"], path="/content/0/data"))
    check(data == picture, f"{len(data)} bytes are not the picture's {len(picture)}")
    return f"{len(picture)} bytes in {descriptor['size_bytes']} of JSON"


def store_annotated_message(node: Node, wrap: Wrap, _folder: Path) -> str:
    with connect(wrap(node.server_command("everything", "stdio"), "--output-mode", "handle")) as peer:
        params = {"name": "get-annotated-message", "arguments": {"messageType": "error"}}
        result: dict[str, Any] = json.loads(peer.request("tools/call", params))["result"]
        descriptor = json.loads(result["content"][0]["text"])
        text = peer.call("output_fetch", output_handle=descriptor["output_handle"])["content"]
    check(text == "Error: Operation failed", f"it says {text!r}")
    annotations = result["content"][0].get("annotations")
    check(annotations == {"priority": 1, "audience": ["user", "assistant"]}, f"the annotations are {annotations}")
    return "the text is stored, and its annotations are the descriptor's"


USES = {
    "filesystem: a file of 5 MB is a handle": read_large_file,
    "filesystem: it is written again by reference": write_by_reference,
    "filesystem: a picture is a handle": read_picture,
    "memory: a graph that outgrows the limit": read_large_graph,
    "everything: a message with annotations": store_annotated_message,
}
