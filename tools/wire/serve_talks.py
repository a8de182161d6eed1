"""Conversations with `serve`: several upstreams of every kind, on stdio and over HTTP, in both eras."""

import contextlib
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wire import api
from wire.http_client import HTTPClient, listening, read_event
from wire.talk import CLIENT, MODERN, NEWEST_HANDSHAKE, Message, StdioClient, Talk, handle_of
from wire.wrap_talks import ALL_CAPABILITIES, LARGE, ROWS, answer_server_requests, fetch_invalid_pages

TOKENS = {name: name + "-" + "t" * 30 for name in ("ann", "bob")}
FILES_TOOLS = ("text", "rows", "structured", "result_list", "blocks", "image", "fails", "refuses", "echo", "annotated")
REMOTE_TOOLS = ("text", "wrapped", "map", "blob", "unicode", "mixed")


def command_upstream(talk: Talk, *arguments: str) -> Message:
    """Return an upstream that is the neutral server on stdio."""
    command = talk.upstream(*arguments)
    env = {"WIRE_TRANSCRIPT": str(talk.transcript), "WIRE_PACKAGE": talk.build.name}
    return {"command": command[0], "args": command[1:], "env": env}


@contextlib.contextmanager
def every_kind(talk: Talk, **options: Any) -> Iterator[Path]:
    """Run upstreams of every kind, and yield the configuration that names them."""
    shutil.copy(Path(__file__).with_name("functions.py"), talk.folder / "wire_functions.py")
    talk.file("api.json", json.dumps(api.DOCUMENT))
    with (
        talk.http_upstream("--name", "remote", "--only", *REMOTE_TOOLS) as remote,
        talk.http_upstream(program="api.py") as base,
    ):
        yield talk.toml(
            {
                "files": command_upstream(talk, "--name", "files", "--only", *FILES_TOOLS),
                "remote": {"url": f"{remote}/mcp", "headers": {"X-Key": "k"}},
                "users": {"openapi": "api.json", "base_url": base, "auth": {"key": "api-secret"}},
                "own": {"python": "wire_functions", "prefix": "my_"},
            },
            **options,
        )


def use_every_kind(client: StdioClient | HTTPClient, handle_prefix: str) -> dict[str, str]:
    """Call tools of every upstream with small and large results, and read pages. Return the handles by name."""
    client.ask("tools/list")
    small: list[tuple[str, Message]] = [
        ("files_text", {}),
        ("remote_text", {}),
        ("rows", {}),
        ("structured", {}),
        ("result_list", {}),
        ("fails", {}),
        ("refuses", {}),
        ("echo", {"a": 1.0, "é": None}),
        ("annotated", {}),
        ("wrapped", {}),
        ("getUser", {"id": 7}),
        ("getUser", {"id": "seven"}),
        ("getUser", {}),
        ("listUsers", {"X-Trace": 5}),
        ("createUser", {"body": {"id": 1, "name": "Ann"}}),
        ("createUser", {"body": {"name": 1}}),
        ("users_text", {"size": 20}),
        ("getBinary", {"size": 256}),
        ("getStatus", {"code": 404}),
        ("getStatus", {"code": 500}),
        ("getOdd", {}),
        ("my_add", {"a": 1}),
        ("my_add", {"a": "one"}),
        ("my_shout", {"words": "né"}),
        ("my_list_items", {"count": 2}),
        ("my_fail", {}),
        ("text", {}),
        ("no_such_tool", {}),
    ]
    for number, (tool, arguments) in enumerate(small):
        client.call(tool, f"small {number} {tool}", **arguments)
    handles = {}
    large: list[tuple[str, Message]] = [
        ("files_text", {"size": LARGE}),
        ("remote_text", {"size": LARGE}),
        ("rows", {"count": ROWS}),
        ("structured", {"count": ROWS}),
        ("result_list", {"count": ROWS}),
        ("blocks", {"count": 2000}),
        ("image", {"size": LARGE}),
        ("fails", {"size": LARGE}),
        ("wrapped", {"count": ROWS}),
        ("blob", {"size": LARGE}),
        ("unicode", {"size": LARGE}),
        ("listUsers", {"count": 3000}),
        ("getBinary", {"size": 100_096}),
        ("my_list_items", {"count": 3000}),
        ("my_text", {"size": LARGE}),
    ]
    for tool, arguments in large:
        handles[tool] = handle_of(client.call(tool, f"large {tool}", **arguments))
    for tool in ("rows", "structured", "wrapped", "listUsers", "my_list_items", "blocks"):
        client.call("output_fetch", f"page of {tool}", output_handle=handles[tool], limit=2, offset=5)
    for tool in ("files_text", "my_text", "image", "getBinary"):
        client.call("output_fetch", f"page of {tool}", output_handle=handles[tool], limit=40, offset=3)
    client.call("output_search", "search", output_handle=handles["listUsers"], pattern="user 2999")
    client.call(
        "output_search", "search by regex", output_handle=handles["rows"], pattern="naïve 8..", regex=True, limit=2
    )
    client.ask("resources/list")
    client.ask("resources/templates/list")
    scheme = f"{client.talk.build.name}://output/"
    client.ask("resources/read", {"uri": f"{scheme}{handles['rows']}?limit=2"}, "read a stored output")
    client.ask("resources/read", {"uri": f"{scheme}{handle_prefix}"}, "read what is not stored")
    client.ask("resources/read", {"uri": "wire://one"}, "read a resource of an upstream")
    client.ask("prompts/list")
    client.ask("prompts/get", {"name": "only_remote"}, "prompt of one upstream")
    client.ask("prompts/get", {"name": "none"}, "prompt of no upstream")
    client.ask("no/such", None, "unknown method")
    return handles


