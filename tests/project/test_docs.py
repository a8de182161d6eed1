"""Every public name has a docstring, and it starts like the one in the stub."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forebay
import pytest
from forebay import _core

STUB = Path(forebay.__file__).with_name("_core.pyi")


def public_names() -> Iterator[tuple[str, Any]]:
    """Yield every exported name and every public member of exported classes."""
    for name in forebay.__all__:
        value = getattr(forebay, name)
        yield name, value
        if inspect.isclass(value) and value.__module__ == _core.__name__:
            yield from ((f"{name}.{member}", getattr(value, member)) for member in vars(value) if member[0] != "_")


def stub_docstrings() -> Iterator[tuple[str, str]]:
    def documented(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, str]]:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node)
                if text is not None:
                    yield prefix + node.name, text
                yield from documented(node.body, f"{prefix}{node.name}.")

    return documented(ast.parse(STUB.read_text(encoding="utf-8")).body, "")


def runtime_doc(name: str) -> str:
    value: Any = _core
    for part in name.split("."):
        value = getattr(value, part)
    return inspect.getdoc(value) or ""


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring on one line."""
    words = " ".join(text.split("\n\n")[0].split())
    return words.partition(". ")[0].removesuffix(".")


def test_every_public_name_has_a_docstring() -> None:
    names = dict(public_names())
    assert {"search", "Match", "Match.line", "ItemIndex.span", "InvalidJSON"} <= names.keys()
    assert [name for name, value in names.items() if not inspect.getdoc(value)] == []
    own = [value for value in names.values() if inspect.isclass(value)]
    assert [value for value in own if not value.__dict__.get("__doc__")] == []


@pytest.mark.parametrize(("name", "text"), [pytest.param(name, text, id=name) for name, text in stub_docstrings()])
def test_a_docstring_starts_like_its_stub(name: str, text: str) -> None:
    assert first_sentence(runtime_doc(name)) == first_sentence(text)
