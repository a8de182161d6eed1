"""Operations that call the functions of a Python module."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from forebay import InvalidArgument
from forebay.operations import CallError, OperationRegistry
from forebay.operations.functions import from_module
from waiting import wait_until_async

MODULE = """
import asyncio
import datetime

def stars(first: int = 0, *args, **kw):
    return [first, list(args), kw]

def rest(*args: int):
    return list(args)

def untyped(a, b=2):
    return [a, b]

def copies(copy, **copied):
    return [copy, copied]

def inexact(day: datetime.date):
    return day

def fails():
    raise ValueError("no")

def leaves():
    raise SystemExit(3)

async def gives_up():
    raise asyncio.CancelledError

waiting = False

async def waits():
    global waiting
    waiting = True
    await asyncio.Event().wait()
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


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("_private = 1", "the module broken has no public functions; define one, or name it in __all__"),
        ("__all__ = ['gone']", "broken has no gone, which its __all__ names"),
        ("import not_installed_anywhere", "No module named 'not_installed_anywhere'; install what it needs"),
        ("def f(:", "the module broken cannot be imported: SyntaxError: "),
        ("raise SystemExit(2)", "the module broken cannot be imported: SystemExit: 2"),
        ("def f(_hidden): ...", r"n\.f cannot be a tool: .*_hidden"),
        ("def f(value: object()): ...", r"n\.f cannot be a tool: "),
        ("from typing import *\ndef f(run: Callable[[], int]): ...", r"n\.f cannot be a tool: .* JsonSchema .*Schema$"),
        ("largest = max\n__all__ = ['largest']", r"n\.largest cannot be a tool: no signature"),
    ],
)
def test_an_unusable_module_is_refused_and_imported_again_when_it_was_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "broken.py").write_text(source)
    with pytest.raises(InvalidArgument, match=message):
        from_module("broken", namespace="n")
    (tmp_path / "broken.py").write_text("def mended(): ...")
    try:
        assert [operation.spec.id for operation in from_module("broken", namespace="n")] == ["n.mended"]
    finally:
        del sys.modules["broken"]


def test_arguments_of_the_wrong_type_are_refused(registry: OperationRegistry) -> None:
    with pytest.raises(CallError, match=r"n\.inexact cannot be called with this: day: .*date") as caught:
        call(registry, "inexact", day="2026-02-30x")
    assert caught.value.code == "VALIDATION_ERROR"


def test_a_function_can_fail_exit_and_be_cancelled(registry: OperationRegistry) -> None:
    for name, message in (("fails", "no"), ("leaves", "raised SystemExit"), ("gives_up", "raised CancelledError")):
        with pytest.raises(CallError, match=message) as caught:
            call(registry, name)
        assert caught.value.code == "EXECUTION_ERROR"

    async def cancel() -> None:
        task = asyncio.create_task(registry.execute("n.waits", {}))
        await wait_until_async(lambda: sys.modules["module_of_functions"].waiting)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
