"""The response contract: payloads, references, lists, summaries and the decorator."""

import asyncio
import gzip
import inspect
import json
import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import forebay
import orjson
import pytest
from forebay import HandleNotFound, InvalidArgument, Store, StoreFull
from forebay.outputs.contract import (
    Response,
    ResponseLimits,
    category_of,
    contracted,
    create_summary,
    paginated_list,
    retrieve_artifact,
    store_artifact,
    wrap_response,
)
from forebay.outputs.contract.artifacts import make_reference
from forebay.store.handles import extract_handle, is_handle, new_handle
from hypothesis import given
from hypothesis import strategies as st
from stores import store_at


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with store_at(tmp_path / "store") as open_store:
        yield open_store


def test_a_small_payload_is_shown_whole_and_not_stored(store: Store) -> None:
    response = wrap_response({"id": 7, "ok": True}, summary="One thing", store=store)
    assert response == '{"summary":"One thing","success":true,"hasMore":false,"data":{"id":7,"ok":true}}'
    assert list(store.list()) == []


def test_the_eleventh_item_is_stored(store: Store) -> None:
    assert wrap_response(list(range(10)), summary="s", store=store).to_dict()["hasMore"] is False
    fields = wrap_response(list(range(11)), summary="s", store=store, domain="numbers").to_dict()
    assert fields["data"] == {"items": list(range(10)), "totalCount": 11, "showing": 10}
    assert (fields["count"], fields["hasMore"]) == (11, True)
    assert fields["artifactRef"].startswith("ax://numbers/")
    assert retrieve_artifact(fields["artifactRef"], store=store) == list(range(11))


@pytest.mark.parametrize(
    "payload",
    [
        "x" * 501,
        {"a": {"b": {"c": {"d": "a long value"}}}},
        {f"key{number}": 1 for number in range(101)},
        {"k" * 501: 1},
        "l\n" * 21,
    ],
)
def test_an_incomplete_response_refers_to_the_whole_payload(store: Store, payload: Any) -> None:
    fields = wrap_response(payload, summary="s", store=store).to_dict()
    assert fields["hasMore"] is True
    assert retrieve_artifact(fields["artifactRef"], store=store) == payload


def test_a_value_too_deep_is_marked_and_reported_as_left_out(store: Store) -> None:
    values = {"short": 1.5, "list": [1, 2], "long": "a long value", "longest": list(range(9))}
    rows = [{"a": {"b": values}}]
    fields = wrap_response(rows, summary="s", store=store).to_dict()
    shown = [{"a": {"b": {**values, "long": "[truncated]", "longest": "[truncated]"}}}]
    assert (fields["data"], fields["hasMore"]) == (shown, True)
    assert retrieve_artifact(fields["artifactRef"], store=store) == rows

    # A text that equals the marker is not a cut.
    fields = wrap_response(shown, summary="s", store=store).to_dict()
    assert (fields["data"], fields["hasMore"], "artifactRef" in fields) == (shown, False, False)


def test_keys_of_the_payload_stay_below_data(store: Store) -> None:
    payload = {
        "summary": "mine",
        "success": False,
        "count": -1,
        "hasMore": True,
        "artifactRef": "ax://evil/x",
        "data": 0,
    }
    fields = wrap_response(payload, summary="ours", store=store).to_dict()
    assert fields == {"summary": "ours", "success": True, "hasMore": False, "data": payload}


def test_a_failure_has_success_false(store: Store) -> None:
    fields = wrap_response("no such file", summary="", success=False, store=store).to_dict()
    assert (fields["success"], fields["summary"], fields["data"]) == (False, "Failed", "no such file")
    assert wrap_response(None, summary=" \n ", store=store).to_dict()["summary"] == "Done"