def serve_stdio_every_kind(talk: Talk, era: str) -> None:
    with every_kind(talk, image_mode="auto") as path:
        command = talk.build.command("serve", "--config", str(path))
        with talk.stdio(command, era=era, capabilities=ALL_CAPABILITIES) as client:
            client.initialize()
            handles = use_every_kind(client, "oh_AAAAAAAAAAAA")
            fetch_invalid_pages(client, {**handles, "text": handles["files_text"]})
            for name, odd in {
                "not JSON": b"{not json",
                "a number": b"17",
                "odd id": b'{"jsonrpc": "2.0", "id": [1], "method": "ping"}',
                "method that is a number": b'{"jsonrpc": "2.0", "id": 900, "method": 7}',
                "params that are an array": b'{"jsonrpc": "2.0", "id": 901, "method": "ping", "params": [1]}',
                "no version": b'{"id": 902, "method": "ping"}',
            }.items():
                client.send(odd)
                client.ask("ping" if era != MODERN else "server/discover", None, f"after {name}")
    talk.record_transcript(has_sdk=True)


def serve_stdio_2025_11_25(talk: Talk) -> None:
    serve_stdio_every_kind(talk, NEWEST_HANDSHAKE)


def serve_stdio_2026_07_28(talk: Talk) -> None:
    serve_stdio_every_kind(talk, MODERN)


def write_tokens(talk: Talk) -> str:
    path = talk.file("tokens", "".join(f"{name}: {token}\n" for name, token in TOKENS.items()))
    path.chmod(0o600)
    return str(path)


def serve_http_every_kind(talk: Talk, era: str) -> None:
    with every_kind(talk, journal=True, image_mode="auto") as path:
        options = ("--http", "127.0.0.1:0", "--token-file", write_tokens(talk))
        with listening(talk, talk.build.command("serve", "--config", str(path), *options)) as port:
            ann = HTTPClient(talk, port, era=era, token=TOKENS["ann"])
            ann.initialize()
            handles = use_every_kind(ann, "oh_" + "A" * 26)
            bob = HTTPClient(talk, port, era=era, token=TOKENS["bob"], label="bob: ")
            bob.initialize()
            bob.call("output_fetch", "handle of another principal", output_handle=handles["rows"])
            bob.call("journal", "journal of another principal")
            ann.call("journal", "journal", count=2)
            ann.call("journal", "journal summary", action="summary")
            if era != MODERN:
                ann.request("end of a session", "DELETE", "/mcp")
                ann.ask("tools/list", None, "after the session")


