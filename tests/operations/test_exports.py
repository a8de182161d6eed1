"""The public names of operations and envelopes, and what importing them costs."""

import subprocess
import sys

import forebay
import forebay.envelope
import forebay.operations
import pytest

HEAVY = ["mcp", "mcp_types", "httpx2", "pydantic", "yaml"]


@pytest.mark.parametrize("module", [forebay.envelope, forebay.operations])
def test_every_name_is_there(module: object) -> None:
    names = module.__all__  # type: ignore[attr-defined]
    assert len(set(names)) == len(names)
    assert [name for name in names if not hasattr(module, name)] == []


def test_names_that_are_modules_too_are_the_functions() -> None:
    for name in ("cast", "subscribe", "from_mcp", "from_openapi"):
        assert callable(getattr(forebay.operations, name))
    with pytest.raises(AttributeError, match="nothing"):
        forebay.operations.nothing  # noqa: B018


def run(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("module", ["forebay.envelope", "forebay.operations"])
def test_importing_them_imports_neither_sdk_nor_client(module: str) -> None:
    assert run(f"import sys, {module}; print([name for name in {HEAVY} if name in sys.modules])") == "[]"


@pytest.mark.parametrize(("name", "module"), [("from_mcp", "mcp"), ("from_openapi", "openapi")])
def test_a_name_that_is_imported_late_says_what_to_install(
    name: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for loaded in [loaded for loaded in sys.modules if loaded.startswith(f"forebay.operations.{module}")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, {"mcp": "mcp", "openapi": "httpx2"}[module], None)
    with pytest.raises(forebay.MissingExtra, match=rf"forebay\.operations\.{name} .*pip install 'forebay\[serve\]'"):
        getattr(forebay.operations, name)


def test_without_the_extra_it_says_what_to_install() -> None:
    script = "import sys; sys.modules['jsonschema_rs'] = None\ntry: import forebay.operations\n"
    assert "pip install 'forebay[serve]'" in run(script + "except ModuleNotFoundError as error: print(error)")
