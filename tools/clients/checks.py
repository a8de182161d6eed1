"""Checks of what a model sees of the gateway through a client. Each is a column of `docs/clients.md`."""

import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from clients.apis import Part, Picture
from clients.script import LARGE_RESULTS, PAGES, PATTERN, Conversation

ROWS = 20_000
_ROW_NUMBER_FIELDS = {"network": "id", "extract_data": "id", "trace": "seq"}
"""The field of a row that holds its number, for each tool with a large result."""

_DESCRIPTOR_KEYS = {"output_handle", "preview", "item_count"}
_PAGE_KEYS = {"output_handle", "offset", "returned", "next_offset", "content"}
_RESOURCE_LINK_PREFIX = "forebay://output/"
_IMAGE_SIGNATURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF")


class CheckFailed(Exception):
    """The model did not see what it should see."""


@dataclasses.dataclass(frozen=True)
class Expectation:
    """What a client is known to show to the model. The server cannot change this."""

    lists_tools: bool = True
    """Whether the client lists our tools from the start. Otherwise the model has to search for them."""
    shows_instructions: bool = True
    shows_pictures: bool = True
    copies_with_schema: int = 1
    """Descriptors that the model sees if the tool has an output schema: 2 if in text and in structured content."""


@dataclasses.dataclass(frozen=True)
class Observation:
    """The conversation of one client, and what the checks compare it with."""

    conversation: Conversation
    expected: Expectation
    instructions: str
    """The instructions that the gateway sends to clients."""

    def parts(self, step: str) -> Sequence[Part]:
        if step not in self.conversation.seen:
            raise CheckFailed(f"{step}: the conversation did not get there")
        return self.conversation.seen[step]

    def texts(self, step: str) -> list[str]:
        return [part for part in self.parts(step) if isinstance(part, str)]


def check_tools(observation: Observation) -> str:
    """The model can call our tools by the client's names for them, and knows their parameters."""
    conversation = observation.conversation
    for tool, parameter in {"output_fetch": "offset", "output_search": "pattern"}.items():
        if tool not in conversation.known:
            raise CheckFailed(f"{tool} is neither listed nor found by a search")
        # Clients write parameters as JSON Schema or as TypeScript.
        if not re.search(rf'\b{parameter}(":|\?:|:)', conversation.known[tool]):
            raise CheckFailed(f"{tool} is shown without its parameter {parameter}")
    is_listed = conversation.is_listed("output_fetch") and conversation.is_listed("output_search")
    if is_listed is not observation.expected.lists_tools:
        raise CheckFailed("listed, unexpectedly" if is_listed else "found only by a search")
    return "listed" if is_listed else "by search"


def check_instructions(observation: Observation) -> str:
    """The model reads the gateway's instructions, which name `output_fetch`."""
    if "output_fetch" not in observation.instructions:
        raise CheckFailed("the gateway sends no instructions about its tools")
    first = observation.conversation.first
    is_shown = first is not None and " ".join(observation.instructions.split()) in " ".join(first.prompt.split())
    if is_shown is not observation.expected.shows_instructions:
        raise CheckFailed("shown, unexpectedly" if is_shown else "not in what the model reads")
    return "shown" if is_shown else "not shown"


def check_list(observation: Observation) -> str:
    """The model gets one descriptor in place of a large list."""
    return _check_descriptor(observation, "network", 1)


def check_list_with_schema(observation: Observation) -> str:
    """The same for a tool with an output schema: one descriptor for each form of the result that the client shows."""
    return _check_descriptor(observation, "extract_data", observation.expected.copies_with_schema)


def check_text(observation: Observation) -> str:
    """The model gets one descriptor in place of a large text."""
    return _check_descriptor(observation, "trace", 1)