def serve_http_2025_11_25(talk: Talk) -> None:
    serve_http_every_kind(talk, NEWEST_HANDSHAKE)


def serve_http_2026_07_28(talk: Talk) -> None:
    serve_http_every_kind(talk, MODERN)


def serve_http_refusals(talk: Talk) -> None:
    """Requests that the HTTP server refuses, and paths outside of the protocol."""
    path = talk.toml({"files": command_upstream(talk, "--only", "text")})
    options = ("--http", "127.0.0.1:0", "--token-file", write_tokens(talk), "--body-limit-bytes", "20000")
    origins = ("--allowed-origins", "https://app.example.com")
    with listening(talk, talk.build.command("serve", "--config", str(path), *options, *origins)) as port:
        client = HTTPClient(talk, port, token=TOKENS["ann"])
        stranger = HTTPClient(talk, port, label="stranger: ")
        wrong = HTTPClient(talk, port, token="wrong-" + "w" * 30, label="wrong token: ")
        for refused in (stranger, wrong):
            refused.ask("initialize", {"protocolVersion": NEWEST_HANDSHAKE, "capabilities": {}})
            refused.request("GET", "GET", "/mcp")
        client.request("health", "GET", "/health", None, {})
        client.request("no such path", "GET", "/none", None, {})
        client.request("slash behind it", "POST", "/mcp/", b"{}")
        client.request("PUT", "PUT", "/mcp", b"{}")
        client.request("not JSON", "POST", "/mcp", b"{not json")
        client.request("empty body", "POST", "/mcp", b"")
        client.request("batch", "POST", "/mcp", b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]')
        client.request("large body", "POST", "/mcp", b'"' + b"x" * 30_000 + b'"')
        body, headers = client.message("ping")
        client.request("wrong content type", "POST", "/mcp", body, {**headers, "content-type": "text/plain"})
        client.request("wrong accept", "POST", "/mcp", body, {**headers, "accept": "text/html"})
        client.request("wrong host", "POST", "/mcp", body, {**headers, "host": "evil.example.com"})
        client.request("wrong origin", "POST", "/mcp", body, {**headers, "origin": "https://evil.example.com"})
        client.request("unknown version", "POST", "/mcp", body, {**headers, "mcp-protocol-version": "1999-01-01"})
        client.request("unknown session", "POST", "/mcp", body, {**headers, "mcp-session-id": "0" * 32})
        preflight = {"origin": "https://app.example.com", "access-control-request-method": "POST"}
        client.request("preflight", "OPTIONS", "/mcp", None, preflight)
        client.request("right origin", "POST", "/mcp", body, {**headers, "origin": "https://app.example.com"})
        client.initialize()
        other = HTTPClient(talk, port, token=TOKENS["bob"], label="bob: ")
        session = {"mcp-session-id": client.headers["mcp-session-id"]}
        other.request("session of another", "POST", "/mcp", other.message("ping")[0], {**other.headers, **session})
        modern = HTTPClient(talk, port, era=MODERN, token=TOKENS["ann"], label="modern: ")
        body, headers = modern.message("tools/list")
        modern.request("wrong method header", "POST", "/mcp", body, {**headers, "mcp-method": "tools/call"})
        modern.request(
            "no method header", "POST", "/mcp", body, {k: v for k, v in headers.items() if k != "mcp-method"}
        )
        modern.request("DELETE", "DELETE", "/mcp", None, headers)
        HTTPClient(talk, port, token=TOKENS["ann"], label="second: ").initialize()
        HTTPClient(talk, port, token=TOKENS["ann"], label="third: ").ask(
            "initialize", {"protocolVersion": NEWEST_HANDSHAKE, "capabilities": {}, "clientInfo": {}}
        )
    issuer = ("--oauth-issuer", "https://id.example.com", "--oauth-jwks-url", "http://127.0.0.1:1/jwks")
    audience = ("--oauth-audience", "https://mcp.example.com/mcp", "--oauth-scopes", "mcp:use")
    http = ("--http", "127.0.0.1:0")
    with listening(talk, talk.build.command("serve", "--config", str(path), *http, *issuer, *audience)) as port:
        client = HTTPClient(talk, port, era=MODERN, token="a.b.c", label="OAuth: ")  # noqa: S106
        client.ask("tools/list", None, "token that is no JWT")
        client.request("metadata", "GET", "/.well-known/oauth-protected-resource/mcp", None, {})
        client.request("metadata at the root", "GET", "/.well-known/oauth-protected-resource", None, {})
    limited = (*http, "--rate-limit-per-minute", "2")
    with listening(talk, talk.build.command("serve", "--config", str(path), *limited)) as port:
        client = HTTPClient(talk, port, era=MODERN, label="limited: ")
        for number in range(4):
            client.ask("tools/list", None, f"request {number}")


