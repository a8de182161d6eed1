"""TOML, as people write it."""

import json
import re
from typing import Any

from hypothesis import strategies as st

BLANKS = st.sampled_from(["", " ", "\t", "  "])
ENDS = st.sampled_from(["\n", "\n", " # c = [1\n", "\n\n", '\n# "x"\n', "\r\n"])
SPACES = st.sampled_from(["", " ", "\n", "\n  ", " # [,]\n", "\r\n\t"])


@st.composite
def toml_documents(draw: st.DrawFn, value: dict[str, Any]) -> str:
    """A TOML text of a table, in which tables have headers, dotted keys or braces."""

    def write_key(name: str) -> str:
        ways = [quote(name)]
        if re.fullmatch(r"[A-Za-z0-9_-]+", name):
            ways.append(name)
        if re.fullmatch(r"[^'\x00-\x1f\x7f]*", name):
            ways.append(f"'{name}'")
        return draw(st.sampled_from(ways))

    def write_value(inner: Any, *, is_inline: bool) -> str:
        if isinstance(inner, dict):
            pairs = [
                f"{draw(BLANKS)}{write_key(key)}{draw(BLANKS)}={draw(BLANKS)}{write_value(item, is_inline=True)}"
                for key, item in inner.items()
            ]
            return "{" + ",".join(pairs) + draw(BLANKS) + "}"
        if isinstance(inner, list):
            spaces = BLANKS if is_inline else SPACES
            items = [draw(spaces) + write_value(item, is_inline=is_inline) + draw(spaces) for item in inner]
            comma = draw(st.sampled_from(["", ","])) if items else ""
            return "[" + ",".join(items) + comma + draw(spaces) + "]"
        return write_string(inner) if isinstance(inner, str) else json.dumps(inner)

    def write_string(text: str) -> str:
        ways = [quote(text), f'"""{quote(text)[1:-1]}"""']
        if re.fullmatch(r"[^'\x00-\x1f\x7f]*", text):
            ways += [f"'{text}'", f"'''{text}'''"]
        return draw(st.sampled_from(ways))

    def write_table(table: dict[str, Any], path: list[str], dotted: list[str]) -> tuple[str, str]:
        """Return the lines of a table, and the tables inside of it that have headers."""
        lines, tables = "", ""
        for key, inner in table.items():
            name = ".".join([*dotted, write_key(key)])
            way = draw(st.sampled_from(["header", "inline", "dotted"])) if isinstance(inner, dict) else "inline"
            if way == "dotted" and inner:
                more_lines, more_tables = write_table(inner, [*path, write_key(key)], [*dotted, write_key(key)])
                # A table that dotted keys have made must not be opened by a header.
                if not more_tables:
                    lines += more_lines
                    continue
            if way == "header" and not dotted:
                header = [*path, write_key(key)]
                more_lines, more_tables = write_table(inner, header, [])
                tables += f"{draw(BLANKS)}[{draw(BLANKS)}{'.'.join(header)}]{draw(ENDS)}{more_lines}{more_tables}"
                continue
            pair = f"{name}{draw(BLANKS)}={draw(BLANKS)}{write_value(inner, is_inline=False)}"
            lines += f"{draw(BLANKS)}{pair}{draw(ENDS)}"
        return lines, tables

    text = draw(st.sampled_from(["", "\n", "# c\n", "\ufeff"])) + "".join(write_table(value, [], []))
    return text.rstrip("\r\n") if draw(st.booleans()) else text


def quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