def check_pages(observation: Observation) -> str:
    """Pages arrive whole: consecutive rows, neither cut nor moved to a file by the client."""
    sizes = []
    for tool in LARGE_RESULTS:
        row = 0
        for step in (f"{tool} page {number}" for number in range(1, PAGES + 1)):
            pages = _find_objects(observation.texts(step), _PAGE_KEYS)
            if len(pages) != 1:
                shown = sum(map(len, observation.texts(step)))
                raise CheckFailed(f"{step}: {len(pages)} whole pages in {shown:,} characters")
            (page,) = pages
            numbers = [item[_ROW_NUMBER_FIELDS[tool]] for item in page["content"]]
            if not numbers or numbers != list(range(row, row + page["returned"])) or page["offset"] != row:
                raise CheckFailed(f"{step}: rows {numbers[:1]} to {numbers[-1:]} in place of rows from {row} on")
            row = page["next_offset"]
            if row != numbers[-1] + 1:
                raise CheckFailed(f"{step}: next_offset is {row} after row {numbers[-1]}")
            sizes.append(max(map(len, observation.texts(step))))
    return f"up to {max(sizes):,} characters"


def check_search(observation: Observation) -> str:
    """The hits of a search arrive whole."""
    results = _find_objects(observation.texts("search"), {"output_handle", "pattern", "matches"})
    if len(results) != 1:
        raise CheckFailed(f"{len(results)} whole results in {sum(map(len, observation.texts('search'))):,} characters")
    matches = results[0]["matches"]
    if not matches or not all(PATTERN in json.dumps(match) for match in matches):
        raise CheckFailed(f"{len(matches)} hits, not all of them with {PATTERN!r}")
    return f"{len(matches)} hits"


def check_picture(observation: Observation) -> str:
    """A picture reaches the model as an image."""
    pictures = [part for part in observation.parts("picture") if isinstance(part, Picture)]
    is_shown = len(pictures) == 1 and pictures[0].data.startswith(_IMAGE_SIGNATURES)
    if is_shown is not observation.expected.shows_pictures:
        raise CheckFailed("shown, unexpectedly" if is_shown else f"{len(pictures)} images reach the model")
    return "shown" if is_shown else "not shown"


CHECKS: Mapping[str, Callable[[Observation], str]] = {
    "tools": check_tools,
    "instructions": check_instructions,
    "list": check_list,
    "list with schema": check_list_with_schema,
    "text": check_text,
    "pages": check_pages,
    "search": check_search,
    "picture": check_picture,
}


def _check_descriptor(observation: Observation, step: str, copies: int) -> str:
    texts = observation.texts(step)
    found = _find_objects(texts, {"output_handle"})
    whole = [descriptor for descriptor in found if descriptor.keys() >= _DESCRIPTOR_KEYS]
    suggested = [call["arguments"] for descriptor in whole for call in descriptor.get("next_calls", ())]
    found = [found_object for found_object in found if found_object not in suggested]
    if len(whole) != copies or len(found) != copies:
        stubs = f", and {len(found) - len(whole)} with only a handle" if len(found) > len(whole) else ""
        raise CheckFailed(f"{len(whole)} whole descriptors instead of {copies}{stubs}")
    if any(descriptor != whole[0] for descriptor in whole):
        raise CheckFailed("the copies of the descriptor differ")
    if whole[0]["item_count"] != ROWS or not whole[0]["preview"]:
        raise CheckFailed(f"item_count is {whole[0]['item_count']}, preview is {str(whole[0]['preview'])[:40]!r}")
    if any(_RESOURCE_LINK_PREFIX in text for text in texts):
        raise CheckFailed("there is a resource link beside the descriptor")
    return f"{sum(map(len, texts)):,} characters"


def _find_objects(texts: Sequence[str], keys: set[str]) -> list[Mapping[str, Any]]:
    """Return every JSON object that has all `keys`, including objects in other JSON and in strings of that JSON."""
    return [found for text in texts for found in _walk_text(text) if found.keys() >= keys]


def _walk_text(text: str) -> Iterator[Mapping[str, Any]]:
    decoder = json.JSONDecoder()
    start = text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except ValueError:
            end = start + 1
        else:
            yield from _walk_value(value)
        start = text.find("{", end)


def _walk_value(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _walk_value(item)
    elif isinstance(value, str):
        yield from _walk_text(value)