def serve_http_streams(talk: Talk) -> None:
    """Streams: notifications outside of calls, requests of the server during calls, and subscriptions."""
    path = talk.toml({"files": command_upstream(talk)})
    with listening(talk, talk.build.command("serve", "--config", str(path), "--http", "127.0.0.1:0")) as port:
        client = HTTPClient(talk, port, capabilities=ALL_CAPABILITIES)
        client.initialize()
        client.ask("tools/call", {"name": "progress", "arguments": {}, "_meta": {"progressToken": "p"}}, "progress")
        client.call("log")
        with client.opened("GET", "/mcp") as stream:
            client.call("grow")
            talk.record("list changed", read_event(stream))
        for method, reply in (
            ("elicitation/create", {"result": {"action": "accept", "content": {"name": "Ann"}}}),
            ("roots/list", {"result": {"roots": []}}),
        ):
            arguments: Message = {"method": method}
            if method == "roots/list":
                arguments["params"] = {}
            body, headers = client.message("tools/call", {"name": "ask", "arguments": arguments})
            with client.opened("POST", "/mcp", body, headers) as stream:
                event = read_event(stream)
                question = json.loads(event.partition(b"data: ")[2])
                talk.record(f"question {method}", event)
                client.post(f"reply to {method}", {"jsonrpc": "2.0", "id": question["id"], **reply})
                talk.record(f"answer after {method}", stream.read())
        modern = HTTPClient(talk, port, era=MODERN, capabilities=ALL_CAPABILITIES, label="modern: ")
        modern.initialize()
        progress = {"name": "progress", "arguments": {}, "_meta": {"progressToken": "p"}}
        modern.ask("tools/call", progress, "progress")
        listen = modern.message("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        with modern.opened("POST", "/mcp", *listen) as stream:
            talk.record("acknowledged", read_event(stream))
            modern.call("grow", "grow", name="grown_later")
            talk.record("list changed in a subscription", read_event(stream))
        ask: Message = {"name": "ask", "arguments": {}}
        required = modern.ask("tools/call", ask, "input required")["result"]
        replies = {key: {"action": "accept", "content": {"name": "Ann"}} for key in required["inputRequests"]}
        again = {**ask, "inputResponses": replies, "requestState": required["requestState"]}
        modern.ask("tools/call", {**again, "requestState": "unknown"}, "unknown state")
        modern.ask("tools/call", again, "input given")
        modern.ask("tools/call", again, "input given twice")


def serve_one(talk: Talk, era: str) -> None:
    """One upstream on stdio: all other methods are forwarded, too."""
    for upstream_era in ("both", "handshake", "modern"):
        path = talk.toml({"one": command_upstream(talk, "--name", "one", "--era", upstream_era)})
        command = talk.build.command("serve", "--config", str(path))
        with talk.stdio(command, era=era, capabilities=ALL_CAPABILITIES) as client:
            client.initialize()
            client.ask("tools/list")
            client.ask("resources/list")
            client.ask("resources/templates/list")
            client.ask("resources/read", {"uri": "wire://one"})
            client.ask("resources/read", {"uri": "other://none"})
            client.ask("prompts/list")
            client.ask("prompts/get", {"name": "greet"})
            reference = {"type": "ref/prompt", "name": "greet"}
            client.ask("completion/complete", {"ref": reference, "argument": {"name": "a", "value": "o"}})
            client.ask("future/method", {"a": [1.0, 2e5]})
            client.ask("no/such")
            client.call("log")
            progress = {"name": "progress", "arguments": {}, "_meta": {"progressToken": "p"}}
            client.ask("tools/call", progress, "progress")
            client.call("progress", "progress without a token")
            params: Message = {"name": "text", "arguments": {"size": LARGE, "later": True}}
            if era == MODERN:
                answer = client.ask("tools/call", params, "task")
            else:
                client.ask("ping")
                client.ask("logging/setLevel", {"level": "error"})
                client.ask("resources/subscribe", {"uri": "wire://one"})
                answer = client.ask("tools/call", {**params, "task": {"ttl": 60_000}}, "task")
            result = answer.get("result", {})
            task = result.get("task", result).get("taskId")
            client.ask("tasks/get", {"taskId": task or "none"})
            client.ask("tasks/result", {"taskId": task or "none"})
            if era != MODERN and upstream_era != "modern":
                answer_server_requests(client)
            else:
                answer_input_request(client)
            # No space in it: builds may send the same arguments with and without spaces between them.
            mark = f"cancelled-{upstream_era}"
            cancelled = client.send_request("tools/call", {"name": "wait", "arguments": {"silent": True, "mark": mark}})
            talk.wait_for_upstream(mark.encode())
            client.notify("notifications/cancelled", {"requestId": cancelled, "reason": "enough"})
            time.sleep(0.5)
            client.call("text", "call after a cancelled one")
            if era != MODERN:
                client.send_request("tools/call", {"name": "grow", "arguments": {}})
                client.record_lines("grow", 2, is_sorted=True)
            else:
                listen = client.send_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
                client.record_lines("acknowledged", 1)
                client.send_request("tools/call", {"name": "grow", "arguments": {}})
                client.record_lines("grow", 2, is_sorted=True)
                client.notify("notifications/cancelled", {"requestId": listen})
            client.ask("tools/list", None, "tools/list after it has grown")
            client.call("grown")
    talk.record_transcript(has_sdk=True)


def answer_input_request(client: StdioClient) -> None:
    """Answer a request of the server, or since 2026-07-28 an input-required result."""
    ask: Message = {"name": "ask", "arguments": {}}
    reply = {"action": "accept", "content": {"name": "Ann"}}
    if client.era != MODERN:
        call = client.send_request("tools/call", ask)
        (question,) = client.record_lines("question", 1)
        client.send({"jsonrpc": "2.0", "id": question["id"], "result": reply})
        client.record_until(call, "answer after a question")
        return
    required = client.ask("tools/call", ask, "input required")["result"]
    replies = dict.fromkeys(required["inputRequests"], reply)
    client.ask(
        "tools/call", {**ask, "inputResponses": replies, "requestState": required["requestState"]}, "input given"
    )


def serve_one_2025_11_25(talk: Talk) -> None:
    serve_one(talk, NEWEST_HANDSHAKE)


def serve_one_2026_07_28(talk: Talk) -> None:
    serve_one(talk, MODERN)


def serve_options(talk: Talk) -> None:
    """Filters, hidden tools, references, the contract and redaction behind several upstreams."""
    note = talk.file("files/note.txt", "one\ntwo\n")
    options = {
        "hidden_tools": ["blob", "workflow_*"],
        "capabilities": {"delete_*": "admin"},
        "disable_tools": ["admin"],
        "file_refs": True,
        "file_roots": [str(note.parent)],
        talk.build.option("prefix"): "oc_",
        "journal": True,
        "contract": {"wrapped": True},
        "redact": ["naïve \\d+"],
    }
    upstreams = {
        "one": command_upstream(talk, "--only", "rows", "echo", "delete_all", "workflow_run", "blob", "wrapped"),
        "two": command_upstream(talk, "--only", "text", "workflow_stop"),
    }
    for era in (NEWEST_HANDSHAKE, MODERN):
        path = talk.toml(upstreams, **options)
        with talk.stdio(talk.build.command("serve", "--config", str(path)), era=era) as client:
            client.initialize()
            client.ask("tools/list")
            client.call("delete_all", f"switched off, {era}")
            client.call("oc_expand_tools", f"names of hidden tools, {era}")
            client.call("oc_expand_tools", f"by name, {era}", names=["workflow_run"])
            client.call("oc_expand_tools", f"unknown name, {era}", names=["none"])
            client.ask("tools/list", None, f"list after expanding, {era}")
            client.call("workflow_run", f"hidden tool, {era}")
            rows = handle_of(client.call("rows", f"redacted rows, {era}", count=ROWS))
            client.call("oc_output_fetch", f"redacted page, {era}", output_handle=rows, limit=2)
            client.call("wrapped", f"contract, {era}", count=ROWS)
            client.call("echo", f"file by reference, {era}", value={"$file": str(note)})
            client.call("echo", f"handle by reference, {era}", value={"$handle": rows, "path": "/1/id"})
            client.call("echo", f"file that is denied, {era}", value={"$file": "/etc/hostname"})
            client.call("oc_journal", f"journal, {era}", count=4)


def serve_failures(talk: Talk) -> None:
    """Upstreams that die, hang, cannot be reached, or do not start."""
    failing = talk.file("failing", "yes")
    shutil.copy(Path(__file__).with_name("functions.py"), talk.folder / "wire_functions.py")
    with talk.http_upstream() as address:
        gone = address
    upstreams = {
        "good": command_upstream(talk, "--only", "text", "die", "wait", "write"),
        "gone": {"url": f"{gone}/mcp"},
        "failing": command_upstream(talk, "--fail", str(failing)),
        "own": {"python": "wire_functions"},
    }
    for era in (NEWEST_HANDSHAKE, MODERN):
        path = talk.toml(upstreams, call_timeout_seconds=4)
        with talk.stdio(talk.build.command("serve", "--config", str(path)), era=era) as client:
            client.initialize()
            client.ask("tools/list")
            client.call("good_text")
            client.call("sleep", f"function that takes too long, {era}", seconds=15)
            client.call("wait", f"upstream that takes too long, {era}", silent=True)
            client.call("die", f"upstream that dies, {era}")
            time.sleep(1)
            client.call("good_text", f"after it has died, {era}")
    servers = {"mcpServers": {"one": command_upstream(talk, "--only", "text")}}
    file = talk.file("client.json", json.dumps(servers))
    command = talk.build.command("serve", "--mcp-servers", str(file), "--store", talk.store)
    with talk.stdio(command) as client:
        client.ask("initialize", {"protocolVersion": client.era, "capabilities": {}, "clientInfo": CLIENT})
        client.ask("tools/list", None, "servers of a client's file")
    for name, text in {
        "two kinds": "[upstreams.x]\ncommand = 'a'\nurl = 'http://127.0.0.1'\n",
        "no kind": "[upstreams.x]\nargs = []\n",
        "unknown key": "[upstreams.x]\ncomand = 'a'\n",
        "unknown option": "outptu_mode = 'auto'\n",
        "wrong value": "output_mode = 'sometimes'\n",
        "no such module": "[upstreams.x]\npython = 'no_such_module_here'\n",
        "no such command": "[upstreams.x]\ncommand = 'no-such-command-here'\n",
        "no such document": "[upstreams.x]\nopenapi = 'none.json'\n",
        "same prefix": "[upstreams.x]\npython='a'\nprefix='p_'\n[upstreams.y]\npython='a'\nprefix='p_'\n",
        "not TOML": "[[[\n",
        "nothing": "",
    }.items():
        path = talk.file(f"{name.replace(' ', '_')}.toml", text)
        run = talk.run("serve", "--config", str(path), "--store", talk.store)
        talk.record(f"configuration: {name}", run)


SERVE: dict[str, Any] = {
    "serve stdio 2025-11-25": serve_stdio_2025_11_25,
    "serve stdio 2026-07-28": serve_stdio_2026_07_28,
    "serve http 2025-11-25": serve_http_2025_11_25,
    "serve http 2026-07-28": serve_http_2026_07_28,
    "serve http refusals": serve_http_refusals,
    "serve http streams": serve_http_streams,
    "serve one 2025-11-25": serve_one_2025_11_25,
    "serve one 2026-07-28": serve_one_2026_07_28,
    "serve options": serve_options,
    "serve failures": serve_failures,
}
