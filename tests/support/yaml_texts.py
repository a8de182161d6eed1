"""YAML, as people write it."""

import json
import re
from typing import Any

from hypothesis import strategies as st

PLAIN_PATTERN = re.compile(r"(?!(?:true|false|yes|no|on|off|null|y|n)$)[a-z/][a-z0-9/._-]*")
ENDS = st.sampled_from(["\n", "\n", "\n\n", " # c: [1\n", "\n# - x\n"])


@st.composite
def yaml_documents(draw: st.DrawFn, value: dict[str, Any]) -> str:
    """A YAML text of an object, in blocks and in brackets."""

    def write_scalar(inner: Any) -> str:
        if not isinstance(inner, str):
            return json.dumps(inner)
        ways = [quote(inner)]
        if PLAIN_PATTERN.fullmatch(inner):
            ways += [inner, inner]
        if re.fullmatch(r"[ -&(-~]*", inner):
            ways.append(f"'{inner}'")
        return draw(st.sampled_from(ways))

    def write_flow(inner: Any) -> str:
        blanks = st.sampled_from(["", " "])
        if isinstance(inner, dict):
            pairs = [f"{draw(blanks)}{write_scalar(key)}: {write_flow(item)}" for key, item in inner.items()]
            return "{" + ",".join(pairs) + draw(blanks) + "}"
        if isinstance(inner, list):
            return "[" + ",".join(draw(blanks) + write_flow(item) for item in inner) + draw(blanks) + "]"
        return write_scalar(inner)

    def write_block(inner: dict[str, Any], indent: str) -> str:
        text = ""
        for key, item in inner.items():
            name = f"{indent}{write_scalar(key)}:"
            is_block = isinstance(item, dict | list) and item and draw(st.booleans())
            if is_block and isinstance(item, dict):
                text += f"{name}{draw(ENDS)}{write_block(item, indent + draw(st.sampled_from(['  ', '    '])))}"
            elif is_block:
                more = indent + draw(st.sampled_from(["", "  "]))
                text += name + draw(ENDS) + "".join(f"{more}- {write_flow(one)}{draw(ENDS)}" for one in item)
            else:
                text += f"{name} {write_flow(item)}{draw(ENDS)}"
        return text

    text = draw(st.sampled_from(["", "---\n", "# c\n", "\ufeff"])) + write_block(value, "")
    text = text.replace("\n", "\r\n") if draw(st.booleans()) else text
    return text.rstrip("\r\n") if draw(st.booleans()) else text


def quote(text: str) -> str:
    escaped = re.compile("[\x7f-\x9f\u2028\u2029\ufffe\uffff]")
    return escaped.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))
