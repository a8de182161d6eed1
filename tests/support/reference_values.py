"""Strategies for values with keys like those of references."""

from typing import Any

from documents import values
from hypothesis import strategies as st

MARKS = st.builds(lambda dollars, name: "$" * dollars + name, st.integers(0, 4), st.sampled_from(["file", "handle"]))
marked = st.recursive(
    values,
    lambda inner: st.dictionaries(MARKS | st.sampled_from(["$files", "$$", "a"]), inner, max_size=4) | st.lists(inner),
    max_leaves=12,
)


def escape(value: Any) -> Any:
    """Escape a value so that it is passed unchanged, as a client would."""
    if isinstance(value, list):
        return [escape(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return {escape_key(key): escape(inner) for key, inner in value.items()}


def escape_key(key: str) -> str:
    return "$" + key if key.startswith("$") and key.lstrip("$") in ("file", "handle", "files") else key
