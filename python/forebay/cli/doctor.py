"""The command `doctor`. Its docstring is its `--help`."""

import os
import sys
from argparse import Namespace

from forebay.cli import output
from forebay.errors import InvalidArgument

__all__ = ["doctor"]

_MAX_TIMEOUT_SECONDS = 3600


def doctor(args: Namespace) -> None:
    """Check the MCP servers of clients.

    Starts each server as its client would, and lists its tools. Reports servers
    that cannot be reached or start too slowly for their client, and whatever
    prevents a client from reading handles: an allow-list that lacks forebay's
    tools, a server behind forebay twice, servers of one client with different
    stores, a store that cannot be written. The exit code is 1 if there are
    problems. Servers in the project files of this folder are started only if you
    name the file, or with --trust-project.

    A PATH may also be the address of a store, such as s3://bucket/prefix. Then
    doctor checks that it can be used and, on S3, that the lifecycle rules of its
    bucket fit it.
    """
    # Imported here, so that other commands start quickly.
    from pathlib import Path

    from forebay.cli.server_checks import check_files, describe_store
    from forebay.config.clients import CLIENTS, ClientFile, find_client_files, identify_client

    if not 0 < args.timeout <= _MAX_TIMEOUT_SECONDS:
        raise InvalidArgument(f"--timeout must be more than 0 and at most {_MAX_TIMEOUT_SECONDS} seconds")
    known_files = find_client_files(os.environ, Path.cwd())
    addresses = [path for path in args.paths if "://" in path]
    named_files = [ClientFile(Path(path), identify_client(path)) for path in args.paths if path not in addresses]
    rows = [describe_store(address) for address in addresses]
    if named_files or not addresses:
        rows += check_files(
            named_files or [file for file in known_files if file.has_servers],
            [file for file in known_files if not file.has_servers],
            timeout=args.timeout,
            starts_project_servers=args.trust_project,
            requires_servers=bool(named_files),
        )
    output.print_checks(
        rows,
        if_none=f"no servers in the files of {len(CLIENTS)} clients, in your home and in this folder; "
        "`forebay doctor PATH` checks another file",
    )
    if any(row["problems"] for row in rows):
        sys.exit(1)
