"""Pages, matches and outlines of a payload."""

import base64
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from forebay import _core
from forebay.cli.output.nested import NestedCell
from forebay.cli.output.streams import (
    handle_output_errors,
    print_bytes,
    print_json,
    print_json_text,
    print_note,
    print_rich,
)
from forebay.cli.output.tables import Column, print_columns, print_table
from forebay.cli.output.terminal import get_console, replace_controls, to_plain_text, wants_table
from forebay.cli.output.units import count_noun
from forebay.store.projection import split_field

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from forebay.store.pages import Page
    from forebay.store.search import SearchPage

__all__ = ["print_content", "print_matches", "print_outline", "print_page"]


def print_content(page: "Page") -> None:
    """Print the content of a page to standard output, and how to read the next page to standard error."""
    if page.encoding == "json":
        print_bytes([bytes(page.content), b"\n"])  # type: ignore[arg-type]
    elif page.encoding == "base64":
        print_bytes([base64.b64decode(page.content)])
    else:
        print_bytes([str(page.content).encode()])
    if sys.stderr is None:
        return
    if sys.stderr.isatty():
        _print_position(page, get_console(is_stderr=True))
    elif page.next_offset is not None or page.truncated or page.hint:
        # The content alone does not show that the page is cut, that another page follows, or that a name is wrong.
        import orjson

        remaining: dict[str, Any] = {
            "next_offset": page.next_offset,
            "total": page.total,
            "truncated": page.truncated,
            **({"hint": page.hint} if page.hint else {}),
        }
        sys.stderr.write(orjson.dumps(remaining).decode() + "\n")


def print_page(page: "Page", fields: Sequence[str] | None = None, *, is_json: bool = False) -> None:
    """Print a page. On a terminal, objects that are reduced to `fields` are the rows of a table."""
    if not wants_table(is_json):
        print_json_text(page.to_json())
        return
    rows = _find_rows(page) if fields is not None else None
    if fields is not None and rows:
        # The key of an entry of a map is always there.
        has_keys = "_key" not in fields and all(_find_field(row, ["_key"]) for row in rows)
        print_table({field: [_get_field(row, field) for row in rows] for field in (["_key"] * has_keys + [*fields])})
    elif isinstance(page.content, bytes):
        print_json_text(page.content)
    else:
        print_rich(to_plain_text(page.content))
    with handle_output_errors():
        _print_position(page, get_console())


def _find_rows(page: "Page") -> list[bytes] | None:
    """Return the items of a page if all of them are objects, else `None`."""
    if not isinstance(page.content, bytes):
        return None
    rows = _split_array(page.content)
    return rows if all(row.startswith(b"{") for row in rows) else None


def _split_array(array: bytes) -> list[bytes]:
    return [array[start:end] for start, end in _core.items((array, 0, len(array)), len(array))]


def _get_field(row: bytes, field: str) -> str | NestedCell | None:
    """Return the text of a field, or an object or a list. Numbers have the digits that they are written with."""
    # The row has only what the fields name. A column of CSV, and the key `/name`, are members of this name.
    found = _find_field(row, split_field(field)) or _find_field(row, [field])
    if found is None or found == b"null":
        return None
    if found.startswith(b'"'):
        return str(json.loads(found))
    return NestedCell(_minify(found)) if found.startswith((b"{", b"[")) else found.decode()


def _minify(value: bytes) -> str:
    # An item with a line break is written without white space.
    return _core.to_ndjson(b"[[\n" + value + b"]]")[1:-2].decode()


def _find_field(value: bytes, keys: list[str]) -> bytes | None:
    """Return the JSON of a field. In a list, it is the list of the field's values."""
    if not keys:
        return value
    if value.startswith(b"["):
        return b"[" + b",".join(_find_field(item, keys) or b"null" for item in _split_array(value)) + b"]"
    spans = _core.values_at((value, 0, len(value)), [keys[:1]]) if value.startswith(b"{") else []
    # If a key is repeated, the first one counts.
    return _find_field(value[spans[0][1] : spans[0][2]], keys[1:]) if spans else None


def _print_position(page: "Page", console: "Console") -> None:
    """Print which part of the payload a page is, and how to read the next page."""
    for truncation in page.truncated:
        value, size = truncation["path"] or truncation["index"], truncation["size_bytes"]
        arguments = {name: value for name, value in truncation["read_with"].items() if name != "output_handle"}
        options = " ".join(f"--{name} {value}" for name, value in arguments.items())
        console.print(to_plain_text(f"cut: {value}, {size:,} bytes in all; {options} reads it"), style="dim")
    for path, size in (page.not_in_items or {}).get("paths", {}).items():
        console.print(to_plain_text(f"not among the items: {size:,} bytes; --path {path} reads them"), style="dim")
    if page.hint is not None:
        console.print(to_plain_text(page.hint), style="dim")
    more = "the end" if page.next_offset is None else f"more from --offset {page.next_offset}"
    kind = "matches" if page.unit == "matches" else page.format
    position = f"{kind}: {page.returned:,} from {page.offset:,} of {page.total:,}; {more}"
    console.print(position, style="dim", highlight=False)


def print_matches(page: "SearchPage", *, is_json: bool = False) -> None:
    """Print matches as JSON, or as a table with each match highlighted in its context."""
    if not wants_table(is_json):
        print_json_text(page.to_json())
        return
    if page.matches:
        # The context of a match is not cut, because the match may be at its end.
        contexts = [*map(_format_match, page.matches, page.context_offsets)]
        print_columns(
            [
                *(_make_match_column(name, page.matches) for name in ("byte_offset", "item", "line", "path")),
                Column("context", contexts, min_width=10, is_folded=True),
            ]
        )
    print_note(_format_total(page))


def _make_match_column(name: str, matches: Sequence[dict[str, Any]]) -> Column:
    is_path = name == "path"
    cells = [match.get(name) for match in matches]
    return Column(name.partition("_")[0], cells, not is_path, 12 if is_path else None)


def _format_total(page: "SearchPage") -> str:
    """Return a sentence about all matches, and how to see more of them."""
    at_least = "at least " if page.total_is_lower_bound else ""
    text = f"{at_least}{count_noun(page.total_matches, 'match', 'matches')}"
    if page.items_with_matches is not None:
        text += f" in {count_noun(page.items_with_matches, 'item')}"
    if page.searched is not None:
        text += "; searched: " + page.searched.replace("mode='values'", "--mode values")
    return text if page.next_offset is None else f"{text}; more from --offset {page.next_offset}"


def _format_match(match: dict[str, Any], offset: int) -> "Text":
    """Return the value of a match, or its context with the match highlighted."""
    from rich.text import Text

    if "value" in match:
        import orjson

        return to_plain_text(orjson.dumps(match["value"]).decode())
    # Each part is made safe by itself: control characters do not count as many bytes as their replacements.
    context = (match.get("context") or match.get("match") or "").encode()
    parts = context[:offset], context[offset : offset + match["size_bytes"]], context[offset + match["size_bytes"] :]
    before, matched, after = (replace_controls(part.decode(errors="replace")) for part in parts)
    return Text.assemble(before, (matched, "bold red"), after)


def print_outline(handle: str, text: str, *, is_json: bool = False) -> None:
    if wants_table(is_json):
        print_rich(to_plain_text(text))
    else:
        print_json({"output_handle": handle, "outline": text})
