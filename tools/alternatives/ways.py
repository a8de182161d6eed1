"""Ways for a large result to reach a model: directly, with a library in the server, or through a gateway."""

import dataclasses
import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alternatives.client import Client, Reply
from alternatives.orders import COUNT, NUMBER, QUESTION_SQL

__all__ = ["WAYS", "Session", "Way", "Workspace"]

SERVER = Path(__file__).with_name("server.py")

PAGE_ORDERS = 90
"""Number of orders on a page, where the client chooses it: about 30 KB."""


@dataclasses.dataclass(frozen=True)
class Workspace:
    """The interpreter and the folder with which a way runs."""

    python: Path
    """The interpreter of the way's environment."""
    folder: Path
    """An empty folder for this run."""


@dataclasses.dataclass(frozen=True)
class Session:
    """A client that has called the tool, and the first response."""

    client: Client
    first: Reply


class Way(ABC):
    """One way: how to start it, and how a model reads the result through it."""

    name: str
    package: str
    """The installed package whose version the table shows."""
    environment = ""
    """The folder of the Python environment with the package; empty for the environment of this project."""
    setup: str
    """How the package is configured, for the table."""

    server = "plain"
    """The kind of server that `server.py` starts."""

    def command(self, workspace: Workspace) -> list[str]:
        """Return the command that a client starts."""
        return [str(workspace.python), str(SERVER), self.server]

    def start(self, client: Client) -> Reply:
        """Call the tool with the large result."""
        return client.call("list_orders")

    @abstractmethod
    def read_order(self, session: Session) -> str:
        """Return the text that should contain order `NUMBER`."""

    @abstractmethod
    def read_all(self, session: Session) -> Iterator[dict[str, Any]]:
        """Yield every order that can be read."""

    has_queries = False
    """Whether the model can send a query. Otherwise it has to read everything."""

    def ask(self, session: Session) -> int:
        """Return the answer to the question."""
        raise NotImplementedError(f"{self.name} has no queries")


class Direct(Way):
    name = "no gateway"
    package = "mcp"
    setup = "a server of the official SDK"

    def read_order(self, session: Session) -> str:
        return session.first.text

    def read_all(self, session: Session) -> Iterator[dict[str, Any]]:
        yield from json.loads(session.first.text)["orders"]


class Limited(Way):
    name = "fastmcp, `ResponseLimitingMiddleware`"
    package = "fastmcp"
    environment = "sdk-2"
    server = "limited"
    setup = "`max_size=32_768`, the size up to which forebay sends results inline"

    def read_order(self, session: Session) -> str:
        return session.first.text

    def read_all(self, session: Session) -> Iterator[dict[str, Any]]:
        lines = session.first.text.split("\n")[1:]
        yield from (json.loads(line.removesuffix(",")) for line in lines if line.endswith("},"))


class Pager(Way):
    name = "mcp-pager"
    package = "mcp-pager"
    environment = "sdk-1"
    server = "pager"
    setup = "defaults: pages of 4,000 tokens, in memory for ten minutes"

    def read_order(self, session: Session) -> str:
        seen = 0
        for reply in self._walk(session):
            seen += len(json.loads(reply.text)["orders"])
            if seen > NUMBER:
                return reply.text
        return ""

    def read_all(self, session: Session) -> Iterator[dict[str, Any]]:
        for reply in self._walk(session):
            yield from json.loads(reply.text)["orders"]

    def _walk(self, session: Session) -> Iterator[Reply]:
        reply = session.first
        while True:
            yield reply
            cursor = re.search(r'"nextCursor": "([^"]+)"', reply.blocks[-1])
            if cursor is None:
                return
            reply = session.client.call("get_next_page", cursor=cursor[1])


class RefCache(Way):
    name = "mcp-refcache"
    package = "mcp-refcache"
    environment = "sdk-2"
    server = "refcache"
    setup = "previews as pages; the tool returns the bare list, because only lists and maps are paged"

    def read_order(self, session: Session) -> str:
        return self._fetch(session, page=NUMBER + 1, page_size=1).text

    def read_all(self, session: Session) -> Iterator[dict[str, Any]]:
        # All orders in one call, as the documentation of mcp-refcache advises. Pages of 20 orders would be 3,000 calls.
        yield from json.loads(self._fetch(session, full=True).text)["value"]

    def _fetch(self, session: Session, **arguments: Any) -> Reply:
        return session.client.call("get_cached_result", ref_id=json.loads(session.first.text)["ref_id"], **arguments)


class ContextWeaver(Way):
    name = "contextweaver gateway"
    package = "contextweaver"
    environment = "sdk-1"
    setup = "`mcp serve --config` with one upstream; read by lines, because each order is on a line of its own"

    def command(self, workspace: Workspace) -> list[str]:
        upstream = {"type": "stdio", "command": sys.executable, "args": [str(SERVER), "plain"]}
        config = workspace.folder / "gateway.json"
        config.write_text(json.dumps({"upstreams": {"orders": upstream}, "quiet": True}), encoding="utf-8")
        return [str(workspace.python.with_name("contextweaver")), "mcp", "serve", "--config", str(config)]

    def start(self, client: Client) -> Reply:
        cards = json.loads(client.call("tool_browse", query="list orders").text)
        return client.call("tool_execute", tool_id=cards[0]["id"], args={})

    def read_order(self, session: Session) -> str:
        return self._view(session, NUMBER, NUMBER + 1).text

    def read_all(self, session: Session) -> Iterator[dict[str, Any]]:
        for start in range(0, COUNT, PAGE_ORDERS):
            text = self._view(session, start, min(start + PAGE_ORDERS, COUNT)).text
            yield from (json.loads(line.removesuffix(",")) for line in text.split("\n"))

    def _view(self, session: Session, start: int, end: int) -> Reply:
        """Read orders by their lines. Line 0 of the payload has the fields before the orders."""
        handle = json.loads(session.first.text)["artifacts"][0]["handle"]
        return session.client.call(
            "tool_view", handle=handle, selector={"type": "lines", "start": start + 1, "end": end + 1}
        )


class Forebay(Way):
    name = "**forebay wrap**"
    package = "forebay"
    setup = "defaults, with the extra `sql`"
    has_queries = True

    def command(self, workspace: Workspace) -> list[str]:
        gateway = [str(workspace.python), "-m", "forebay", "wrap", "--store", (workspace.folder / "store").as_uri()]
        return [*gateway, "--", *super().command(workspace)]

    def read_order(self, session: Session) -> str:
        return session.client.call("output_fetch", output_handle=self._handle(session), offset=NUMBER, limit=1).text

    def read_all(self, session: Session) -> Iterator[dict[str, Any]]:
        arguments: dict[str, Any] | None = {"output_handle": self._handle(session)}
        while arguments:
            page = json.loads(session.client.call("output_fetch", **arguments).text)
            yield from page["content"]
            arguments = page.get("next")

    def ask(self, session: Session) -> int:
        rows = json.loads(
            session.client.call("output_query", output_handle=self._handle(session), sql=QUESTION_SQL).text
        )["rows"]
        return int(rows[0][0])

    def _handle(self, session: Session) -> str:
        return str(json.loads(session.first.text)["output_handle"])


WAYS: tuple[Way, ...] = (Direct(), Limited(), Pager(), RefCache(), ContextWeaver(), Forebay())
