"""The adapters show their users only what the documentation names; the rest is in their policy."""

import inspect
from pathlib import Path

from fastmcp.server.middleware import Middleware
from fastmcp.server.middleware.tool_injection import ToolInjectionMiddleware
from forebay.adapters.fastmcp import ForebayMiddleware
from forebay.adapters.mcp import Forebay
from forebay.outputs.policy import OutputPolicy


def public_names(holder: object) -> set[str]:
    return {name for name in dir(holder) if not name.startswith("_")}


def test_what_a_forebay_shows(tmp_path: Path) -> None:
    installed = Forebay(tmp_path.as_uri())
    assert public_names(installed) == {"close", "install", "policy", "store"}
    installed.close()


def test_what_a_middleware_of_fastmcp_shows(tmp_path: Path) -> None:
    installed = ForebayMiddleware(tmp_path.as_uri())
    assert public_names(installed) - public_names(ToolInjectionMiddleware) == {"close", "policy", "store"}
    assert isinstance(installed, Middleware)
    installed.close()


def test_options_are_those_of_the_policy() -> None:
    for adapter in (Forebay, ForebayMiddleware):
        assert inspect.signature(adapter) == inspect.signature(OutputPolicy)
