"""Check that an installed forebay works: call every function once, without pytest, outside the source tree."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import forebay

RECORDS = [{"id": n, "name": f"naïve {n}", "tags": ["a", "b"]} for n in range(100)]
DOCUMENT = json.dumps({"items": RECORDS, "count": 100}, ensure_ascii=False).encode()
LOG = "".join(f"{n} ERROR request failed in {n} ms\n" for n in range(100))

CHECKS: list[Callable[[], bool]] = []


def check(function: Callable[[], bool]) -> Callable[[], bool]:
    CHECKS.append(function)
    return function


@check
def imported_from_where_it_was_installed() -> bool:
    return "site-packages" in Path(forebay.__file__).parts


SERVER = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    answer = {"content": [{"type": "text", "text": "x" * 100_000}]}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer}), flush=True)
"""


@check
def gateway() -> bool:
    """Wrap a small server with `forebay wrap`."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x"}}
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["wrap", "--store", Path(folder).as_uri(), "--", sys.executable, "-c", SERVER]
        command = [sys.executable, "-m", "forebay", *arguments]
        process = subprocess.run(command, input=json.dumps(call), capture_output=True, text=True, check=True)
    descriptor = json.loads(json.loads(process.stdout)["result"]["content"][0]["text"])
    return bool(descriptor["size_bytes"] == 100_000)


@check
def index_items() -> bool:
    index = forebay.index_items(DOCUMENT)
    return (len(index), index.path, index.kind) == (100, "/items", "array")


@check
def index_items_trusted() -> bool:
    return forebay.index_items(DOCUMENT, validate=False) == forebay.index_items(DOCUMENT)


@check
def index_lines() -> bool:
    return len(forebay.index_lines(LOG)) == 100


@check
def indexer() -> bool:
    pieces = forebay.ItemIndexer()
    pieces.feed(DOCUMENT[:1000])
    pieces.feed(DOCUMENT[1000:])
    return pieces.finish() == forebay.index_items(DOCUMENT)


@check
def index_survives_storage() -> bool:
    index = forebay.index_items(DOCUMENT)
    return forebay.ItemIndex.from_bytes(index.to_bytes()) == index


@check
def read_items() -> bool:
    page = forebay.read_items(DOCUMENT, forebay.index_items(DOCUMENT), 50, 10)
    return json.loads(page.content) == RECORDS[50:60] and page.next_offset == 60


@check
def read_text() -> bool:
    return forebay.read_text(LOG, 0, 10).text == LOG[:10]


@check
def read_lines() -> bool:
    return forebay.read_lines(LOG, 98).text == "".join(LOG.splitlines(keepends=True)[98:])


@check
def preview() -> bool:
    text = forebay.preview(DOCUMENT, 100)
    return text is not None and DOCUMENT.startswith(text.encode()) and len(text.encode()) <= 100


@check
def truncate() -> bool:
    return bool(json.loads(forebay.truncate(DOCUMENT))["items"]["totalCount"] == 100)


@check
def truncate_lines() -> bool:
    text = forebay.truncate_lines(LOG, 2, 2)
    return text.startswith(LOG[:20]) and LOG.rstrip().endswith(text.rstrip()[-20:])


@check
def outline() -> bool:
    return "×100" in forebay.outline(DOCUMENT)


@check
def get() -> bool:
    return bool(json.loads(forebay.get(DOCUMENT, "/items/7/name")) == "naïve 7")


@check
def locate() -> bool:
    start, end = forebay.locate(DOCUMENT, "/count")
    return DOCUMENT[start:end] == b"100"


@check
def project() -> bool:
    return bool(json.loads(forebay.project(json.dumps(RECORDS), ["id"])) == [{"id": n} for n in range(100)])


@check
def search() -> bool:
    matches = forebay.search(LOG, "99 ms").matches
    return [match.line for match in matches] == [99]


@check
def search_by_expression() -> bool:
    return len(forebay.search(LOG, r"in \d ms", regex=True).matches) == 10


@check
def store() -> bool:
    with tempfile.TemporaryDirectory() as folder, forebay.open_store(f"file://{folder}/store") as opened:
        handle = opened.put(DOCUMENT).output_handle
        page = opened.fetch(handle, offset=50, limit=10)
        return json.loads(page.content) == RECORDS[50:60] and opened.open(handle).read() == DOCUMENT


@check
def command() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        run = [str(Path(sys.executable).with_name("forebay")), "put", "-", "--store", f"file://{folder}/store"]
        answer = subprocess.run(run, input=DOCUMENT, capture_output=True, check=True, timeout=60).stdout
        return bool(json.loads(answer)["item_count"] == 100)


@check
def server() -> bool:
    import asyncio

    from forebay.adapters.mcp import Forebay
    from mcp import Client
    from mcp.server import MCPServer

    mcp_server = MCPServer("smoke")

    @mcp_server.tool(structured_output=False)
    def records() -> str:
        return DOCUMENT.decode() * 10

    async def call(opened: forebay.Store) -> bool:
        Forebay(opened, output_mode="auto").install(mcp_server)
        async with Client(mcp_server) as client:
            result = await client.call_tool("records", {})
        descriptor = json.loads(result.content[0].text)  # type: ignore[union-attr]
        return opened.open(descriptor["output_handle"]).read() == DOCUMENT * 10

    with tempfile.TemporaryDirectory() as folder, forebay.open_store(f"file://{folder}/store") as opened:
        return asyncio.run(call(opened))


@check
def errors() -> bool:
    try:
        forebay.index_items(b"[1, 2")
    except forebay.InvalidJSON as error:
        return error.index == 5
    return False


def main() -> int:
    failed = 0
    for function in CHECKS:
        try:
            outcome = "ok" if function() else "wrong answer"
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
        if outcome != "ok":
            failed += 1
            print(f"{function.__name__}: {outcome}")
    print(f"smoke: {len(CHECKS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