def test_the_first_and_the_last_lines_of_a_log_are_shown(store: Store) -> None:
    log = "".join(f"line {number}\n" for number in range(1000))
    fields = wrap_response(log, summary="log", store=store).to_dict()
    assert fields["data"] == {
        "head": [f"line {number}" for number in range(10)],
        "tail": [f"line {number}" for number in range(990, 1000)],
        "lineCount": 1000,
    }
    single_line = wrap_response("x" * 69_000, summary="one line", store=store).to_dict()
    assert single_line["data"] == "x" * 500 + "..."
    long_lines = wrap_response("\n".join(["y" * 3000] * 3), summary="long lines", store=store).to_dict()
    assert long_lines["data"] == {"head": ["y" * 500 + "..."] * 3, "tail": [], "lineCount": 3}


def test_log_lines_that_look_like_the_marker_are_shown(store: Store) -> None:
    lines = [f"[... {number} lines left out ...]" for number in range(40)]
    fields = wrap_response("\n".join(lines), summary="log", store=store).to_dict()
    assert fields["data"] == {"head": lines[:10], "tail": lines[-10:], "lineCount": 40}


def test_a_binary_is_shown_by_type_and_size(store: Store) -> None:
    fields = wrap_response(b"\x89PNG\r\n\x1a\n\x00" + bytes(300), summary="picture", store=store).to_dict()
    assert fields["data"] == {"mimeType": "image/png", "sizeBytes": 309}
    assert len(retrieve_artifact(fields["artifactRef"], store=store)) == 309


def test_a_lone_surrogate_is_replaced(store: Store) -> None:
    response = wrap_response({"a": "ok \ud83d end", "b": "😀"}, summary="\ude00 s", store=store)
    assert orjson.loads(response.encode())["data"] == {"a": "ok \ufffd end", "b": "😀"}
    # The store has the original.
    assert retrieve_artifact(response.to_dict()["artifactRef"], store=store) == {"a": "ok \ud83d end", "b": "😀"}
    escaped = '{"a":"\\ud83d\\ude00","b":"\\\\ud83d","c":"\\ude00\\ud83d"}'
    assert wrap_response(escaped, summary="s", store=store).to_dict()["data"] == {
        "a": "😀",
        "b": "\\ud83d",
        "c": "\ufffd\ufffd",
    }


def test_numbers_stay_as_they_are_written(store: Store) -> None:
    response = wrap_response('{"big": 123456789012345678901234567890, "exact": 1.50}', summary="s", store=store)
    assert '"data":{"big":123456789012345678901234567890,"exact":1.50}' in response
    assert response.to_dict()["hasMore"] is False


def test_a_full_store_is_reported_beside_the_excerpt(tmp_path: Path) -> None:
    with store_at(tmp_path / "store", quota_bytes=10) as full:
        fields = wrap_response(list(range(5000)), summary="many", store=full).to_dict()
        assert "artifactRef" not in fields
        assert (fields["error"]["code"], fields["hasMore"], fields["success"]) == ("store_full", True, True)
        assert fields["data"]["totalCount"] == 5000
        with pytest.raises(StoreFull):
            store_artifact("d", "i", list(range(5000)), store=full)
        listed = paginated_list([{"id": 1}], domain="d", store=full).to_dict()
        assert (listed["error"]["code"], "artifactRef" in listed) == ("store_full", False)


def test_a_store_that_cannot_be_opened_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("FOREBAY_HOME", str(tmp_path / "file"))
    fields = wrap_response(list(range(11)), summary="s").to_dict()
    assert (fields["error"]["code"], "artifactRef" in fields) == ("store_unavailable", False)
    assert wrap_response([1], summary="s").to_dict()["data"] == [1]


def test_redactions_apply_to_the_excerpt(tmp_path: Path) -> None:
    with store_at(tmp_path / "store", redact=lambda data: data.replace(b"secret", b"[gone]")) as redacting:
        for payload in (["secret"], ["secret"] * 50):
            response = wrap_response(payload, summary="s", store=redacting)
            assert "secret" not in response
            assert "[gone]" in response
        assert retrieve_artifact(response.to_dict()["artifactRef"], store=redacting) == ["[gone]"] * 50

    def broken(data: bytes) -> bytes:
        raise ValueError(data)

    with store_at(tmp_path / "other", redact=broken) as failing:
        fields = wrap_response("secret", summary="secret", store=failing).to_dict()
        assert fields["error"]["code"] == "redaction_failed"
        assert "secret" not in json.dumps(fields)


