"""`forebay lint-tools`: whether every tool of a server says what it is for."""

from argparse import ArgumentTypeError, Namespace
from collections import Counter
from pathlib import Path
from typing import Any

from forebay.cli import show
from forebay.cli.failures import InputFailed
from forebay.errors import ForebayError, InvalidArgument

__all__ = ["ToolsWithoutCapability", "lint_tools", "pattern_and_name"]

_MOST_NAMED = 50


class ToolsWithoutCapability(ForebayError):
    """Tools of which nobody has said what they are for."""

    code = "tool_without_capability"


def lint_tools(args: Namespace) -> None:
    """Fail if a tool of a server has no capability.

    Its own is in its _meta, as forebay/capability; others are given as
    --capability. The server is a command behind --, or a saved tools/list.
    """
    # Imported where it is needed: help is shown without.
    from forebay.outputs.capabilities import Capabilities
    from forebay.proxy.probe import tools_of

    if bool(args.command) == bool(args.saved):
        raise InvalidArgument("name one server: -- COMMAND, or --saved FILE with what it lists")
    tools = _saved(args.saved) if args.saved else tools_of(args.command, timeout=args.timeout)
    capabilities = Capabilities(capabilities=dict(args.capability))
    capabilities.learn(tools, is_all=True)
    found = {name: capabilities.said(name) for name in (str(tool.get("name")) for tool in tools)}
    if without := [name for name, capability in found.items() if capability is None]:
        named = ", ".join(name[:64] for name in without[:_MOST_NAMED]) + (", …" if len(without) > _MOST_NAMED else "")
        raise ToolsWithoutCapability(
            f"{len(without)} of {len(found)} tools have no capability: {named}; "
            "put forebay/capability in their _meta, or give --capability PATTERN=NAME"
        )
    show.answer({"tools": len(found), "capabilities": dict(sorted(Counter(map(str, found.values())).items()))})


def pattern_and_name(text: str) -> tuple[str, str]:
    """What `--capability` takes."""
    pattern, _, name = text.partition("=")
    if not pattern.strip() or not name.strip():
        raise ArgumentTypeError(f"it is PATTERN=NAME, such as 'crawl*=crawl', not {text!r:.64}")
    return pattern.strip(), name.strip()


def _saved(name: str) -> list[dict[str, Any]]:
    """Of a message, its result, or the list alone."""
    import orjson

    try:
        said = orjson.loads(Path(name).read_bytes())
    except OSError as error:
        raise InputFailed(f"{name} cannot be read: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise InputFailed(f"{name} is not JSON: {error}; save what tools/list answers") from None
    for key in ("result", "tools"):
        said = said.get(key, said) if isinstance(said, dict) else said
    if not isinstance(said, list) or not all(isinstance(tool, dict) for tool in said):
        raise InputFailed(f'{name} is no list of tools; save what tools/list answers: {{"tools": [...]}}')
    return said
