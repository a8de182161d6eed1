"""The configuration examples of clients work: forebay reads them, and the servers in them return handles and pages."""

import asyncio
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from clients.known import CLIENTS as RUN_CLIENTS
from clients.launch import SERVER, Setup
from forebay.config.adopt import adopt_servers, restore_servers
from forebay.config.client_servers import ServerEntry, find_servers, load_client_upstreams
from forebay.config.clients import CLIENTS, identify_client
from forebay.config.documents import parse_document
from forebay.config.upstreams import UpstreamConfig
from mcp import Client, StdioServerParameters
from running import EXAMPLES, free_port
from waiting import wait_until

FOLDER = EXAMPLES / "clients"
FILES = {known.name: path for path in sorted(FOLDER.glob("*/*")) if (known := identify_client(str(path)))}
PLACEHOLDER = "/path/to/forebay/examples"
ADDRESS = "127.0.0.1:8000"

APPROVALS = {"trust", "required", "default_tools_approval_mode"}
"""Keys that `make clients` adds so that no client asks the user."""


@pytest.fixture(params=FILES)
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def read_entry(path: Path, name: str) -> ServerEntry | None:
    document = parse_document(path.read_text(encoding="utf-8"), str(path))
    return next((entry for entry in find_servers(document, str(path)) if entry.name == name), None)


def read_upstreams(client: str, folder: Path, address: str = ADDRESS) -> dict[str, UpstreamConfig]:
    """Return the servers in the file of a client, with the paths and the address of this machine."""
    path = folder / FILES[client].name
    text = FILES[client].read_text(encoding="utf-8").replace(PLACEHOLDER, str(EXAMPLES)).replace(ADDRESS, address)
    path.write_text(text, encoding="utf-8")
    return load_client_upstreams(str(path), {})


async def ask(server: StdioServerParameters | str, era: str) -> dict[str, Any]:
    """Make a call with a large result, and read its last item; return the descriptor."""
    async with Client(server, mode=era) as client:

        async def call(tool: str, **arguments: Any) -> Any:
            return json.loads((await client.call_tool(tool, arguments)).content[0].text)  # type: ignore[union-attr]

        descriptor: dict[str, Any] = await call("network", count=2000)
        page = await call("output_fetch", output_handle=descriptor["output_handle"], offset=1999)
        assert (len(page["content"]), page["total"], page["eof"]) == (1, 2000, True)
        return descriptor


def test_there_is_one_file_for_each_client() -> None:
    assert sorted(FILES) == sorted(client.name for client in CLIENTS)
    folders = [path.parent.name for path in FOLDER.glob("*/*")]
    assert sorted(folders) == sorted({path.parent.name for path in FILES.values()})


def test_the_page_names_each_file() -> None:
    rows = (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    for name, path in FILES.items():
        link = f"[`{path.name}`]({path.relative_to(FOLDER)})"
        assert [row for row in rows if row.startswith(f"| {name} | {link} |")], name


def test_the_file_is_what_adopt_writes(client: str) -> None:
    path = FILES[client]
    (knows_tool_names,) = (each.knows_tool_names for each in CLIENTS if each.name == client)
    text = path.read_text(encoding="utf-8")
    restored = restore_servers(text, str(path), [SERVER])
    assert restored.changed_servers
    adopted = adopt_servers(restored.text, str(path), ["forebay"], [], [SERVER], add_server_names=knows_tool_names)
    before, after = (parse_document(version, str(path)).root.to_python() for version in (text, adopted.text))
    assert after == before


def test_the_entry_is_the_one_that_the_run_of_real_clients_uses(tmp_path: Path) -> None:
    compared = set()
    for number, client in enumerate(RUN_CLIENTS):
        name = client.name.removesuffix(" with code")
        entry = read_entry(FILES[name], SERVER)
        assert entry is not None
        launch, home = entry.to_launch_config(), tmp_path / str(number)
        client.configure(Setup(home, "http://127.0.0.1:1", [launch["command"], *launch["args"]]))
        (used,) = filter(None, (read_entry(path, SERVER) for path in find_configurations(home)))
        values = {key: value for key, value in used.entry.to_python().items() if key not in APPROVALS}
        assert values == entry.entry.to_python()
        compared.add(name)
    assert compared == {"Claude Code", "Codex", "Gemini CLI", "opencode", "Qwen Code", "Copilot CLI", "Cline"}


def find_configurations(home: Path) -> list[Path]:
    """Return the files below a folder that name the server."""
    return [path for path in home.rglob("*") if path.is_file() and SERVER in path.read_text(encoding="utf-8")]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "FOREBAY_HOME": str(tmp_path_factory.mktemp("home"))}


@pytest.fixture(scope="module")
def start_command(environment: dict[str, str]) -> Callable[..., dict[str, Any]]:
    """Return a function that starts a command and asks its server. It starts the same command once."""

    @cache
    def start(command: str, args: tuple[str, ...], era: str) -> dict[str, Any]:
        return asyncio.run(ask(StdioServerParameters(command=command, args=[*args], env=environment), era))

    return start


@pytest.mark.slow
def test_the_server_behind_forebay_returns_a_handle(
    client: str, era: str, tmp_path: Path, start_command: Callable[..., dict[str, Any]]
) -> None:
    upstream = read_upstreams(client, tmp_path)[SERVER]
    assert not upstream.env
    assert start_command(upstream.command, upstream.args, era)["item_count"] == 2000


@pytest.fixture(scope="module")
def address(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `forebay serve` with the configuration of the examples."""
    config = tmp_path_factory.mktemp("serve") / "forebay.toml"
    text = (FOLDER / "forebay.toml").read_text(encoding="utf-8")
    config.write_text(text.replace(PLACEHOLDER, str(EXAMPLES)), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "forebay", "serve", "--config", str(config), "--http", address]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        try:
            wait_until(lambda: is_ready(address) or process.poll() is not None, 60)
            yield address
        finally:
            process.terminate()


def is_ready(address: str) -> bool:
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@pytest.fixture(scope="module")
def visit() -> Callable[..., dict[str, Any]]:
    """Return a function that asks the server at a URL. It asks the same URL once."""
    return cache(lambda url, era: asyncio.run(ask(url, era)))


@pytest.mark.slow
def test_the_running_gateway_returns_a_handle(
    client: str, era: str, tmp_path: Path, address: str, visit: Callable[..., dict[str, Any]]
) -> None:
    upstreams = read_upstreams(client, tmp_path, address)
    if client == "Claude Desktop":
        # It takes no URLs in its file.
        assert [*upstreams] == [SERVER]
        return
    assert not upstreams["forebay"].headers
    assert visit(upstreams["forebay"].url, era)["item_count"] == 2000
