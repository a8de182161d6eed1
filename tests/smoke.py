"""Check that an installed forebay works: call every function once, without pytest, outside the source tree.

`python smoke.py` checks an install without extras, and `python smoke.py serve` one with the extra `serve`.
`python smoke.py core` checks only what needs no other package: the functions on bytes, where the store cannot run.
"""

import http.server
import importlib.util
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import forebay

RECORDS = [{"id": n, "name": f"naïve {n}", "tags": ["a", "b"]} for n in range(100)]
DOCUMENT = json.dumps({"items": RECORDS, "count": 100}, ensure_ascii=False).encode()
LOG = "".join(f"{n} ERROR request failed in {n} ms\n" for n in range(100))

Check = Callable[[], bool]
CHECKS: dict[str, list[Check]] = {"core": [], "both": [], "base": [], "serve": []}


def check_core(function: Check) -> Check:
    CHECKS["core"].append(function)
    return function


def check(function: Check) -> Check:
    CHECKS["both"].append(function)
    return function


def check_base(function: Check) -> Check:
    CHECKS["base"].append(function)
    return function


def check_serve(function: Check) -> Check:
    CHECKS["serve"].append(function)
    return function


@check_core
def imported_from_where_it_was_installed() -> bool:
    return "site-packages" in Path(forebay.__file__).parts