def test_the_default_store_is_used_without_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_HOME", str(tmp_path / "home"))
    fields = wrap_response(list(range(11)), summary="s").to_dict()
    assert retrieve_artifact(fields["artifactRef"]) == list(range(11))
    with forebay.open_store(tmp_path / "home", sweep_interval=0) as store:
        assert store.stat(str(extract_handle(fields["artifactRef"]))).source_tool == "ax://result/result"


# References.

domains = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)
ids = st.text(min_size=1, max_size=14) | st.sampled_from(
    ["a/b", "~oh_AAAAAAAAAAAA", "..", "x~y", "?q=1#f", "\ud800", " "]
)


@pytest.mark.slow
@given(domains, ids, st.sampled_from([12, 26]))
def test_every_reference_leads_to_its_handle(domain: str, id: str, length: int) -> None:  # noqa: A002
    handle = new_handle(length)
    ref = make_reference(domain, id, handle)
    assert extract_handle(ref) == handle
    assert is_handle(extract_handle(ref))
    assert ref.isascii()
    assert not set(' "\\\n') & set(ref)


def test_artifacts_of_the_same_name_are_separate(store: Store) -> None:
    first, second = (store_artifact("bugfix", "scan/7 ~", {"run": run}, store=store) for run in (1, 2))
    assert first != second
    assert first.startswith("ax://bugfix/scan%2F7%20%7E~oh_")
    assert [retrieve_artifact(ref, store=store) for ref in (first, second)] == [{"run": 1}, {"run": 2}]


@pytest.mark.parametrize(
    "payload", [None, 3, "text", "two\nlines", b"\x00\xff", [1, {"a": None}], '{"a": 1}\n{"a": 2}\n']
)
def test_an_artifact_round_trips(store: Store, payload: Any) -> None:
    found = retrieve_artifact(store_artifact("d", "i", payload, store=store), store=store)
    assert found == ([{"a": 1}, {"a": 2}] if isinstance(payload, str) and payload[0] == "{" else payload)


def test_a_compressed_artifact_is_retrieved_decompressed(store: Store) -> None:
    ref = store_artifact("d", "i", gzip.compress(b'{"a": [1, 2]}'), store=store)
    assert retrieve_artifact(ref, store=store) == {"a": [1, 2]}


@pytest.mark.parametrize("domain", ["", "a b", "a/b", "é", "-a", "x" * 65, None, 3])
def test_invalid_names_are_refused_before_storing(store: Store, domain: Any) -> None:
    with pytest.raises(InvalidArgument, match="a domain is 1 to 64 letters"):
        store_artifact(domain, "id", 1, store=store)
    if domain:
        with pytest.raises(InvalidArgument, match="a domain is"):
            wrap_response([1], summary="s", store=store, domain=domain)
    with pytest.raises(InvalidArgument, match="an id is 1 to 128"):
        store_artifact("d", "" if domain != 3 else "x" * 129, 1, store=store)
    assert list(store.list()) == []


@pytest.mark.parametrize(
    "ref", ["", "ax://d/i", "oh_AAAAAAAAAAAA", "ax://d/i~oh_lower", "http://d/i~oh_AAAAAAAAAAAA", 3]
)
def test_an_invalid_reference_is_refused(store: Store, ref: Any) -> None:
    with pytest.raises(InvalidArgument, match="a reference is ax://domain/id~oh_"):
        retrieve_artifact(ref, store=store)
    with pytest.raises(HandleNotFound):
        retrieve_artifact("ax://d/i~oh_AAAAAAAAAAAA", store=store)


# Lists.

ROWS = [
    {"id": f"bug-{number}", "title": f"Title {number}", "severity": "high", "extra": "x" * 100} for number in range(23)
]


