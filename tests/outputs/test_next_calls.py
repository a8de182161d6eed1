"""The calls that a descriptor suggests can be made as they are, and return something."""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from forebay.outputs.clients import find_client
from forebay.outputs.policy import OutputPolicy
from forebay.outputs.tool_call import ToolCall
from forebay.outputs.tools import Caller
from forebay.store import Store, open_store
from forebay.store.payload import encode
from stores import content

ORDERS = [{"id": n, "status": "open" if n % 3 else "done", "tags": ["a"], "total": n / 2} for n in range(3000)]
PLUGINS = {f"plugin-{n}": {"stars": n, "license": "MIT"} for n in range(900)}
CUSTOMERS = [
    {"key": f"c{n}", "email": f"{n}@x.example", "currency": "EUR", "country": "DE" if n % 2 else "FR"}
    for n in range(900)
]
LOG = "".join(
    f"2026-11-19T12:{n // 60 % 60:02}:{n % 60:02}Z {'ERROR' if n % 900 == 7 else 'INFO'} request {n} took {n % 50} ms\n"
    for n in range(9000)
)
HANDBOOK = "# Handbook\n\n" + "".join(f"## Chapter {n}\n\nThe reservoir fills in spring.\n\n" for n in range(900))
PROSE = (
    "The reservoir above the village was built by hand.\nIn spring the reservoir fills, and the water waits.\n" * 500
)
RESULTS: dict[str, tuple[Any, str | None]] = {
    "array": (ORDERS, None),
    "wrapped": ({"page": 1, "orders": ORDERS}, None),
    "map": ({"plugins": PLUGINS}, None),
    "numbers": ([*range(9000)], None),
    "ndjson": ("".join(json.dumps(order) + "\n" for order in ORDERS), "application/x-ndjson"),
    "csv": ("id,name\n" + "".join(f'{n},"Nr, {n}"\n' for n in range(3000)), "text/csv"),
    "odd names": ([{"a.b": 1, 'q"': "x", "ok": "y"}] * 3000, None),
    "text": ("a line\n" * 9000, "text/plain"),
    "log": (LOG, None),
    "headings": (HANDBOOK, "text/markdown"),
    "prose": (PROSE, None),
    "one line": (PROSE.replace("\n", " é "), "text/plain"),
    "cut texts": ([{f"f{n}": "abcdefghij klm " * 20 for n in range(30)}] * 50, None),
    "cut lists": ([[*range(5000)]] * 5, None),
    "cut row": ("txt,name\n" + f"{'l' * 2032},name of a man\n" * 90, "text/csv"),
    "repeated names": ("name,name\n" + "".join(f"a{n},{n}\n" for n in range(900)), "text/csv"),
    "blocks": ([{"type": "text", "text": text} for text in ("3000 orders", *[json.dumps(ORDERS)] * 2)], "blocks"),
    "document": ({"a": "x" * 9000, "b": {"c": 1}}, None),
}


def make_result(payload: Any, mime_type: str | None) -> dict[str, Any]:
    if mime_type == "blocks":
        return {"content": payload}
    text = payload if isinstance(payload, str) else json.dumps(payload)
    if mime_type is None:
        return {"content": [{"type": "text", "text": text}]}
    return {"content": [{"type": "resource", "resource": {"uri": "x:y", "mimeType": mime_type, "text": text}}]}


@pytest.mark.parametrize("name", RESULTS)
def test_suggested_calls_work(name: str, tmp_path: Path) -> None:
    with open_store(tmp_path.as_uri()) as store:
        policy = OutputPolicy(store, prefix="oc_")
        response = policy.pipeline.store_result(make_result(*RESULTS[name]), ToolCall("get"))
        assert len(encode(response)) <= 4096
        calls = json.loads(response["content"][0]["text"])["next_calls"]
        assert 2 <= len(calls) <= 3
        for call in calls:
            result = policy.tools.call(call["tool"], call["arguments"], Caller())
            assert not result.get("isError"), (call, result)
            page = json.loads(result["content"][0]["text"])
            # A search may find nothing; all other calls return something.
            assert page.get("returned", page.get("row_count", 1)) > 0, (call, page)
        policy.close()


