"""Private names of the SDKs are used in one module only, and all of them are listed here."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import forebay
import pytest

PACKAGE = Path(forebay.__file__).parent
INTERNALS = PACKAGE / "adapters" / "sdk_internals.py"

PRIVATE_ATTRIBUTES = {
    "_absorb_tool_listing",
    "_closed",
    "_connection",
    "_dispatcher",
    "_drive_input_required",
    "_list_tools",
    "_list_tools_middleware",
    "_lowlevel_server",
    "_mcp_server",
    "_message_handler",
    "_pending",
    "_resolve_pending",
    "_srctx",
    "_stamp",
    "_tokens",
}

PRIVATE_MODULES = {"mcp.shared._httpx_utils"}

OLDER_SDKS = {"mcp_v1", "fastmcp_v2"}
"""Modules for older versions of the SDKs, which cannot be imported here. Only their source is checked."""

FAST_MODULES = {"_duckdb", "_socket"}
"""Extension modules behind public ones. Workers import them directly, because a query waits for their start."""

STANDARD_LIBRARY = {"_Decompress", "_at_fork_reinit", "_base_executable", "_exit", "_fields", "_is_text_encoding"}
"""Private names of the standard library that the package uses."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def find_attributes(tree: ast.Module) -> Iterator[str]:
    """Yield private attributes of objects other than `self`, `cls` and `super()`."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name("self" | "cls") | ast.Call(func=ast.Name("super"))):
                continue
            case ast.Attribute(attr=name) if is_private(name):
                yield name
            case ast.Call(func=ast.Name("getattr" | "setattr" | "hasattr"), args=[_, ast.Constant(str(name)), *_]) if (
                is_private(name)
            ):
                yield name


def find_modules(tree: ast.Module) -> Iterator[str]:
    """Yield private modules of other packages that are imported."""
    for node in ast.walk(tree):
        modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for module in modules:
            if any(map(is_private, module.split("."))) and not module.startswith("forebay"):
                yield module


def find_definitions(tree: ast.Module) -> Iterator[str]:
    """Yield the names of private methods and attributes of the package's own classes."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(name)) | ast.Attribute(value=ast.Name("self"), attr=name):
                yield name


def find_inherited(path: Path) -> Iterator[str]:
    """Yield private names of SDK classes that a subclass in a module overrides or uses."""
    module_name = ".".join(("forebay", *path.relative_to(PACKAGE).with_suffix("").parts))
    for cls in vars(importlib.import_module(module_name)).values():
        if not inspect.isclass(cls) or cls.__module__ != module_name:
            continue
        bases = [base for base in cls.__mro__ if base.__module__.partition(".")[0] in ("mcp", "fastmcp")]
        # To find the source of a class takes long.
        used = {*re.findall(r"(?:self\.|super\(\)\.|def )(_[a-z]\w*)", inspect.getsource(cls))} if bases else set()
        for base in bases:
            yield from used & {*vars(base), *re.findall(r"self\.(_[a-z]\w*)", inspect.getsource(base))}


def test_all_private_names_are_listed() -> None:
    tree = ast.parse(INTERNALS.read_text())
    assert set(find_attributes(tree)) == PRIVATE_ATTRIBUTES
    assert set(find_inherited(INTERNALS)) == set()
    assert set(find_modules(tree)) == PRIVATE_MODULES


@pytest.mark.posix
def test_no_other_module_uses_private_names_of_an_sdk() -> None:
    trees = {path: ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py") if path != INTERNALS}
    own_names = {name for tree in trees.values() for name in find_definitions(tree)}
    allowed = (own_names | STANDARD_LIBRARY) - PRIVATE_ATTRIBUTES
    for path, tree in trees.items():
        used = {*(name for name in find_attributes(tree) if name not in allowed), *find_modules(tree)}
        if path.parent.name in ("query", "system"):
            used -= FAST_MODULES
        # Those for Windows can only be imported there.
        if path.stem not in {"__init__", "__main__", *OLDER_SDKS} and not path.stem.startswith("windows_"):
            used |= {*find_inherited(path)}
        name = path.relative_to(PACKAGE).as_posix()
        assert used == set(), f"{name} must use forebay.adapters.sdk_internals"


def test_every_function_says_which_public_api_does_not_exist() -> None:
    nodes = ast.parse(INTERNALS.read_text()).body
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    assert functions
    for function in functions:
        assert re.search("(?:SDKs? ha(?:s|ve)|fastmcp has) no public ", ast.get_docstring(function) or ""), (
            function.name
        )
