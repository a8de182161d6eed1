"""The pages of the reference, generated from the code."""

import contextlib
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import forebay
import forebay.cli
import orjson
from forebay import errors
from forebay.config.options import OPTIONS, Option
from forebay.outputs.capabilities import CapabilityFilter
from forebay.outputs.export import ExportRoots
from forebay.outputs.tools import OutputTools

from docs_site.signatures import find_definition, format_definition, list_members

__all__ = ["build_reference"]

_HELP_COLUMNS = "100"

_VERBS = [
    *("index_items", "index_lines", "read_items", "read_text", "read_lines"),
    *("preview", "truncate", "truncate_lines", "outline", "get", "locate", "project", "patch", "search"),
]
_RESULTS = ["ItemIndex", "ItemIndexer", "Span", "ItemPage", "LinePage", "TextPage", "Cut", "SearchResult", "Match"]
_STORE = [
    "open_store",
    "Options",
    "Store",
    "Descriptor",
    "Page",
    "SearchPage",
    "QueryPage",
    "StoredOutput",
    "SweepReport",
]

_CONSTANTS = {"OPERATOR", "__version__"}
"""Names of `forebay.__all__` that are neither functions nor classes."""


def build_reference() -> dict[str, str]:
    """Return the generated pages by path."""
    covered = {*_VERBS, *_RESULTS, *_STORE, *errors.__all__, *_CONSTANTS}
    if missing := set(forebay.__all__) - covered:
        raise LookupError(f"the reference lacks {', '.join(sorted(missing))}: add them to tools/docs_site/reference.py")
    return {
        "reference/functions.md": "".join(_build_functions()),
        "reference/store.md": "".join(_build_store()),
        "reference/errors.md": "".join(_build_errors()),
        "reference/commands.md": "".join(_build_commands()),
        "reference/options.md": "".join(_build_options()),
        "reference/tools.md": "".join(_build_tools()),
    }


def _build_functions() -> Iterator[str]:
    yield "# Functions\n\nThe functions of the package `forebay` that work on any bytes, without a store. "
    yield "Generated from `_core.pyi`.\n\n"
    for name in _VERBS:
        yield format_definition(name, 2) + "\n"
    yield "## Results\n\n"
    for name in _RESULTS:
        yield from _build_class(name, 3)


def _build_store() -> Iterator[str]:
    yield "# Store\n\nGenerated from the docstrings. Every method that blocks has an async version, such as "
    yield "`fetch_async` for `fetch`. `principal=forebay.OPERATOR` sees the payloads of every principal.\n\n"
    for name in _STORE:
        if name == "open_store":
            yield format_definition(name, 2) + "\n"
        else:
            yield from _build_class(name, 2)


def _build_class(name: str, level: int) -> Iterator[str]:
    yield format_definition(name, level) + "\n"
    fields = []
    for member in list_members(name):
        found = find_definition(member)
        if found.code.startswith(("def ", "async def ")):
            yield format_definition(member, level + 1) + "\n"
        else:
            fields.append(f"- `{found.code}`" + (f": {_join(found.doc)}" if found.doc else "") + "\n")
    if fields:
        yield f"{'#' * (level + 1)} Fields of `{name}`\n\n" + "".join(fields) + "\n"


def _join(doc: str) -> str:
    """Return a docstring as one paragraph of a list item."""
    return " ".join(doc.split())


def _build_errors() -> Iterator[str]:
    yield "# Errors\n\nEvery error is a `ForebayError`, and also a builtin exception that callers already catch. "
    yield 'A model gets `{"error": {"code", "message"}}`, and the message names the next step. '
    yield "Generated from `errors.py`.\n\n"
    yield "| error | also a | code | |\n|---|---|---|---|\n"
    for name in ["ForebayError", *(name for name in errors.__all__ if name != "ForebayError")]:
        error = getattr(errors, name)
        bases = ", ".join(f"`{base.__name__}`" for base in error.__bases__)
        yield f"| `{name}` | {bases} | `{error.code}` | {_escape_cell(_join(error.__doc__ or ''))} |\n"


