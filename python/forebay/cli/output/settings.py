"""`forebay config` and `forebay doctor`: options, upstreams and the checks of servers."""

from collections.abc import Sequence
from typing import Any

from forebay.cli.output.streams import print_json, print_note, print_rich
from forebay.cli.output.tables import Column, print_columns
from forebay.cli.output.terminal import is_terminal, to_plain_text
from forebay.cli.output.units import format_seconds

__all__ = ["print_checks", "print_settings"]


def print_checks(rows: Sequence[dict[str, Any]], *, if_none: str) -> None:
    """Print what `forebay doctor` found out about servers. On a terminal, problems follow below a table.

    Without rows, a terminal shows the text `if_none`.
    """
    if not is_terminal():
        print_json({"servers": rows, "problems": sum(len(row["problems"]) for row in rows)})
        return
    if not rows:
        print_note(if_none, wraps=True)
        return
    print_columns(
        [
            Column("client", [row["client"] for row in rows], min_width=6),
            Column("server", [row["server"] for row in rows], min_width=6),
            Column("status", [row["status"] for row in rows]),
            Column("forebay", ["yes" if row["behind_forebay"] else "" for row in rows]),
            Column("tools", [row["tools"] for row in rows], is_numeric=True),
            Column("start", [format_seconds(row["start_seconds"]) for row in rows], is_numeric=True),
            Column("limit", [format_seconds(row["start_limit_seconds"]) for row in rows], is_numeric=True),
            Column("shows", [row["result_limit"] or "" for row in rows], min_width=6),
        ]
    )
    for row in rows:
        for text in (*row["problems"], *([row["note"]] if row["note"] else [])):
            subject = row["path"] if row["server"] is None else f"{row['path']}: {row['server']}"
            print_rich(to_plain_text(f"{subject}: {text}"), style=None if row["problems"] else "dim", highlight=False)


def print_settings(explanation: dict[str, Any]) -> None:
    """Print options and upstreams. On a terminal, values are shown as forebay.toml would hold them."""
    if not is_terminal():
        print_json(explanation)
        return
    from forebay.config.option_types import format_toml
    from forebay.config.options import OPTIONS

    if not explanation["options"]:
        print_note("no option is set; `forebay config --explain` prints all options and their defaults")
    for row in explanation["options"]:
        option, is_set = OPTIONS[row["name"]], row["source"] != "default"
        # In a configuration, the word `none` sets an option to `None`.
        value = '"none"' if is_set and row["value"] is None else option.format_value(row["value"])
        print_rich(to_plain_text(f"{row['flag']}  {value}"), style="bold", highlight=False)
        source = f"  set by {row['source']}" if is_set else ""
        names = f"{row['name']}  {row['variable']}  default {option.format_value(row['default'])}{source}"
        folder = (
            f"\n    {'it is' if '://' in row['path'] else 'the folder is'} {row['path']}" if row.get("path") else ""
        )
        print_rich(to_plain_text(f"    {row['help']}\n    {names}{folder}"), highlight=False)
    for upstream in explanation["upstreams"]:
        print_rich(to_plain_text(f"[upstreams.{upstream['name']}]"), style="bold", highlight=False)
        for key, value in upstream.items():
            if key != "name":
                print_rich(to_plain_text(f"    {key} = {format_toml(value)}"), highlight=False)