REPEATED = ", ".join(f'{{"id": "a{n}", "id": "b{n}", "n": {n}}}' for n in range(300))
FEW = '{"id": "c0"}, {"id": "c1"}'
REPEATED_KEYS = {
    "array": f"[{REPEATED}]",
    "lines": REPEATED.replace("}, ", "}\n"),
    "map": "{" + ", ".join(f'"k{n}": {{"id": "a{n}", "id": "b{n}"}}' for n in range(300)) + "}",
    "repeated entries": "{" + ", ".join(f'"k": {{"id": "a{n}", "id": "b{n}"}}' for n in range(300)) + "}",
    "types": f"[{REPEATED}]".replace('"id": "b', '"id": 1, "x": "'),
    "list first": f"[{REPEATED}]".replace('"id": "a', '"id": [], "id": "'),
    "second collection": f'{{"orders": [{FEW}], "orders": [{REPEATED}]}}',
    "first collection": f'{{"orders": [{REPEATED}], "orders": [{FEW}]}}',
    "escaped collection": f'{{"orders": [{FEW}], "order\\u0073": [{REPEATED}]}}',
    "repeated wrapper": f'{{"a": {{"orders": [{FEW}]}}, "a": {{"orders": [{REPEATED}]}}}}',
    "wrapped": f'{{"page": 1, "page": 2, "orders": [{REPEATED}]}}',
}


@pytest.mark.parametrize("name", REPEATED_KEYS)
def test_a_suggested_condition_finds_the_first_item_whose_keys_are_repeated(name: str, tmp_path: Path) -> None:
    with open_store(tmp_path.as_uri()) as store:
        policy = OutputPolicy(store, prefix="oc_")
        response = policy.pipeline.store_result(make_result(REPEATED_KEYS[name], None), ToolCall("get"))
        descriptor = json.loads(response["content"][0]["text"])
        assert descriptor["item_count"] == 300
        conditions = [call["arguments"] for call in descriptor["next_calls"] if "where" in call["arguments"]]
        # Which of several collections of one name has the items is not known.
        is_unique = not name.endswith(("collection", "wrapper"))
        assert len(conditions) == is_unique
        handle = descriptor["output_handle"]
        for arguments in conditions:
            page = json.loads(policy.tools.call("oc_output_fetch", arguments, Caller())["content"][0]["text"])
            assert page["content"][:1] == content(store.fetch(handle, limit=1))
        policy.close()


def test_odd_previews_give_calls(tmp_path: Path) -> None:
    texts = {
        "deep": ("[" * 1015 + "]" * 1015 + "\n") * 9,
        "large numbers": json.dumps([{"n": 10**30 + n, "m": 2**64 + n, "id": f"a{n}"} for n in range(300)]),
        "surrogates": json.dumps([{"id": "\ud800", "n": n} for n in range(300)]),
    }
    with open_store(tmp_path.as_uri()) as store:
        pipeline = OutputPolicy(store).pipeline
        for name, text in texts.items():
            response = pipeline.store_result(make_result(text, None), ToolCall("get"))
            calls = json.loads(response["content"][0]["text"])["next_calls"]
            assert len(calls) >= 2, name
            wheres = [call["arguments"]["where"] for call in calls if "where" in call["arguments"]]
            assert wheres == ([{"id": "a0"}] if name == "large numbers" else []), name


def find_calls(payload: str, store: Store, *, decode: bool = False) -> list[tuple[str, dict[str, Any]]]:
    """Return the tools and arguments of the calls that are suggested for a text, without the handle."""
    pipeline = OutputPolicy(store).pipeline
    data: Any = {"content": [{"type": "text", "text": payload}]}
    if decode:
        blob = base64.b64encode(gzip.compress(payload.encode())).decode()
        data = {"content": [{"type": "resource", "resource": {"uri": "x:y.gz", "blob": blob}}]}
    response = pipeline.store_result(data, ToolCall("get"))
    calls = json.loads(response["content"][0]["text"])["next_calls"]
    for call in calls:
        del call["arguments"]["output_handle"]
    return [(call["tool"], call["arguments"]) for call in calls]


