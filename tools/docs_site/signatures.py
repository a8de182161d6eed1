"""Read signatures and docstrings from the source, so that nobody has to copy them into the pages."""

import ast
import inspect
from functools import cache
from pathlib import Path
from typing import NamedTuple

from forebay.store.pages import DEFAULT_MAX_BYTES
from forebay.store.queries import DEFAULT_TIMEOUT_SECONDS

from docs_site.layout import REPOSITORY

__all__ = ["Definition", "find_definition", "format_definition", "list_members"]

PACKAGE = REPOSITORY / "python" / "forebay"

_MAX_LINE_CHARS = 88
"""Longer signatures have one parameter on each line."""

_FILES = {
    "Store": "store/store.py",
    "Options": "store/options.py",
    "open_store": "store/__init__.py",
    "Descriptor": "store/handles.py",
    "Page": "store/pages.py",
    "SearchPage": "store/search.py",
    "QueryPage": "store/queries.py",
    "StoredOutput": "store/catalog.py",
    "SweepReport": "store/sweep.py",
    "Journal": "store/journal.py",
}
"""Files of the public names that are defined neither in the stub nor in `errors.py`."""

_CONSTANTS = {"DEFAULT_MAX_BYTES": DEFAULT_MAX_BYTES, "DEFAULT_TIMEOUT_SECONDS": DEFAULT_TIMEOUT_SECONDS}
"""Constants that are defaults in signatures. The site shows their values."""


class Definition(NamedTuple):
    """A function, class or field, as it is written in its file."""

    name: str
    code: str
    """The signature of a function, or the name and type of a field."""
    doc: str


@cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _find_node(name: str) -> tuple[ast.stmt, list[ast.stmt]]:
    """Return the node of a dotted name, and the list of statements that contains it."""
    first, *rest = name.split(".")
    path = PACKAGE / _FILES.get(first, "errors.py" if _is_error(first) else "_core.pyi")
    body = _parse(path).body
    for part in rest:
        body = _find_in(body, first, path).body  # type: ignore[attr-defined]
        first = part
    return _find_in(body, first, path), body


def _find_in(body: list[ast.stmt], name: str, path: Path) -> ast.stmt:
    for node in body:
        if _get_name(node) == name:
            return node
    raise LookupError(f"{name} is not defined in {path}")


def _is_error(name: str) -> bool:
    return any(_get_name(node) == name for node in _parse(PACKAGE / "errors.py").body)


def _get_name(node: ast.stmt) -> str | None:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return None


def find_definition(name: str) -> Definition:
    """Return the definition of a public name, such as `search` or `Store.fetch`."""
    node, body = _find_node(name)
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            doc = ast.get_docstring(node) or ""
            if any(isinstance(one, ast.Name) and one.id == "property" for one in node.decorator_list):
                return Definition(name, f"{node.name}: {_unparse(node.returns)}", doc)
            return Definition(name, _format_function(node, is_method="." in name), doc)
        case ast.ClassDef():
            bases = ", ".join(map(_unparse, node.bases))
            return Definition(
                name, f"class {node.name}" + (f"({bases})" if bases else ""), ast.get_docstring(node) or ""
            )
        case ast.AnnAssign():
            after = body[body.index(node) + 1 :][:1]
            default = "" if node.value is None else f" = {_unparse(node.value)}"
            annotation = _unparse(_resolve_private(name, node.annotation))
            return Definition(name, f"{name.rpartition('.')[2]}: {annotation}{default}", _get_text(after))
    raise LookupError(f"{name} is neither a function nor a class nor a field")


def list_members(name: str) -> list[str]:
    """Return the dotted names of the public members of a class, in their order in the file."""
    node, _ = _find_node(name)
    if not isinstance(node, ast.ClassDef):
        raise LookupError(f"{name} is not a class")
    names = [_get_name(member) for member in node.body if not isinstance(member, ast.Assign)]
    # Fields without annotation are the async twins of methods; the page of the class mentions them.
    return [f"{name}.{member}" for member in dict.fromkeys(names) if member is not None and not member.startswith("_")]


def _resolve_private(name: str, annotation: ast.expr) -> ast.expr:
    """Return the type that a private name in an annotation stands for."""
    if isinstance(annotation, ast.Name) and annotation.id.startswith("_"):
        path = PACKAGE / _FILES[name.partition(".")[0]]
        values = [
            node.value
            for node in _parse(path).body
            if isinstance(node, ast.Assign) and _get_name(node) == annotation.id
        ]
        return values[0] if values else annotation
    return annotation


def _get_text(statements: list[ast.stmt]) -> str:
    match statements:
        case [ast.Expr(value=ast.Constant(value=str(text)))]:
            return inspect.cleandoc(text)
    return ""


def _unparse(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and not node.value.isidentifier():
        # A type in quotes, which is a forward reference.
        return node.value
    return "" if node is None else ast.unparse(node)


def _format_function(node: ast.FunctionDef | ast.AsyncFunctionDef, *, is_method: bool) -> str:
    arguments = node.args
    words: list[str] = []
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + [*arguments.defaults]
    words += [_format_argument(*pair) for pair in zip(positional, defaults, strict=True)]
    is_static = any(isinstance(one, ast.Name) and one.id == "staticmethod" for one in node.decorator_list)
    if is_method and not is_static:
        words = words[1:]
    if arguments.vararg is not None:
        words.append("*" + _format_argument(arguments.vararg, None))
    elif arguments.kwonlyargs:
        words.append("*")
    words += [_format_argument(*pair) for pair in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg is not None:
        words.append("**" + _format_argument(arguments.kwarg, None))
    start = ("async " if isinstance(node, ast.AsyncFunctionDef) else "") + f"def {node.name}("
    end = ")" + (f" -> {_unparse(node.returns)}" if node.returns is not None else "")
    line = start + ", ".join(words) + end
    if len(line) <= _MAX_LINE_CHARS:
        return line
    return start + "\n" + "".join(f"    {word},\n" for word in words) + end


def _format_argument(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg
    if isinstance(default, ast.Name) and default.id in _CONSTANTS:
        default = ast.Constant(_CONSTANTS[default.id])
    if argument.annotation is not None:
        text += f": {_unparse(argument.annotation)}"
    if default is not None:
        text += f" = {_unparse(default)}" if argument.annotation is not None else f"={_unparse(default)}"
    return text


def format_definition(name: str, level: int) -> str:
    """Return a definition as Markdown: a heading, the signature and the docstring."""
    found = find_definition(name)
    heading = f"{'#' * level} `{name}`\n\n" if level else ""
    return f"{heading}```python\n{found.code}\n```\n\n{found.doc}\n"