def _build_commands() -> Iterator[str]:
    yield "# Command line\n\nThe `--help` of each command.\n\n"
    overview = _print_help()
    yield f"```text\n{overview}```\n\n"
    commands = re.findall(r"^    ([a-z][a-z-]*)(?= |$)", overview.partition("\ncommands:\n")[2], re.MULTILINE)
    if len(commands) < 10:
        raise LookupError("the commands were not found in the output of forebay --help")
    for command in commands:
        yield f"## `forebay {command}`\n\n```text\n{_print_help(command)}```\n\n"


def _print_help(*command: str) -> str:
    """Return what `forebay COMMAND --help` prints, with the defaults of an empty environment."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    environ |= {"COLUMNS": _HELP_COLUMNS, "NO_COLOR": "1"}
    output = io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["forebay", *command, "--help"]),
        mock.patch.dict(os.environ, environ, clear=True),
        contextlib.redirect_stdout(output),
        contextlib.suppress(SystemExit),
    ):
        forebay.cli.main()
    return output.getvalue()


def _build_options() -> Iterator[str]:
    yield "# Options\n\nThe options of the gateway, generated from `config/options.py`. A flag wins over a variable, "
    yield "and a variable over the key in the TOML file of `--config`. `forebay config --explain` prints where each "
    yield "value comes from. The options of a store in Python are the fields of [Options](store.md#options).\n\n"
    for title, commands in (
        ("For `wrap` and `serve`", ("wrap", "serve")),
        ("For `wrap` only", ("wrap",)),
        ("For `serve` only", ("serve",)),
    ):
        yield f"## {title}\n\n| key, flag, variable | value | |\n|---|---|---|\n"
        yield from map(_format_option, (option for option in OPTIONS.values() if option.commands == commands))
        yield "\n"


def _format_option(option: Option) -> str:
    names = [
        option.name if option.is_in_file else "",
        *(one.flag for one in (option, *option.aliases)),
        option.variable,
    ]
    values = [f"`{option.type.metavar}`"] if option.type.metavar else []
    if option.default_text:
        values.append(f"default `{option.default_text}`")
    cells = ["<br>".join(f"`{name}`" for name in names if name), "<br>".join(values), _escape_cell(option.help)]
    return f"| {' | '.join(cells)} |\n"


def _escape_cell(text: str) -> str:
    return text.replace("|", "\\|")


def _build_tools() -> Iterator[str]:
    yield "# Tools\n\nThe tools that forebay adds to a server, as a client gets them from `tools/list`. They declare "
    yield "no output schema: it would send every page twice. `output_query` is listed if `forebay[sql]` is installed, "
    yield "`output_export` with `--export-root`, `journal` with `--journal`, and `expand_tools` with "
    yield "`--hidden-tools`.\n\n"
    with tempfile.TemporaryDirectory() as folder, forebay.open_store(Path(folder) / "store") as store:
        tools = OutputTools(
            store,
            prefix="",
            journal=True,
            capabilities=CapabilityFilter(hidden_tools=["workflow_*"]),
            has_references=False,
            export_roots=ExportRoots([folder], store.folder),
        )
        definitions = orjson.loads(orjson.dumps(tools.list_definitions()))
    size = sum(len(orjson.dumps(tool)) for tool in definitions if tool["name"] in _ALWAYS_LISTED)
    yield f"`output_fetch`, `output_search` and `output_query` together take {size:,} bytes of a model's context.\n\n"
    for tool in definitions:
        yield f"## `{tool['name']}`\n\n{tool['description']}\n\n"
        yield "| argument | type | |\n|---|---|---|\n"
        required = tool["inputSchema"].get("required", [])
        for name, schema in tool["inputSchema"]["properties"].items():
            yield f"| `{name}`{' (required)' if name in required else ''} | {_format_type(schema)} | "
            yield f"{_escape_cell(schema.get('description', ''))} |\n"
        block = f"```json\n{json.dumps(tool, indent=2, ensure_ascii=False)}\n```"
        yield f'\n??? note "Definition"\n\n{_indent(block)}\n\n'


_ALWAYS_LISTED = ("output_fetch", "output_search", "output_query")


def _format_type(schema: dict[str, object]) -> str:
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])  # type: ignore[attr-defined]
    items = schema.get("items")
    return f"{schema.get('type', 'any')}" + (f" of {items['type']}" if isinstance(items, dict) else "")


def _indent(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.split("\n"))