def test_the_calls_for_a_text_depend_on_what_it_is(tmp_path: Path) -> None:
    start = ("output_fetch", {"format": "lines", "offset": 0, "limit": 50})
    with open_store(tmp_path.as_uri()) as store:
        (tool, errors), end, first = find_calls(LOG, store)
        assert (tool, first) == ("output_search", start)
        assert end == ("output_fetch", {"format": "lines", "offset": 8950})
        handle = store.put(LOG).output_handle
        assert len(store.search(handle, **errors).matches) == 10
        assert [name for name, _ in find_calls(LOG, store, decode=True)] == [tool, end[0], first[0]]
        trace = "Traceback (most recent call last):\n" + '  File "a.py", line 1, in b\n' * 2
        assert find_calls("".join(f"{line}\n{trace}" for line in LOG.splitlines()[:9]) * 90, store)[0] == (tool, errors)
        assert find_calls("level=info msg=started\n" * 3000, store)[0] == (tool, errors)

        (tool, headings), first, _ = find_calls(HANDBOOK, store)
        assert (tool, first) == ("output_search", start)
        matches = store.search(store.put(HANDBOOK).output_handle, **headings).matches
        assert [match["match"] for match in matches[:2]] == ["# Handbook", "## Chapter 0"]

        code = HANDBOOK.replace("\n\n", "\n\n```sh\n# fill it\nmake water\n```\n\n", 1)
        (tool, headings), *_ = find_calls(code, store)
        matches = store.search(store.put(code).output_handle, **headings).matches
        assert [match["match"] for match in matches[:2]] == ["## Chapter 0", "## Chapter 1"]
        only_code = f"```sh\n# fill it\nmake water\n```\n{PROSE}"
        assert find_calls(only_code, store)[0] == start
        for fence in ("```", "~~~"):
            chapters = HANDBOOK.replace("## ", "# ").replace("\n", f"\n{fence}\n# a comment\n{fence}\n", 1)
            assert find_calls(chapters, store)[0][1]["pattern"] == "(?m)^#{1,4} .*"

        first, (tool, search), _ = find_calls(PROSE, store)
        assert (first, tool, search["pattern"]) == (start, "output_search", "reservoir")

        one_line = PROSE.replace("\n", " é ")
        first, _, end = find_calls(one_line, store)
        assert first == ("output_fetch", {"format": "text", "offset": 0})
        assert 0 < len(one_line.encode()) - end[1]["offset"] <= 4000


@pytest.mark.parametrize("letter", ["x", "é", "\U0001f600"])
def test_the_end_of_a_long_line_can_be_read_wherever_it_starts(letter: str, tmp_path: Path) -> None:
    with open_store(tmp_path.as_uri()) as store:
        policy = OutputPolicy(store)
        for extra in range(4):
            text = ("word " + letter) * 4000 + "x" * extra
            response = policy.pipeline.store_result({"content": [{"type": "text", "text": text}]}, ToolCall("get"))
            calls = json.loads(response["content"][0]["text"])["next_calls"]
            (end,) = (call["arguments"] for call in calls if call["arguments"].get("offset", 0) > 0)
            page = json.loads(policy.tools.call("output_fetch", end, Caller())["content"][0]["text"])
            assert page["eof"]
            assert text.endswith(page["content"])
            assert len(page["content"]) > 500
        policy.close()


def test_calls_name_the_fields_of_the_first_item(tmp_path: Path) -> None:
    with open_store(tmp_path.as_uri()) as store:
        policy = OutputPolicy(store)
        call = ToolCall("get", fetch_with="mcp__my__output_fetch")
        response = policy.pipeline.store_result(make_result(*RESULTS["map"]), call)
        descriptor = json.loads(response["content"][0]["text"])
        handle = descriptor["output_handle"]
        assert descriptor["next_calls"] == [
            {"tool": "mcp__my__output_fetch", "arguments": {"output_handle": handle, "where": {"_key": "plugin-0"}}},
            {
                "tool": "mcp__my__output_query",
                "arguments": {
                    "output_handle": handle,
                    "sql": 'SELECT "license", count(*) FROM items GROUP BY 1 ORDER BY 2 DESC LIMIT 10',
                },
            },
            {
                "tool": "mcp__my__output_fetch",
                "arguments": {"output_handle": handle, "limit": 50, "fields": ["_key", "stars", "license"]},
            },
        ]
        policy.close()