def test_a_cursor_continues_its_own_list_only(store: Store) -> None:
    first = paginated_list(ROWS, domain="bug", label_field="title", store=store).to_dict()
    assert first["summary"] == "23 bug(s)"
    assert first["items"][0] == {"id": "bug-0", "label": "Title 0", "severity": "high"}
    second = paginated_list(ROWS, domain="bug", cursor=first["nextCursor"], store=store).to_dict()
    assert second["items"][0]["id"] == "bug-10"
    assert second["artifactRef"] == first["artifactRef"]
    assert len(list(store.list())) == 1
    assert retrieve_artifact(first["artifactRef"], store=store) == ROWS
    with pytest.raises(InvalidArgument, match="leave cursor out"):
        paginated_list(ROWS, domain="other", cursor=first["nextCursor"])
    for other in (ROWS[:4], ROWS[1:], [{"id": "x"}] * len(ROWS)):
        with pytest.raises(InvalidArgument, match="has changed since"):
            paginated_list(other, domain="bug", cursor=first["nextCursor"])


def test_a_modified_cursor_is_refused() -> None:
    # A length at which base64 leaves bits of the last character unused.
    cursor = paginated_list(ROWS, domain="bug", limit=5).to_dict()["nextCursor"]
    assert len(cursor) % 4
    for index in range(len(cursor)):
        for other in string.ascii_letters + string.digits + "-_":
            changed = cursor[:index] + other + cursor[index + 1 :]
            if changed != cursor:
                with pytest.raises(InvalidArgument, match="is no nextCursor of this list"):
                    paginated_list(ROWS, domain="bug", cursor=changed)
    for invalid in ("", "10", cursor + "=", cursor + "A", cursor[:-1], "é", 10, "A" * 100_000):
        with pytest.raises(InvalidArgument, match="is no nextCursor") as caught:
            paginated_list(ROWS, domain="bug", cursor=invalid)  # type: ignore[arg-type]
        assert len(str(caught.value)) < 300


@pytest.mark.slow
def test_a_cursor_of_another_process_is_refused() -> None:
    output = subprocess.run(
        [
            sys.executable,
            "-c",
            "from forebay.outputs.contract import *; print(paginated_list([{'id': 1}] * 30, domain='bug'))",
        ],
        check=True,
        capture_output=True,
    ).stdout
    with pytest.raises(InvalidArgument, match="before a restart"):
        paginated_list(ROWS, domain="bug", cursor=json.loads(output)["nextCursor"])


def test_objects_are_items_too() -> None:
    class Bug:
        id, name, severity = 7, "Crash " * 20, "critical"

    fields = paginated_list([Bug()], domain="bug", label_field="name").to_dict()
    (item,) = fields["items"]
    assert item == {"id": "7", "label": ("Crash " * 20)[:47] + "...", "severity": "critical"}
    assert len(item["label"]) == 50
    assert paginated_list([], domain="bug").to_dict()["items"] == []
    for limit in (0, -1, "5"):
        with pytest.raises(InvalidArgument, match="limit"):
            paginated_list(ROWS, domain="bug", limit=limit)  # type: ignore[arg-type]


# Summaries and limits.


def test_summaries() -> None:
    by_severity = {"medium": 7, "low": 0, "critical": 3, "high": 5}
    assert create_summary("Found bugs", 15, by_severity) == "Found bugs: 15 total (3 critical, 5 high, 7 medium)"
    assert create_summary("Found", 2, {"odd": 1, "high": 1}) == "Found: 2 total (1 high, 1 odd)"
    assert create_summary("Listed", 3) == "Listed: 3 items"
    assert create_summary("Scanned", 0, {"high": 0}) == "Scanned: 0 total"
    long = create_summary("Scanned every file of " * 9, 15, by_severity)
    assert len(long) == 100
    assert long.endswith("...: 15 total (3 critical, 5 high, 7 medium)")
    assert len(create_summary("a", 1, {f"severity-{number}": 1 for number in range(40)})) == 100
    with pytest.raises(InvalidArgument, match="count"):
        create_summary("a", -1)


