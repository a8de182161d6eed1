"""JSON with comments, as people write it."""

import json
from typing import Any

from hypothesis import strategies as st

SPACES = st.lists(st.sampled_from([" ", "\n", "\r\n", "\t", "// c\n", "/* [{\"', */", "//\n", "/**/"]), max_size=2).map(
    "".join
)


@st.composite
def documents(draw: st.DrawFn, value: Any) -> str:
    """A JSON text of a value, with random spaces, comments and trailing commas."""

    def around(text: str) -> str:
        return draw(SPACES) + text + draw(SPACES)

    def within(opening: str, parts: list[str], closing: str) -> str:
        comma = draw(st.sampled_from(["", ","])) if parts else ""
        return opening + ",".join(parts) + comma + draw(SPACES) + closing

    match value:
        case dict():
            pairs = ((around(json.dumps(key)), around(draw(documents(inner)))) for key, inner in value.items())
            return within("{", [":".join(pair) for pair in pairs], "}")
        case list():
            return within("[", [around(draw(documents(inner))) for inner in value], "]")
    return json.dumps(value, ensure_ascii=draw(st.booleans()))
