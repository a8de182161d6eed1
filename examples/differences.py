"""Compare a conversation with a server directly with the same conversation through the gateway.

Messages must be equal to the byte, except for words that differ between two direct conversations, such as times and
random ids, and except for the changes that the gateway is meant to make. Those are listed in `ALLOWED`.
"""

import base64
import binascii
import collections
import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import forebay
from capabilities import is_insertion
from conversation import ReceivedMessage

__all__ = ["Verdict", "compare", "is_equal"]

OUR_TOOLS = {"output_fetch", "output_search", "output_query", "journal"}
MAX_HANDLE_RESPONSE_BYTES = 4096
METHOD_NOT_FOUND = -32601
SERVER_INFO = "io.modelcontextprotocol/serverInfo"

_WORD = re.compile(rb'([^\s"{}\[\],]+)')

_Difference = Callable[[ReceivedMessage, ReceivedMessage, forebay.Store], bool]


@dataclasses.dataclass(slots=True)
class Verdict:
    """The result of a comparison: equal messages, allowed differences, and wrong ones."""

    equal: int = 0
    allowed: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    wrong: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        allowed = [f"{count} × {name}" for name, count in self.allowed.items()]
        return ", ".join([f"{self.equal} equal", *allowed, *(f"WRONG: {problem}" for problem in self.wrong)])


def compare(
    direct_run: Sequence[ReceivedMessage],
    repeated_run: Sequence[ReceivedMessage],
    gateway: Sequence[ReceivedMessage],
    store: forebay.Store,
) -> Verdict:
    """Compare two direct conversations with one through the gateway, whose large results are in `store`."""
    verdict = Verdict()
    titles = [[received.title for received in conversation] for conversation in (direct_run, repeated_run, gateway)]
    if not titles[0] == titles[1] == titles[2]:
        verdict.wrong.append(f"other messages, or in another order: {_first_change(*titles)}")
        return verdict
    for direct, repeated, gateway_message in zip(direct_run, repeated_run, gateway, strict=True):
        if is_equal(direct.line, repeated.line, gateway_message.line):
            verdict.equal += 1
        elif (name := _find_allowed_difference(direct, gateway_message, store)) is not None:
            verdict.allowed[name] += 1
        else:
            verdict.wrong.append(f"{direct.title}: {_excerpt(direct.line, gateway_message.line)}")
    return verdict


def _first_change(*titles: list[str]) -> str:
    longest = max(map(len, titles))
    rows = zip(*(row + ["nothing"] * (longest - len(row)) for row in titles), strict=True)
    return next(f"message {number} is {' / '.join(row)}" for number, row in enumerate(rows) if len(set(row)) > 1)


def _excerpt(before: bytes, after: bytes) -> str:
    pairs = enumerate(zip(before, after, strict=False))
    start = next((index for index, (old, new) in pairs if old != new), min(len(before), len(after)))
    shown = slice(max(0, start - 40), start + 80)
    return f"at byte {start} {before[shown]!r} became {after[shown]!r}"


def is_equal(direct: bytes, repeated: bytes, gateway: bytes) -> bool:
    """Return whether the gateway's line is the direct one, except for words that differ between the two direct runs."""
    if gateway in (direct, repeated):
        return True
    words = [_WORD.split(line) for line in (direct, repeated, gateway)]
    return len({len(line) for line in words}) == 1 and all(
        here_word == one_word or (index % 2 and one_word != other_word)
        for index, (one_word, other_word, here_word) in enumerate(zip(*words, strict=True))
    )


def _find_allowed_difference(direct: ReceivedMessage, gateway: ReceivedMessage, store: forebay.Store) -> str | None:
    for name, (methods, is_allowed) in ALLOWED.items():
        if direct.request_method in methods and is_allowed(direct, gateway, store):
            return name
    return None


def _adds_our_tools(direct: ReceivedMessage, gateway: ReceivedMessage, _store: forebay.Store) -> bool:
    return is_insertion(direct.line, gateway.line) and _appends_our_tools(direct, gateway)


def _appends_our_tools(direct: ReceivedMessage, gateway: ReceivedMessage, ignored_key: str | None = None) -> bool:
    """Return whether our tools follow the server's, which are unchanged except for `ignored_key`."""
    before, after = (received.message["result"]["tools"] for received in (direct, gateway))
    unchanged, added = after[: len(before)], after[len(before) :]
    names = {tool["name"] for tool in added}
    return bool(names) and names <= OUR_TOOLS and _drop_key(unchanged, ignored_key) == _drop_key(before, ignored_key)