@pytest.mark.parametrize(
    ("tool", "category"),
    [
        ("bugfix_scan", "scan"), ("refactor_list", "list"), ("list_files", "list"), ("agent_run", "execution"),
        ("session_status", "status"), ("trace_get", "status"), ("memory_store", "config"), ("config_set", "config"),
        ("crawl", None),
    ],
)  # fmt: skip
def test_the_category_of_a_tool(tool: str, category: str | None) -> None:
    assert category_of(tool) == category


@pytest.mark.parametrize(
    "invalid",
    [
        {"max_bytes": 1023},
        {"max_bytes": 2048.0},
        {"max_array_items": 0},
        {"max_json_depth": 65},
        {"max_log_lines": True},
    ],
)
def test_invalid_limits_are_refused(invalid: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(invalid))):
        ResponseLimits(**invalid)


def test_invalid_arguments_are_refused(store: Store) -> None:
    invalid: list[dict[str, Any]] = [{"category": "big"}, {"success": "yes"}, {"summary": 3}]
    for arguments in invalid:
        with pytest.raises(InvalidArgument, match=next(iter(arguments))):
            wrap_response(1, **{"summary": "s", "store": store, **arguments})


def test_the_smaller_of_category_and_limits_counts(store: Store) -> None:
    rows = ["x" * 400] * 10
    small = wrap_response(rows, summary="s", category="scan", limits=ResponseLimits(), store=store)
    assert len(small) < 2048
    assert (
        len(wrap_response(rows, summary="s", category="scan", limits=ResponseLimits(max_bytes=1024), store=store))
        < 1024
    )


# The decorator.


def test_the_decorator_wraps_a_plain_function(store: Store) -> None:
    @contracted(store=store)
    def number_list(count: int, start: int = 0) -> list[int]:
        """Numbers."""
        return list(range(start, start + count))

    fields = Response(number_list(5000, start=2)).to_dict()
    assert (fields["summary"], fields["count"]) == ("number_list: 5000 items", 5000)
    assert fields["artifactRef"].startswith("ax://number_list/")
    assert len(str(number_list(5000))) < 2048
    assert number_list.__doc__ == "Numbers."
    assert "return" not in number_list.__annotations__


def test_a_small_list_inside_does_not_give_the_count(store: Store) -> None:
    @contracted(store=store)
    def report() -> dict[str, Any]:
        return {"text": "x" * 40_000, "errors": []}

    fields = Response(report()).to_dict()
    assert fields["summary"] == "report: done"
    assert "count" not in fields


def test_annotations_that_cannot_be_evaluated_stay_texts(store: Store) -> None:
    @contracted(store=store)
    def find(row: "OnlyForTypeCheckers") -> list[int]:  # type: ignore[name-defined]  # noqa: F821
        return [row]

    assert inspect.signature(find).parameters["row"].annotation == "OnlyForTypeCheckers"
    assert Response(find(1)).to_dict()["data"] == [1]


def test_a_response_is_not_wrapped_again(store: Store) -> None:
    @contracted
    def scan() -> Response:
        return wrap_response([1], summary="mine", store=store)

    assert scan().to_dict()["data"] == [1]


def test_the_decorator_wraps_an_async_function(store: Store) -> None:
    @contracted(summary=lambda bugs: create_summary("Found", len(bugs)), category="scan", store=store, domain="bugs")
    async def find() -> list[int]:
        await asyncio.sleep(0)
        return list(range(40))

    fields = Response(asyncio.run(find())).to_dict()
    assert fields["summary"] == "Found: 40 items"
    assert fields["artifactRef"].startswith("ax://bugs/")


def test_exceptions_pass_through_the_decorator(store: Store) -> None:
    @contracted(store=store)
    def broken() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        broken()


def test_importing_the_contract_brings_no_sdk() -> None:
    code = "import sys, forebay.outputs.contract; print({'mcp', 'pydantic', 'fastmcp'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout.strip() == b"set()"
