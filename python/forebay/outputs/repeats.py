"""Whether the blocks of a result only repeat what is structured."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from forebay import _core
from forebay.wire.lazy_json import LazyJSON, part_of

__all__ = ["Text", "is_repeated", "is_text", "sole_text", "texts_of"]

Text: TypeAlias = str | LazyJSON
"""A text, or a string that nobody unescaped."""


def is_text(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, LazyJSON) and value.is_string)


def texts_of(blocks: Sequence[Mapping[str, Any]]) -> list[Text] | None:
    """The texts of blocks; `None` if one of them is something else."""
    texts = [block["text"] for block in blocks if block.get("type") == "text" and is_text(block.get("text"))]
    return texts if len(texts) == len(blocks) else None


def sole_text(texts: Sequence[Text], structured: Any) -> Text | None:
    """The text that was wrapped to be structured: it is what it is without the wrapper."""
    # The second is how the protocol's own servers name it.
    wrapped = [_unwrapped(structured), _unwrapped(structured, "content")]
    is_wrapped = len(texts) == 1 and any(is_text(one) and _is_same_text(texts[0], one) for one in wrapped)
    return texts[0] if is_wrapped else None


def is_repeated(content: Sequence[Text] | LazyJSON, structured: Any) -> bool:
    """Whether texts, or blocks that nobody parsed, say what is structured.

    As one text, or one text an item, with or without a wrapper; or not at all, if there are none.
    """
    wrapped = _unwrapped(structured)
    if isinstance(content, LazyJSON):
        return _each_says(content, wrapped)
    values = [structured] if wrapped is structured else [structured, wrapped]
    if len(content) == 1 and any(_says(content[0], value) for value in values):
        return True
    if isinstance(wrapped, LazyJSON):
        return not content or _each_says([{"type": "text", "text": text} for text in content], wrapped)
    is_each = (
        isinstance(wrapped, list)
        and len(content) == len(wrapped)
        and all(_says(text, item) for text, item in zip(content, wrapped, strict=True))
    )
    return is_each or not content


def _unwrapped(structured: Any, name: str = "result") -> Any:
    """The SDKs wrap what is not an object, because once only objects could be structured."""
    if isinstance(structured, LazyJSON):
        return structured.only_member(name) or structured
    return structured[name] if isinstance(structured, dict) and structured.keys() == {name} else structured


def _each_says(content: Any, items: Any) -> bool:
    if not isinstance(items, list) and not (isinstance(items, LazyJSON) and items.is_array):
        return False
    with part_of(content) as said, part_of(items) as meant:
        return _core.each_says(said, meant)


def _is_same_text(one: Text, other: Text) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    with part_of(one) as said, part_of(other) as meant:
        return _core.same_text(said, meant)


def _says(text: Text, value: Any) -> bool:
    """Whether a text is a value, or the JSON of it to the letter, in one of the ways that servers write it.

    Nothing is parsed: what is only equal to it may say more, as numbers do that Python has no room for.
    """
    if is_text(value) and _is_same_text(text, value):
        return True
    try:
        with part_of(text) as said, part_of(value) as meant:
            return _core.same_json(said, meant)
    except (TypeError, ValueError):
        # What cannot be written is said by no text.
        return False
