"""What tools are listed as: what forebay lets calls of them say, and what it may answer in place of them."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from forebay.outputs.contract.rules import CONTRACT_SCHEMA, ToolContracts
from forebay.outputs.modes import MODE_ARGUMENTS, Mode, ToolModes, add_mode_arguments, split_mode_arguments
from forebay.outputs.references.schemas import allow_references
from forebay.outputs.result import Result

__all__ = [
    "HANDLE_SCHEMA",
    "ToolListing",
    "allow_alternative",
    "allow_handle",
    "allow_handle_for_fastmcp",
    "is_fastmcp_tool",
    "strip_wrap_result",
]

_MAX_CACHED_MODES = 512
"""How many tools' modes are kept: callers make up names."""


class ToolListing:
    """By each tool's mode: what its calls are answered with is what it says that they are."""

    def __init__(self, modes: ToolModes, contracts: ToolContracts, *, per_call: bool, has_references: bool) -> None:
        self._modes = modes
        self._contracts = contracts
        self.per_call = per_call
        self._has_references = has_references
        self._find_mode = functools.lru_cache(_MAX_CACHED_MODES)(self._look_up_mode)

    def _look_up_mode(self, tool: str) -> Mode:
        mode, limits = self._modes.find_mode(tool), self._contracts.find_limits(tool)
        return mode if limits is None else dataclasses.replace(mode, contract=limits)

    def rewrite_tool(self, listed: Mapping[str, Any]) -> dict[str, Any]:
        """A tool as it is to be listed."""
        tool = dict(listed)
        mode = self._find_mode(tool["name"])
        may_ask = self._may_choose_mode(tool)
        taken = _get_input_schema(tool)
        if self._has_references and taken is not None:
            tool["inputSchema"] = taken = allow_references(taken)
        if may_ask and taken is not None:
            tool["inputSchema"] = add_mode_arguments(taken, mode)
        schema = tool.get("outputSchema")
        if isinstance(schema, dict) and mode.contract is not None:
            tool["outputSchema"] = allow_alternative(schema, CONTRACT_SCHEMA)
        elif isinstance(schema, dict) and (may_ask or mode.output_mode != "inline"):
            tool["outputSchema"] = allow_handle_for_fastmcp(schema) if is_fastmcp_tool(tool) else allow_handle(schema)
        return tool

    def resolve_mode(
        self, tool: str, listed: Mapping[str, Any] | None, arguments: Mapping[str, Any]
    ) -> tuple[Mode, Mapping[str, Any]]:
        """The mode of a call, and its arguments without what they say of it, if they may say something."""
        mode = self._find_mode(tool)
        if not self.per_call:
            return mode, arguments
        # What is not known may have arguments of that name itself.
        if listed is not None and any(name in arguments for name in MODE_ARGUMENTS) and self._may_choose_mode(listed):
            return split_mode_arguments(mode, arguments)
        return mode, arguments

    def _may_choose_mode(self, tool: Mapping[str, Any]) -> bool:
        """Whether calls of a tool may choose its mode: not with a contract, or arguments of that name."""
        if not self.per_call or self._contracts.find_limits(tool["name"]) is not None:
            return False
        properties = (_get_input_schema(tool) or {}).get("properties") or {}
        return isinstance(properties, Mapping) and not any(name in properties for name in MODE_ARGUMENTS)


def _get_input_schema(tool: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What a tool says that it takes; `None` if that is no schema, and stays as it is."""
    schema = tool.get("inputSchema") or {}
    return schema if isinstance(schema, Mapping) else None


HANDLE_SCHEMA: dict[str, Any] = {"required": ["output_handle"]}

_DEFINITIONS = ("$defs", "definitions")
_ROOT_KEYS = ("$schema", *_DEFINITIONS)


def allow_handle(schema: Mapping[str, Any]) -> dict[str, Any]:
    """An output schema that takes what it took, or a handle."""
    return allow_alternative(schema, HANDLE_SCHEMA)


def allow_alternative(schema: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """An output schema that takes what it took, or another object.

    Definitions move to its top, where references look for them, and so does what it is a schema of. One that refers to
    itself as a whole cannot be put inside of another: then anything of its type is taken.
    """
    # Only objects were structured once: then the top has to say so.
    top: dict[str, Any] = {"type": "object"} if schema.get("type") == "object" else {}
    if any(
        not reference.startswith(tuple(f"#/{name}/" for name in _DEFINITIONS))
        for reference in _collect_references(schema)
    ):
        return top
    moved = {name: schema[name] for name in _ROOT_KEYS if name in schema}
    original = {name: value for name, value in schema.items() if name not in moved}
    return {**top, **moved, "anyOf": [original, other if top else {"type": "object", **other}]}


def _collect_references(schema: Any) -> list[str]:
    found: list[str] = []
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if key in ("$ref", "$dynamicRef") and isinstance(inner, str):
                    found.append(inner)
                elif key in ("$id", "$anchor"):
                    # A name that others may use; moved, it would be another's.
                    found.append("")
                else:
                    waiting.append(inner)
        elif isinstance(value, list):
            waiting.extend(value)
    return found


_WRAP_RESULT_KEY = "x-fastmcp-wrap-result"
"""What fastmcp says in an output schema of a tool whose answer it puts under `result`."""

_SIMPLE_SCHEMA_KEYS = {
    "type",
    "properties",
    "required",
    "additionalProperties",
    "title",
    "description",
    "$defs",
    _WRAP_RESULT_KEY,
}

_HANDLE_PROPERTIES: dict[str, Any] = {"output_handle": {"type": "string"}, "fetch_with": {"type": "string"}}


def is_fastmcp_tool(tool: Mapping[str, Any]) -> bool:
    """Whether a tool is listed by a server of fastmcp."""
    meta, schema = tool.get("_meta"), tool.get("outputSchema")
    return (isinstance(meta, dict) and "fastmcp" in meta) or (isinstance(schema, dict) and _WRAP_RESULT_KEY in schema)


def allow_handle_for_fastmcp(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What `or_handle` means, said in a way that fastmcp's client makes `data` of: it looks for properties at the top.

    That an answer is under `result` each answer says itself, and a handle does not.
    """
    if not _is_simple_object(schema):
        return allow_handle(schema)
    rest = {key: value for key, value in schema.items() if key not in ("required", _WRAP_RESULT_KEY)}
    rest["properties"] = {**schema["properties"], **_HANDLE_PROPERTIES}
    return {**rest, "type": "object", "anyOf": [{"required": schema.get("required", [])}, HANDLE_SCHEMA]}


def _is_simple_object(schema: Mapping[str, Any]) -> bool:
    """Whether a schema says of an object only what its properties are."""
    properties = schema.get("properties") or {}
    return (
        schema.keys() <= _SIMPLE_SCHEMA_KEYS and bool(properties) and not properties.keys() & _HANDLE_PROPERTIES.keys()
    )


def strip_wrap_result(result: Result) -> Result:
    """Without fastmcp's word that what is structured is under `result`: of a handle that is not so."""
    meta = result.get("_meta")
    said = meta.get("fastmcp") if isinstance(meta, dict) else None
    if not isinstance(meta, dict) or not isinstance(said, dict) or "wrap_result" not in said:
        return result
    kept = {key: value for key, value in meta.items() if key != "fastmcp"}
    rest = {key: value for key, value in said.items() if key != "wrap_result"}
    return {**result, "_meta": {**kept, **({"fastmcp": rest} if rest else {})}}
