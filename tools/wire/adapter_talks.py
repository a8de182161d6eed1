"""Conversations with servers that have the package in process: the mcp SDK and fastmcp, over stdio."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wire.talk import MODERN, NEWEST_HANDSHAKE, Message, StdioClient, Talk, handle_of

SCRIPT = Path(__file__).with_name("adapter_server.py")
ERAS = (NEWEST_HANDSHAKE, MODERN)
LARGE: dict[str, Message] = {
    "rows": {"count": 2000},
    "text": {"size": 60_000},
    "json_text": {"count": 2000},
    "image": {},
    "blob": {},
    "several": {"size": 20_000},
    "failing": {"size": 60_000},
    "with_meta": {"size": 60_000},
}


@contextlib.contextmanager
def running(talk: Talk, kind: str, era: str, options: Message | None) -> Iterator[StdioClient]:
    """Run a server with the adapter, and yield an initialized client."""
    if options is not None:
        options = {"store": talk.store, **options}
    command = [talk.build.python, str(SCRIPT), talk.build.name, kind, json.dumps(options)]
    with talk.stdio(command, era=era) as client:
        client.initialize()
        yield client


def use(client: StdioClient, era: str) -> None:
    """Call every tool with small and large results, read pages, and request things that do not exist."""
    client.ask("tools/list", None, f"tools/list, {era}")
    for tool in LARGE:
        arguments = {"repeat": 0} if tool == "image" else {}
        if tool != "blob":
            client.call(tool, f"small {tool}, {era}", **arguments)
    client.call("breaking", f"breaking, {era}")
    client.call("rows", f"wrong arguments, {era}", count="many")
    client.call("no_such_tool", f"unknown tool, {era}")
    client.call("bug_list", f"contracted, {era}")
    client.call("bug_list", f"large and contracted, {era}", count=2000)
    handles = {tool: handle_of(client.call(tool, f"large {tool}, {era}", **LARGE[tool])) for tool in LARGE}
    pages: list[tuple[str, Message]] = [
        ("rows", {"limit": 2}),
        ("rows", {"offset": 1999, "fields": ["id"]}),
        ("rows", {"path": "/result/5"}),
        ("json_text", {"limit": 2, "offset": 7}),
        ("json_text", {"path": "/count"}),
        ("text", {"limit": 20}),
        ("text", {"format": "bytes", "limit": 20}),
        ("image", {"limit": 20}),
        ("blob", {"offset": 100, "limit": 20}),
        ("several", {"format": "text", "limit": 40}),
        ("failing", {"limit": 20}),
        ("rows", {"format": "xml"}),
        ("rows", {"path": "/none"}),
        ("rows", {"limit": 0}),
        ("text", {"format": "items"}),
        ("image", {"format": "text"}),
        ("rows", {"unknown": 1}),
    ]
    for number, (tool, arguments) in enumerate(pages):
        client.call("output_fetch", f"page {number}, {era}", output_handle=handles[tool], **arguments)
    client.call("output_fetch", f"unknown handle, {era}", output_handle="oh_AAAAAAAAAAAA")
    client.call("output_fetch", f"no handle, {era}")
    client.call("output_search", f"search, {era}", output_handle=handles["rows"], pattern="naïve 1999")
    client.call(
        "output_search", f"regex, {era}", output_handle=handles["rows"], pattern="naïve 7.", regex=True, limit=1
    )
    client.call("output_search", f"wrong regex, {era}", output_handle=handles["rows"], pattern="(", regex=True)
    scheme = f"{client.talk.build.name}://output/"
    client.ask("resources/list", None, f"resources/list, {era}")
    client.ask("resources/templates/list", None, f"resources/templates/list, {era}")
    for name, uri in {
        "stored output": f"{scheme}{handles['rows']}?limit=2",
        "stored bytes": f"{scheme}{handles['image']}?limit=12",
        "what is not stored": f"{scheme}oh_AAAAAAAAAAAA",
        "wrong address": f"{scheme}{handles['rows']}?limit=x",
        "a resource": "wire://one",
        "no resource": "wire://none/such",
    }.items():
        client.ask("resources/read", {"uri": uri}, f"read {name}, {era}")
    client.ask("no/such", None, f"unknown method, {era}")


def adapter_auto(talk: Talk, kind: str) -> None:
    for era in ERAS:
        with running(talk, kind, era, {"output_mode": "auto", "image_mode": "auto"}) as client:
            use(client, era)
            if kind == "mcp":
                progress = {"name": "progress", "arguments": {}, "_meta": {"progressToken": "p"}}
                client.ask("tools/call", progress, f"progress, {era}")


def adapter_options(talk: Talk, kind: str, era: str) -> None:
    """Options of the adapter, and the errors that need them."""
    options: Message = {"output_mode": "auto", "prefix": "oc_", "journal": True, "per_call": True, "handle_length": 26}
    with running(talk, kind, era, None) as client:
        client.ask("tools/list", None, "tools/list without the adapter")
        client.call("text", "text without the adapter", size=60_000)
    with running(talk, kind, era, {}) as client:
        client.ask("tools/list", None, "tools/list by default")
        client.call("rows", "large rows by default", count=2000)
    with running(talk, kind, era, options) as client:
        client.ask("tools/list", None, "tools/list with options")
        handle = handle_of(client.call("text", "handle asked for", output_mode="handle"))
        client.call("text", "inline asked for", size=60_000, output_mode="inline")
        client.call("text", "wrong mode asked for", output_mode="x")
        client.call("oc_output_fetch", "page with a prefix", output_handle=handle)
        client.call("oc_journal", "journal", count=3)
        client.call("oc_journal", "journal summary", action="summary")
    with running(talk, kind, era, {"contract": True}) as client:
        client.ask("tools/list", None, "tools/list by contract")
        for tool, arguments in LARGE.items():
            client.call(tool, f"{tool} by contract", **arguments)
        client.call("rows", "small rows by contract")
        client.call("bug_list", "contracted in a contract", count=500)
    filters = {"capabilities": {"fail*": "admin"}, "disable_tools": ["admin"], "hidden_tools": ["image", "blob"]}
    with running(talk, kind, era, {"output_mode": "auto", **filters}) as client:
        client.ask("tools/list", None, "filtered list")
        client.call("failing", "switched off")
        client.call("expand_tools", "hidden names")
        client.call("expand_tools", "expand", names=["blob"])
        client.call("expand_tools", "expand what is switched off", names=["failing"])
        client.ask("tools/list", None, "expanded list")
    note = talk.file("files/note.txt", "one\ntwo\n")
    references = {"file_refs": True, "file_roots": [str(note.parent)], "file_ref_max_bytes": 100}
    with running(talk, kind, era, {"output_mode": "auto", **references}) as client:
        client.call("echo", "file", value={"$file": str(note), "lines": [1, 2]})
        client.call("echo", "file denied", value={"$file": "/etc/hostname"})
        client.call("echo", "file missing", value={"$file": str(note.parent / "none")})
        handle = handle_of(client.call("json_text", "rows to refer to", count=2000))
        client.call("echo", "value of a handle", value={"$handle": handle, "path": "/items/3"})
        client.call("echo", "too large", value={"$handle": handle})
    failures: dict[str, Message] = {
        "redaction that fails": {"redact": "fail"},
        "full store": {talk.build.option("quota_bytes"): 1000},
        "store for one principal": {talk.build.option("principal_quota_bytes"): 1000},
    }
    for name, failing in failures.items():
        with running(talk, kind, era, {"output_mode": "auto", **failing}) as client:
            client.call("rows", name, count=2000)
            client.call("image", f"{name}, image")


def adapter_lowlevel(talk: Talk) -> None:
    for era in ERAS:
        with running(talk, "lowlevel", era, {"output_mode": "auto", "journal": True}) as client:
            client.ask("tools/list", None, f"tools/list, {era}")
            for tool in ("rows", "text", "blocks", "failing"):
                client.call(tool, f"small {tool}, {era}")
                count = {"rows": 2000, "text": 9000, "blocks": 3000, "failing": 60_000}[tool]
                handle = handle_of(client.call(tool, f"large {tool}, {era}", count=count))
                client.call("output_fetch", f"page of {tool}, {era}", output_handle=handle, limit=5)
            client.call("journal", f"journal summary, {era}", action="summary")
            client.ask("resources/templates/list", None, f"resources/templates/list, {era}")
            client.ask("resources/list", None, f"resources/list, {era}")
        with running(talk, "lowlevel", era, {"contract": True}) as client:
            client.ask("tools/list", None, f"tools/list by contract, {era}")
            client.call("rows", f"rows by contract, {era}", count=2000)


def adapter_mcp(talk: Talk) -> None:
    adapter_auto(talk, "mcp")


def adapter_fastmcp(talk: Talk) -> None:
    adapter_auto(talk, "fastmcp")


def adapter_mcp_options(talk: Talk) -> None:
    adapter_options(talk, "mcp", MODERN)


def adapter_fastmcp_options(talk: Talk) -> None:
    adapter_options(talk, "fastmcp", NEWEST_HANDSHAKE)


ADAPTERS: dict[str, Any] = {
    "adapter mcp": adapter_mcp,
    "adapter mcp options": adapter_mcp_options,
    "adapter lowlevel": adapter_lowlevel,
    "adapter fastmcp": adapter_fastmcp,
    "adapter fastmcp options": adapter_fastmcp_options,
}
