"""The public API by name, so that no export is added or removed by accident."""

import ast
from pathlib import Path

import forebay
from forebay import _core, errors

VERBS = [
    "get",
    "index_items",
    "index_lines",
    "locate",
    "outline",
    "patch",
    "preview",
    "project",
    "read_items",
    "read_lines",
    "read_text",
    "search",
    "truncate",
    "truncate_lines",
]
RESULTS = ["Cut", "ItemIndex", "ItemIndexer", "ItemPage", "LinePage", "Match", "SearchResult", "Span", "TextPage"]
STORE = [
    "OPERATOR",
    "Descriptor",
    "Options",
    "Page",
    "QueryPage",
    "SearchPage",
    "Store",
    "StoredOutput",
    "SweepReport",
    "open_store",
]
ERRORS = [
    "CapabilityDisabled",
    "CorruptIndex",
    "FileRefDenied",
    "FileRefNotFound",
    "FileRefTooLarge",
    "ForebayError",
    "HandleCorrupt",
    "HandleNotFound",
    "InvalidArgument",
    "InvalidFormat",
    "InvalidJSON",
    "InvalidPattern",
    "InvalidText",
    "MissingExtra",
    "PatchFailed",
    "PathNotFound",
    "QueryFailed",
    "RedactionFailed",
    "StoreFull",
    "StoreUnavailable",
    "UpstreamFailed",
    "UpstreamTimeout",
]

# Names of the core that the package does not export.
MESSAGES = {
    "Unescaper",
    "dissect",
    "items",
    "members",
    "only_member",
    "same_json",
    "same_text",
    "texts_match_items",
    "values_at",
}
COUNTS = {"LiteralCounter", "MatchCount", "count_matches"}
FILE_FORMATS = {"csv_columns", "name_rows", "to_csv", "to_ndjson"}
INTERNAL = {
    "Chunk",
    "Feed",
    "Filter",
    "Findings",
    "Selection",
    "Survey",
    "build_footer",
    "checksum",
    "escaped_size",
    "has_fields",
    "parse_footer",
    "preview_items",
    "Redactor",
    "replace_texts",
    "unescape",
    *MESSAGES,
    *COUNTS,
    *FILE_FORMATS,
}


def stub_names() -> set[str]:
    """Return the names that `_core.pyi` declares at its top level."""
    stub = Path(forebay.__file__).with_name("_core.pyi").read_text(encoding="utf-8")
    names = set()
    for node in ast.parse(stub).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return names


def test_the_public_api_is_unchanged() -> None:
    assert sorted(forebay.__all__) == sorted([*VERBS, *RESULTS, *STORE, *ERRORS, "__version__"])


def test_every_exported_name_exists() -> None:
    assert [name for name in forebay.__all__ if not hasattr(forebay, name)] == []


def test_the_core_has_what_its_stub_declares() -> None:
    assert [name for name in sorted(stub_names()) if not hasattr(_core, name)] == []


def test_every_name_of_the_core_is_exported_or_listed_as_internal() -> None:
    assert stub_names() - set(forebay.__all__) == INTERNAL


def test_every_error_is_exported() -> None:
    assert sorted(errors.__all__) == ERRORS


def test_every_error_is_a_forebay_error() -> None:
    assert all(issubclass(getattr(errors, name), forebay.ForebayError) for name in ERRORS)
