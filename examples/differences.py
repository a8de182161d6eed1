"""What is different between a server and the same server behind the gateway, of two conversations with it.

Every byte counts, but for what differs between two conversations with the server itself, such as times and random ids,
and for what the gateway is there for. Each difference of that kind has its name here; any other is a mistake.
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
from conversation import Heard

__all__ = ["Verdict", "compared", "is_equal"]

OURS = {"output_fetch", "output_search", "journal"}
MOST_BYTES = 4096
METHOD_NOT_FOUND = -32601
SERVER_INFO = "io.modelcontextprotocol/serverInfo"

_WORD = re.compile(rb'([^\s"{}\[\],]+)')

_Difference = Callable[[Heard, Heard, forebay.Store], bool]


@dataclasses.dataclass(slots=True)
class Verdict:
    """How many messages are equal, which differ as they may, and what is wrong."""

    equal: int = 0
    allowed: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    wrong: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        allowed = [f"{count} × {name}" for name, count in self.allowed.items()]
        return ", ".join([f"{self.equal} equal", *allowed, *(f"WRONG: {what}" for what in self.wrong)])


def compared(first: Sequence[Heard], again: Sequence[Heard], through: Sequence[Heard], store: forebay.Store) -> Verdict:
    """Two conversations with a server, and one through the gateway, which keeps what is large in `store`."""
    verdict = Verdict()
    titles = [[heard.title for heard in conversation] for conversation in (first, again, through)]
    if not titles[0] == titles[1] == titles[2]:
        verdict.wrong.append(f"other messages, or in another order: {_first_change(*titles)}")
        return verdict
    for one, other, here in zip(first, again, through, strict=True):
        if is_equal(one.line, other.line, here.line):
            verdict.equal += 1
        elif (name := _name_of(one, here, store)) is not None:
            verdict.allowed[name] += 1
        else:
            verdict.wrong.append(f"{one.title}: {_excerpt(one.line, here.line)}")
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


def is_equal(one: bytes, other: bytes, here: bytes) -> bool:
    """Whether a line is what came directly, but for words that came otherwise the other time."""
    if here in (one, other):
        return True
    words = [_WORD.split(line) for line in (one, other, here)]
    return len({len(line) for line in words}) == 1 and all(
        here_word == one_word or (index % 2 and one_word != other_word)
        for index, (one_word, other_word, here_word) in enumerate(zip(*words, strict=True))
    )


def _name_of(one: Heard, here: Heard, store: forebay.Store) -> str | None:
    for name, (methods, is_it) in ALLOWED.items():
        if one.answers in methods and is_it(one, here, store):
            return name
    return None


def _is_our_tools(one: Heard, here: Heard, _store: forebay.Store) -> bool:
    return is_insertion(one.line, here.line) and _is_ours_behind(one, here)


def _is_ours_behind(one: Heard, here: Heard, changed: str | None = None) -> bool:
    """Whether a list has ours at its end and is theirs before, but for a key that may be another."""
    theirs, all_of_them = (heard.message["result"]["tools"] for heard in (one, here))
    kept, added = all_of_them[: len(theirs)], all_of_them[len(theirs) :]
    names = {tool["name"] for tool in added}
    return bool(names) and names <= OURS and _without(kept, changed) == _without(theirs, changed)


def _without(tools: list[dict[str, Any]], left_out: str | None) -> list[dict[str, Any]]:
    return [{key: value for key, value in tool.items() if key != left_out} for tool in tools]


def _is_schemas(one: Heard, here: Heard, _store: forebay.Store) -> bool:
    """An object stays one: its schema is now that of the tool, or that of a handle."""
    pairs = zip(one.message["result"]["tools"], here.message["result"]["tools"], strict=False)
    schemas = [(tool.get("outputSchema"), listed.get("outputSchema")) for tool, listed in pairs]
    return _is_ours_behind(one, here, "outputSchema") and all(
        (schema is None) == (widened is None) and (schema == widened or "anyOf" in widened)
        for schema, widened in schemas
    )


def _is_our_template(one: Heard, here: Heard, _store: forebay.Store) -> bool:
    theirs = one.message.get("result", {}).get("resourceTemplates", [])
    listed = here.message["result"]["resourceTemplates"]
    uris = [template["uriTemplate"].split(":")[0] for template in listed[len(theirs) :]]
    is_in_place = "error" in one.message or is_insertion(one.line, here.line)
    return is_in_place and listed[: len(theirs)] == theirs and uris == ["forebay"]


def _is_first_list(one: Heard, here: Heard, _store: forebay.Store) -> bool:
    is_unknown = one.message.get("error", {}).get("code") == METHOD_NOT_FOUND
    return is_unknown and not here.message["result"]["resources"]


def _is_capability(one: Heard, here: Heard, _store: forebay.Store) -> bool:
    before, after = (heard.message["result"] for heard in (one, here))
    missing: dict[str, Any] = {name: {} for name in ("tools", "resources") if name not in before["capabilities"]}
    expected = {**before, "capabilities": {**before["capabilities"], **missing}}
    return bool(missing) and after == expected


def _is_handle(one: Heard, here: Heard, store: forebay.Store) -> bool:
    """A small answer, whose handle gives back all that came directly."""
    if len(here.line) > MOST_BYTES or len(one.line) <= len(here.line):
        return False
    descriptor = json.loads(here.message["result"]["content"][0]["text"])
    with store.open(descriptor["output_handle"]) as stored:
        return is_all_of(stored.read(), one.message["result"])


def is_all_of(payload: bytes, result: dict[str, Any]) -> bool:
    """Whether a payload is a result's only block, what it has structured, or all of it."""
    blocks = result["content"]
    if len(blocks) == 1 and payload in _contents(blocks[0]):
        return True
    try:
        stored = json.loads(payload)
    except ValueError:
        return False
    whole = {key: value for key, value in result.items() if key != "resultType"}
    meta = {key: value for key, value in whole.pop("_meta", {}).items() if key != SERVER_INFO}
    whole |= {"_meta": meta} if meta else {}
    return stored in (whole, result.get("structuredContent", whole))


def _contents(block: dict[str, Any]) -> list[bytes]:
    inner = block.get("resource", block)
    contents = [inner["text"].encode()] if "text" in inner else []
    for key in ("data", "blob"):
        try:
            contents += [base64.b64decode(inner[key], validate=True)] if key in inner else []
        except binascii.Error:
            continue
    return contents


ALLOWED: dict[str, tuple[tuple[str, ...], _Difference]] = {
    "our tools behind theirs": (("tools/list",), _is_our_tools),
    "the same, and output schemas that admit a handle": (("tools/list",), _is_schemas),
    "our resource template behind theirs": (("resources/templates/list",), _is_our_template),
    "an empty list of resources, where there was none": (("resources/list",), _is_first_list),
    "tools and resources among what the server can": (("initialize", "server/discover"), _is_capability),
    "a handle in place of what is large": (("tools/call", "tasks/result"), _is_handle),
}
