"""Real servers behind the gateway in use: what is large is a handle, is read on from there, and is handed on."""

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conformance import Node
from peer import Peer, talking
from scenarios import check

__all__ = ["USES"]

LINES = 70_000
WANTED = 43_210
PAGE = 1000

Wrap = Callable[..., list[str]]


def line(number: int) -> str:
    return f'{number:06} naïve 😀 "quoted" \\ back, and what a log has more of such a line\n'


def all_text(peer: Peer, handle: str, **of: str) -> str:
    """Every page of what is stored, or of a part of it."""
    text, offset = "", 0
    while offset is not None:
        page = peer.call("output_fetch", output_handle=handle, offset=offset, format="text", **of)
        text += page["content"]
        offset = page["next_offset"]
    return text


def reads_a_large_file(node: Node, wrap: Wrap, folder: Path) -> str:
    path = folder / "large.log"
    path.write_text("".join(map(line, range(LINES))), encoding="utf-8")
    with talking(wrap(node.command("filesystem", str(folder)))) as peer:
        descriptor = peer.call("read_text_file", path=str(path))
        handle, size = descriptor["output_handle"], path.stat().st_size
        check(descriptor["size_bytes"] == size > 5_000_000, f"{descriptor['size_bytes']} of {size} bytes are stored")
        page = peer.call("output_fetch", output_handle=handle, offset=WANTED, limit=1, format="lines")
        check(page["content"] == line(WANTED), f"line {WANTED} is {page['content']}")
        found = peer.call("output_search", output_handle=handle, pattern=f"{WANTED:06} naïve")
        check([match["line"] for match in found["matches"]] == [WANTED], f"{found['matches']} are found")
        check(all_text(peer, handle).encode() == path.read_bytes(), "the pages are not the file")
    return f"{size} bytes, a line of them, a match, and all of them"


def hands_it_on(node: Node, wrap: Wrap, folder: Path) -> str:
    path, copy, written = folder / "source.log", folder / "copy.log", folder / "written.log"
    path.write_text("".join(map(line, range(LINES))), encoding="utf-8")
    server = node.command("filesystem", str(folder))
    with talking(wrap(server, "--file-refs", "--file-root", str(folder))) as peer:
        handle = peer.call("read_text_file", path=str(path))["output_handle"]
        for target, content in ((copy, {"$handle": handle}), (written, {"$file": str(path)})):
            result = json.loads(
                peer.ask("tools/call", {"name": "write_file", "arguments": {"path": str(target), "content": content}})
            )["result"]
            check(not result.get("isError"), str(result)[:300])
    hashes = {hashlib.sha256(one.read_bytes()).hexdigest() for one in (path, copy, written)}
    check(len(hashes) == 1, "what was written is not what was read")
    return f"{path.stat().st_size} bytes, by $handle and by $file, and no byte is another"


def outgrows_the_limit(node: Node, wrap: Wrap, folder: Path) -> str:
    entities = [{"name": f"n{n}", "entityType": "thing", "observations": [line(n)] * 3} for n in range(PAGE)]
    server = ["env", f"MEMORY_FILE_PATH={folder / 'graph.jsonl'}", *node.command("memory")]
    with talking(wrap(server)) as peer:
        peer.ask("tools/call", {"name": "create_entities", "arguments": {"entities": entities}})
        descriptor = peer.call("read_graph")
        handle, items = descriptor["output_handle"], []
        check(descriptor["item_count"] == PAGE, f"{descriptor['item_count']} entities are counted")
        offset: int | None = 0
        while offset is not None:
            page = peer.call("output_fetch", output_handle=handle, offset=offset)
            items += page["content"]
            offset = page["next_offset"]
    check(items == entities, "the pages are not the graph")
    return f"{descriptor['size_bytes']} bytes of {PAGE} entities, each of them in the pages"


def keeps_pictures(node: Node, wrap: Wrap, folder: Path) -> str:
    picture = bytes(range(256)) * 1000
    (folder / "picture.png").write_bytes(picture)
    with talking(wrap(node.command("filesystem", str(folder)))) as peer:
        descriptor = peer.call("read_media_file", path=str(folder / "picture.png"))
        # The server has the block once more under what is structured, so that both are kept, as JSON.
        data = base64.b64decode(all_text(peer, descriptor["output_handle"], path="/content/0/data"))
    check(data == picture, f"{len(data)} bytes are not the picture's {len(picture)}")
    return f"{len(picture)} bytes in {descriptor['size_bytes']} of JSON"


def keeps_annotations(node: Node, wrap: Wrap, _folder: Path) -> str:
    with talking(wrap(node.command("everything", "stdio"), "--output-mode", "handle")) as peer:
        asked = {"name": "get-annotated-message", "arguments": {"messageType": "error"}}
        result: dict[str, Any] = json.loads(peer.ask("tools/call", asked))["result"]
        descriptor = json.loads(result["content"][0]["text"])
        said = peer.call("output_fetch", output_handle=descriptor["output_handle"])["content"]
    check(said == "Error: Operation failed", f"it says {said!r}")
    annotations = result["content"][0].get("annotations")
    check(annotations == {"priority": 1, "audience": ["user", "assistant"]}, f"the annotations are {annotations}")
    return "the text is stored, and its annotations are the descriptor's"


USES = {
    "filesystem: a file of 5 MB is a handle": reads_a_large_file,
    "filesystem: it is written again by reference": hands_it_on,
    "filesystem: a picture is a handle": keeps_pictures,
    "memory: a graph that outgrows the limit": outgrows_the_limit,
    "everything: a message with annotations": keeps_annotations,
}