def _drop_key(tools: list[dict[str, Any]], dropped: str | None) -> list[dict[str, Any]]:
    return [{key: value for key, value in tool.items() if key != dropped} for tool in tools]


def _widens_output_schemas(direct: ReceivedMessage, gateway: ReceivedMessage, _store: forebay.Store) -> bool:
    """Return whether our tools are appended and output schemas also admit a descriptor."""
    pairs = zip(direct.message["result"]["tools"], gateway.message["result"]["tools"], strict=False)
    schemas = [(tool.get("outputSchema"), listed.get("outputSchema")) for tool, listed in pairs]
    return _appends_our_tools(direct, gateway, "outputSchema") and all(
        (schema is None) == (widened is None) and (schema == widened or "anyOf" in widened)
        for schema, widened in schemas
    )


def _adds_our_template(direct: ReceivedMessage, gateway: ReceivedMessage, _store: forebay.Store) -> bool:
    before = direct.message.get("result", {}).get("resourceTemplates", [])
    after = gateway.message["result"]["resourceTemplates"]
    uris = [template["uriTemplate"].split(":")[0] for template in after[len(before) :]]
    is_in_place = "error" in direct.message or is_insertion(direct.line, gateway.line)
    return is_in_place and after[: len(before)] == before and uris == ["forebay"]


def _adds_empty_resource_list(direct: ReceivedMessage, gateway: ReceivedMessage, _store: forebay.Store) -> bool:
    is_unknown = direct.message.get("error", {}).get("code") == METHOD_NOT_FOUND
    return is_unknown and not gateway.message["result"]["resources"]


def _adds_capabilities(direct: ReceivedMessage, gateway: ReceivedMessage, _store: forebay.Store) -> bool:
    before, after = (dict(received.message["result"]) for received in (direct, gateway))
    missing: dict[str, Any] = {name: {} for name in ("tools", "resources") if name not in before["capabilities"]}
    instructions = after.pop("instructions", "")
    expected = {**before, "capabilities": {**before["capabilities"], **missing}}
    own_instructions = expected.pop("instructions", "")
    return after == expected and instructions.startswith(own_instructions) and "output_handle" in instructions


def _is_handle_of_same_result(direct: ReceivedMessage, gateway: ReceivedMessage, store: forebay.Store) -> bool:
    """Return whether the response is a descriptor whose handle holds the whole direct result, beside its images."""
    text, *images = gateway.message["result"]["content"]
    own_bytes = len(gateway.line) - sum(len(json.dumps(image)) for image in images)
    if own_bytes > MAX_HANDLE_RESPONSE_BYTES or len(direct.line) <= len(gateway.line):
        return False
    if not all(image["type"] == "image" and image in direct.message["result"]["content"] for image in images):
        return False
    descriptor = json.loads(text["text"])
    with store.open(descriptor["output_handle"]) as stored:
        return holds_whole_result(stored.read(), direct.message["result"])


def holds_whole_result(payload: bytes, result: dict[str, Any]) -> bool:
    """Return whether a payload is the result's only block, its structured content, or the whole result."""
    blocks = result["content"]
    if len(blocks) == 1 and payload in _decode_block(blocks[0]):
        return True
    try:
        stored = json.loads(payload)
    except ValueError:
        return False
    whole = {key: value for key, value in result.items() if key != "resultType"}
    meta = {key: value for key, value in whole.pop("_meta", {}).items() if key != SERVER_INFO}
    whole |= {"_meta": meta} if meta else {}
    return stored in (whole, result.get("structuredContent", whole))


def _decode_block(block: dict[str, Any]) -> list[bytes]:
    inner = block.get("resource", block)
    contents = [inner["text"].encode()] if "text" in inner else []
    for key in ("data", "blob"):
        try:
            contents += [base64.b64decode(inner[key], validate=True)] if key in inner else []
        except binascii.Error:
            continue
    return contents


ALLOWED: dict[str, tuple[tuple[str, ...], _Difference]] = {
    "our tools behind theirs": (("tools/list",), _adds_our_tools),
    "the same, and output schemas that admit a handle": (("tools/list",), _widens_output_schemas),
    "our resource template behind theirs": (("resources/templates/list",), _adds_our_template),
    "an empty list of resources, where there was none": (("resources/list",), _adds_empty_resource_list),
    "tools, resources and a sentence about handles": (("initialize", "server/discover"), _adds_capabilities),
    "a handle in place of what is large": (("tools/call", "tasks/result"), _is_handle_of_same_result),
}
