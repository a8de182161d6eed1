"""Pages, matches and outlines of a payload."""

import base64
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from forebay.arguments import decode_token
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
    rows = _parse_rows(page) if fields is not None else None
    if fields is not None and rows:
        # The key of an entry of a map is always there.
        fields = [*(["_key"] if all("_key" in row for row in rows) and "_key" not in fields else []), *fields]
        print_table({field: [_get_field(row, _split_field(field)) for row in rows] for field in fields})
    elif isinstance(page.content, bytes):
        print_json_text(page.content)
    else:
        print_rich(to_plain_text(page.content))
    with handle_output_errors():
        _print_position(page, get_console())


def _parse_rows(page: "Page") -> list[dict[str, Any]] | None:
    """Return the items of a page if all of them are objects, else `None`."""
    try:
        items = json.loads(page.content)
    except (ValueError, RecursionError):
        # Text, or JSON with very long numbers or very deep nesting.
        return None
    is_table = isinstance(items, list) and all(isinstance(item, dict) for item in items)
    return items if is_table else None


def _split_field(field: str) -> list[str]:
    """Return the keys on the way to a field, which is written as `user.name` or `/user/name`."""
    if not field.startswith("/"):
        return field.split(".")
    return [decode_token(key) for key in field[1:].split("/")]


def _get_field(value: Any, keys: list[str]) -> str | NestedCell | None:
    """Return the text of a field, or an object or a list. In a list, it is the list of the field's values."""
    found = _find_field(value, keys)
    if found is None or isinstance(found, str):
        return found
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    return NestedCell(text) if isinstance(found, dict | list) else text


def _find_field(value: Any, keys: list[str]) -> Any:
    if not keys:
        return value
    if isinstance(value, list):
        return [_find_field(item, keys) for item in value]
    return _find_field(value.get(keys[0]), keys[1:]) if isinstance(value, dict) else None


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
