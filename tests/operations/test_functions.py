"""Operations that call the functions of a Python module."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from forebay import InvalidArgument
from forebay.operations import OperationRegistry
from forebay.operations.functions import from_module

MODULE = """
def stars(first: int = 0, *args, **kw):
    return [first, list(args), kw]

def rest(*args: int):
    return list(args)

def untyped(a, b=2):
    return [a, b]

def copies(copy, **copied):
    return [copy, copied]
"""


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OperationRegistry:
    (tmp_path / "module_of_functions.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return OperationRegistry(from_module("module_of_functions", namespace="n"))


def get_schema(registry: OperationRegistry, name: str) -> dict[str, Any]:
    spec = registry.get_spec(f"n.{name}")
    assert spec is not None
    schema = spec.input_schema
    assert isinstance(schema, dict)
    return schema


def call(registry: OperationRegistry, name: str, **arguments: Any) -> Any:
    return asyncio.run(registry.execute(f"n.{name}", arguments)).data


def test_variadic_parameters_are_not_listed(registry: OperationRegistry) -> None:
    stars, rest = get_schema(registry, "stars"), get_schema(registry, "rest")
    assert (list(stars["properties"]), stars["additionalProperties"]) == (["first"], True)
    assert (rest["properties"], "required" in rest, "additionalProperties" in rest) == ({}, False, False)


def test_other_arguments_are_passed_to_a_function_that_takes_them(registry: OperationRegistry) -> None:
    assert call(registry, "stars", first=1, kw=2, args=3) == [1, [], {"kw": 2, "args": 3}]
    assert call(registry, "copies", copy=1, field_copy=2) == [1, {"field_copy": 2}]
    assert call(registry, "rest", unknown=1) == []


def test_a_parameter_without_an_annotation_has_no_type(registry: OperationRegistry) -> None:
    properties = get_schema(registry, "untyped")["properties"]
    assert properties == {"a": {"title": "a"}, "b": {"title": "b", "default": 2}}
    assert call(registry, "untyped", a=[1], b=3) == [[1], 3]
    assert "type" not in get_schema(registry, "copies")["properties"]["copy"]


def test_the_name_of_a_file_is_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "named_with_suffix.py").write_text("def f(): ...")
    with pytest.raises(InvalidArgument, match=r"no module named_with_suffix.py; .* without .py: named_with_suffix$"):
        from_module("named_with_suffix.py", namespace="n")
