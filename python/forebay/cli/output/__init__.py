"""Printing of results: tables and colours on a terminal, JSON and bytes in a pipe."""

from typing import TYPE_CHECKING

from forebay.cli.output.streams import handle_output_errors, print_bytes, print_error, print_json, print_json_text
from forebay.cli.output.terminal import replace_controls, wants_table

if TYPE_CHECKING:
    from forebay.cli.output.benchmarks import print_benchmarks
    from forebay.cli.output.events import print_events, print_summary
    from forebay.cli.output.nested import NestedCell
    from forebay.cli.output.pages import print_content, print_matches, print_outline, print_page
    from forebay.cli.output.progress import show_mirror_progress, show_progress_bar, show_steps
    from forebay.cli.output.settings import print_checks, print_settings
    from forebay.cli.output.stats import print_stats
    from forebay.cli.output.stored import print_metadata, print_stored
    from forebay.cli.output.tables import print_table

__all__ = [
    "NestedCell",
    "handle_output_errors",
    "print_benchmarks",
    "print_bytes",
    "print_checks",
    "print_content",
    "print_error",
    "print_events",
    "print_json",
    "print_json_text",
    "print_matches",
    "print_metadata",
    "print_outline",
    "print_page",
    "print_settings",
    "print_stats",
    "print_stored",
    "print_summary",
    "print_table",
    "replace_controls",
    "show_mirror_progress",
    "show_progress_bar",
    "show_steps",
    "wants_table",
]

# Modules of names that are imported on first use: a command prints one thing, and `--help` none of these.
_LAZY_IMPORTS = {
    "NestedCell": "nested",
    "print_benchmarks": "benchmarks",
    "print_checks": "settings",
    "print_content": "pages",
    "print_events": "events",
    "print_matches": "pages",
    "print_metadata": "stored",
    "print_outline": "pages",
    "print_page": "pages",
    "print_settings": "settings",
    "print_stats": "stats",
    "print_stored": "stored",
    "print_summary": "events",
    "print_table": "tables",
    "show_mirror_progress": "progress",
    "show_progress_bar": "progress",
    "show_steps": "progress",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module 'forebay.cli.output' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"forebay.cli.output.{_LAZY_IMPORTS[name]}"), name)