@pytest.mark.parametrize(
    ("payload", "mime_type"),
    [
        (CUSTOMERS, None),
        ({"page": 1, "customers": CUSTOMERS}, None),
        ({customer.pop("key"): customer for customer in map(dict, CUSTOMERS)}, None),
        ("".join(json.dumps(customer) + "\n" for customer in CUSTOMERS), "application/x-ndjson"),
        ("key,email,currency,country\n" + "".join(",".join(row.values()) + "\n" for row in CUSTOMERS), "text/csv"),
    ],
    ids=["array", "wrapped", "map", "ndjson", "csv"],
)
def test_the_suggested_query_counts_values_that_repeat(payload: Any, mime_type: str | None, tmp_path: Path) -> None:
    with open_store(tmp_path.as_uri()) as store:
        policy = OutputPolicy(store)
        response = policy.pipeline.store_result(make_result(payload, mime_type), ToolCall("get"))
        calls = json.loads(response["content"][0]["text"])["next_calls"]
        assert 'SELECT "country", count(*)' in calls[1]["arguments"]["sql"]
        policy.close()


def test_binary_payloads_are_only_read(tmp_path: Path) -> None:
    with open_store(tmp_path.as_uri()) as store:
        policy = OutputPolicy(store)
        blob = {"uri": "x:y", "mimeType": "application/octet-stream", "blob": "/wCA" * 9000}
        result = {"content": [{"type": "resource", "resource": blob}]}
        response = policy.pipeline.store_result(result, ToolCall("get"))
        (call,) = json.loads(response["content"][0]["text"])["next_calls"]
        assert call["tool"] == "output_fetch"
        policy.close()


@pytest.mark.parametrize(
    ("payload", "mime_type"),
    [
        # The preview of one line looks like an object.
        ("".join(json.dumps({"id": n, "text": "x" * 3000}) + "\n" for n in range(50)), "application/x-ndjson"),
        ("".join(json.dumps({"id": n, "text": "\ud800" * n}) + "\n" for n in range(300)), "application/x-ndjson"),
        ({f"k{n}": {"_key": f"own{n}", "name": "x" * 40} for n in range(900)}, None),
        ('name,b\n"x\ny",2\n' * 3000, "text/csv"),
    ],
    ids=["long lines", "lone surrogates", "keys of their own", "line breaks in cells"],
)
def test_the_suggested_condition_holds_for_the_first_item(payload: Any, mime_type: str | None, tmp_path: Path) -> None:
    with open_store(tmp_path.as_uri()) as store:
        policy = OutputPolicy(store)
        response = policy.pipeline.store_result(make_result(payload, mime_type), ToolCall("get"))
        call = json.loads(response["content"][0]["text"])["next_calls"][0]
        page = json.loads(policy.tools.call(call["tool"], call["arguments"], Caller())["content"][0]["text"])
        assert page["item_numbers"][0] == 0
        policy.close()


def test_no_calls_are_suggested_to_a_client_whose_names_of_tools_are_unknown(tmp_path: Path) -> None:
    with open_store(tmp_path.as_uri()) as store:
        policy = OutputPolicy(store)
        fetch_with = policy.name_fetch_tool(find_client("claude-code"))
        response = policy.pipeline.store_result(make_result(ORDERS, None), ToolCall("get", fetch_with=fetch_with))
        descriptor = json.loads(response["content"][0]["text"])
        assert descriptor["fetch_with"] == "output_fetch of this server"
        assert "next_calls" not in descriptor
        policy.close()


def test_errors_fit_on_a_page(tmp_path: Path) -> None:
    with open_store(tmp_path.as_uri()) as store:
        policy = OutputPolicy(store)
        handle = store.put([{"😀" * 60 + str(n): 1 for n in range(60)}]).output_handle
        arguments = {"output_handle": handle, "sql": "SELECT nope FROM items"}
        for is_ascii in (False, True):
            caller = Caller(is_ascii=is_ascii, max_page_bytes=4096)
            result = policy.tools.call("output_query", arguments, caller)
            assert result["isError"]
            text = result["content"][0]["text"]
            assert json.loads(text)["error"]["code"] == "query_failed"
            assert len(json.dumps(text, ensure_ascii=is_ascii).encode()) <= 4096 + 2
        policy.close()