def run_forebay(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forebay", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=120)


def wrap(*arguments: str) -> bool:
    """Call a tool of a small server behind `forebay wrap`, and return whether its result became a handle."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x"}}
    with tempfile.TemporaryDirectory() as folder:
        process = run_forebay("wrap", "--store", Path(folder).as_uri(), *arguments, stdin=json.dumps(call))
    descriptor = json.loads(json.loads(process.stdout)["result"]["content"][0]["text"])
    return bool(descriptor["size_bytes"] == 100_000)


SERVER = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    answer = {"content": [{"type": "text", "text": "x" * 100_000}]}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer}), flush=True)
"""


@check
def wrap_command() -> bool:
    return wrap("--", sys.executable, "-c", SERVER)


@check
def app() -> bool:
    """The page of the app is made of files beside the modules."""
    apps = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
    meta = {"io.modelcontextprotocol/clientCapabilities": apps}
    params = {"uri": "ui://forebay/output_fetch", "_meta": meta}
    read = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": params}
    with tempfile.TemporaryDirectory() as folder:
        command = ["wrap", "--store", Path(folder).as_uri(), "--", sys.executable, "-c", SERVER]
        process = run_forebay(*command, stdin=json.dumps(read))
    lines = [json.loads(line) for line in process.stdout.splitlines()]
    (text,) = (line["result"]["contents"][0]["text"] for line in lines if "contents" in line["result"])
    return "createViewer" in text and "ui/initialize" in text


class Handler(http.server.BaseHTTPRequestHandler):
    """An MCP server over HTTP whose only tool returns a large text."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = {"content": [{"type": "text", "text": "x" * 100_000}]}
        body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@check
def wrap_url() -> bool:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            return wrap("--url", f"http://127.0.0.1:{server.server_port}/mcp")
        finally:
            server.shutdown()


@check_base
def no_sdk_is_installed() -> bool:
    return not any(importlib.util.find_spec(name) for name in ("mcp", "mcp_types", "fastmcp", "pydantic", "starlette"))


def run_serve(*requests: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Serve a Python function with `forebay serve`, and send it requests."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "tools.py").write_text("def double(number: int) -> int:\n    return 2 * number\n")
        config = Path(folder, "forebay.toml")
        config.write_text(f'store = "{Path(folder, "store").as_uri()}"\n[upstreams.mine]\npython = "tools"\n')
        return run_forebay(
            "serve", "--config", str(config), stdin="".join(json.dumps(line) + "\n" for line in requests)
        )


@check_base
def serve_names_its_extra() -> bool:
    done = run_serve()
    return done.returncode == 2 and done.stderr.count("\n") == 1 and "pip install 'forebay[serve]'" in done.stderr


@check_base
def dashboard_names_its_extra() -> bool:
    done = run_forebay("dashboard")
    return done.returncode == 2 and done.stderr.count("\n") == 1 and "pip install 'forebay[serve]'" in done.stderr


@check
def scripts_and_styles_of_the_dashboard() -> bool:
    from forebay.dashboard.layout import ASSETS, read_asset

    return all(map(read_asset, ASSETS))


@check_base
def adapters_name_their_extras() -> bool:
    for extra in ("mcp", "fastmcp"):
        try:
            importlib.import_module(f"forebay.adapters.{extra}")
        except forebay.MissingExtra as error:
            if f"pip install 'forebay[{extra}]'" in str(error):
                continue
        return False
    return True


@check_core
def licenses_are_installed() -> bool:
    names = {Path(str(path)).name for path in metadata.files("forebay") or ()}
    return {"LICENSE", "THIRD-PARTY-LICENSES.txt"} <= names and any(name.endswith(".cyclonedx.json") for name in names)


@check_core
def index_items() -> bool:
    index = forebay.index_items(DOCUMENT)
    return (len(index), index.path, index.kind) == (100, "/items", "array")


@check_core
def index_items_trusted() -> bool:
    return forebay.index_items(DOCUMENT, validate=False) == forebay.index_items(DOCUMENT)


@check_core
def index_lines() -> bool:
    return len(forebay.index_lines(LOG)) == 100


@check_core
def indexer() -> bool:
    pieces = forebay.ItemIndexer()
    pieces.feed(DOCUMENT[:1000])
    pieces.feed(DOCUMENT[1000:])
    return pieces.finish() == forebay.index_items(DOCUMENT)


@check_core
def index_survives_storage() -> bool:
    index = forebay.index_items(DOCUMENT)
    return forebay.ItemIndex.from_bytes(index.to_bytes()) == index


@check_core
def read_items() -> bool:
    page = forebay.read_items(DOCUMENT, forebay.index_items(DOCUMENT), 50, 10)
    return json.loads(page.content) == RECORDS[50:60] and page.next_offset == 60


@check_core
def read_text() -> bool:
    return forebay.read_text(LOG, 0, 10).text == LOG[:10]


@check_core
def read_lines() -> bool:
    return forebay.read_lines(LOG, 98).text == "".join(LOG.splitlines(keepends=True)[98:])


@check_core
def preview() -> bool:
    text = forebay.preview(DOCUMENT, 100)
    return text is not None and DOCUMENT.startswith(text.encode()) and len(text.encode()) <= 100


@check_core
def truncate() -> bool:
    return bool(json.loads(forebay.truncate(DOCUMENT))["items"]["totalCount"] == 100)


@check_core
def truncate_lines() -> bool:
    text = forebay.truncate_lines(LOG, 2, 2)
    return text.startswith(LOG[:20]) and LOG.rstrip().endswith(text.rstrip()[-20:])


@check_core
def outline() -> bool:
    return "×100" in forebay.outline(DOCUMENT)


@check_core
def get() -> bool:
    return bool(json.loads(forebay.get(DOCUMENT, "/items/7/name")) == "naïve 7")


@check_core
def locate() -> bool:
    start, end = forebay.locate(DOCUMENT, "/count")
    return DOCUMENT[start:end] == b"100"


@check_core
def project() -> bool:
    return bool(json.loads(forebay.project(json.dumps(RECORDS), ["id"])) == [{"id": n} for n in range(100)])


@check_core
def search() -> bool:
    matches = forebay.search(LOG, "99 ms").matches
    return [match.line for match in matches] == [99]


@check_core
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


@check_serve
def serve() -> bool:
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "smoke", "version": "1"}}
    call = {"name": "double", "arguments": {"number": 21}}
    done = run_serve(
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    )
    results = {answer["id"]: answer["result"] for answer in map(json.loads, done.stdout.splitlines()) if "id" in answer}
    return bool(results[2]["content"][0]["text"] == "42")


@check_serve
def adapter() -> bool:
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


@check_core
def errors() -> bool:
    try:
        forebay.index_items(b"[1, 2")
    except forebay.InvalidJSON as error:
        return error.index == 5
    return False


def main() -> int:
    kind = sys.argv[1] if sys.argv[1:] else "base"
    checks = CHECKS["core"] if kind == "core" else [*CHECKS["core"], *CHECKS["both"], *CHECKS[kind]]
    failed = 0
    for function in checks:
        try:
            outcome = "ok" if function() else "wrong answer"
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
        if outcome != "ok":
            failed += 1
            print(f"{function.__name__}: {outcome}")
    print(f"smoke of {kind}: {len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
