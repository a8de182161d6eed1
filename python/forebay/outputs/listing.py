"""Rewrite the tools in `tools/list`: add arguments that calls may use, and allow handles in output schemas."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from forebay.outputs.contract.rules import CONTRACT_SCHEMA, ToolContracts
from forebay.outputs.modes import MODE_ARGUMENTS, Mode, ToolModes, add_mode_arguments, split_mode_arguments
from forebay.outputs.references.schemas import allow_references

__all__ = [
    "HANDLE_SCHEMA",
    "ToolListing",
    "allow_alternative",
    "allow_handle",
    "allow_handle_for_fastmcp",
    "is_fastmcp_tool",
]

_MAX_CACHED_MODES = 512
"""Maximum number of tools whose modes are cached; calls may name tools that do not exist."""


class ToolListing:
    """Tool definitions that match what calls of each tool accept and return."""

    def __init__(self, modes: ToolModes, contracts: ToolContracts, *, per_call: bool, has_references: bool) -> None:
        self._modes = modes
        self._contracts = contracts
        self.per_call = per_call
        self._has_references = has_references
        self.find_mode = functools.lru_cache(_MAX_CACHED_MODES)(self._find_mode)
        """Return the mode of a tool, with its contract."""

    def _find_mode(self, tool: str) -> Mode:
        mode, limits = self._modes.find_mode(tool), self._contracts.find_limits(tool)
        return mode if limits is None else dataclasses.replace(mode, contract=limits)

    def rewrite_tool(self, definition: Mapping[str, Any]) -> dict[str, Any]:
        """Return the definition to list for a tool of the server."""
        tool = dict(definition)
        mode = self.find_mode(tool["name"])
        may_choose_mode = self._may_choose_mode(tool)
        input_schema = _get_input_schema(tool)
        if self._has_references and input_schema is not None:
            tool["inputSchema"] = input_schema = allow_references(input_schema)
        if may_choose_mode and input_schema is not None:
            tool["inputSchema"] = add_mode_arguments(input_schema, mode)
        schema = tool.get("outputSchema")
        if isinstance(schema, dict) and mode.contract is not None:
            tool["outputSchema"] = allow_alternative(schema, CONTRACT_SCHEMA)
        elif isinstance(schema, dict) and (may_choose_mode or mode.output_mode != "inline"):
            tool["outputSchema"] = allow_handle_for_fastmcp(schema) if is_fastmcp_tool(tool) else allow_handle(schema)
        return tool

    def resolve_mode(
        self, tool: str, definition: Mapping[str, Any] | None, arguments: Mapping[str, Any]
    ) -> tuple[Mode, Mapping[str, Any]]:
        """Return the mode of a call, and the arguments for the tool, without those that choose the mode."""
        mode = self.find_mode(tool)
        if not self.per_call or not any(name in arguments for name in MODE_ARGUMENTS):
            return mode, arguments
        # A tool that is not known may itself have arguments of these names.
        if definition is None or not self._may_choose_mode(definition):
            return mode, arguments
        return split_mode_arguments(mode, arguments)

    def _may_choose_mode(self, tool: Mapping[str, Any]) -> bool:
        """Return whether calls may choose the mode: the tool is not under contract and has no such arguments itself."""
        if not self.per_call or self._contracts.find_limits(tool["name"]) is not None:
            return False
        properties = (_get_input_schema(tool) or {}).get("properties") or {}
        return isinstance(properties, Mapping) and not any(name in properties for name in MODE_ARGUMENTS)


def _get_input_schema(tool: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the tool's input schema, or `None` if it is not an object and must stay unchanged."""
    schema = tool.get("inputSchema") or {}
    return schema if isinstance(schema, Mapping) else None


HANDLE_SCHEMA: dict[str, Any] = {"required": ["output_handle"]}
"""Matches the structured content of a result that carries a descriptor."""

_DEFINITIONS = ("$defs", "definitions")
_ROOT_KEYS = ("$schema", *_DEFINITIONS)


def allow_handle(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return an output schema that allows a handle too."""
    return allow_alternative(schema, HANDLE_SCHEMA)


def allow_alternative(schema: Mapping[str, Any], alternative: Mapping[str, Any]) -> dict[str, Any]:
    """Return an output schema that allows another object too.

    Definitions move to the root of the new schema, where references point. A schema with other references cannot be
    nested; it becomes one that allows any value of its type.
    """
    # Older protocol versions require `"type": "object"` at the root.
    root: dict[str, Any] = {"type": "object"} if schema.get("type") == "object" else {}
    prefixes = tuple(f"#/{name}/" for name in _DEFINITIONS)
    if not all(reference.startswith(prefixes) for reference in _collect_references(schema)):
        return root
    moved = {name: schema[name] for name in _ROOT_KEYS if name in schema}
    original = {name: value for name, value in schema.items() if name not in moved}
    return {**root, **moved, "anyOf": [original, alternative if root else {"type": "object", **alternative}]}


def _collect_references(schema: Any) -> list[str]:
    """Return all references in a schema, and `""` for each `$id` or `$anchor`, which could not be nested either."""
    references: list[str] = []
    remaining = [schema]
    while remaining:
        value = remaining.pop()
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if key in ("$ref", "$dynamicRef") and isinstance(inner, str):
                    references.append(inner)
                elif key in ("$id", "$anchor"):
                    references.append("")
                else:
                    remaining.append(inner)
        elif isinstance(value, list):
            remaining.extend(value)
    return references


_WRAP_RESULT_KEY = "x-fastmcp-wrap-result"
"""Set by fastmcp in the output schema of a tool whose return value it wraps as `{"result": value}`."""

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
    """Return whether a tool was listed by a fastmcp server."""
    meta, schema = tool.get("_meta"), tool.get("outputSchema")
    return (isinstance(meta, dict) and "fastmcp" in meta) or (isinstance(schema, dict) and _WRAP_RESULT_KEY in schema)


def allow_handle_for_fastmcp(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return an output schema that allows a handle too, in a form that fastmcp's client can build `data` from.

    That client needs the properties at the root. The wrap key is dropped because a handle is not wrapped; results
    that are wrapped carry their own marker.
    """
    if not _is_simple_object(schema):
        return allow_handle(schema)
    flat = {key: value for key, value in schema.items() if key not in ("required", _WRAP_RESULT_KEY)}
    flat["properties"] = {**schema["properties"], **_HANDLE_PROPERTIES}
    return {**flat, "type": "object", "anyOf": [{"required": schema.get("required", [])}, HANDLE_SCHEMA]}


def _is_simple_object(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema only lists properties, none of them with a name that a descriptor has."""
    properties = schema.get("properties") or {}
    is_simple = schema.keys() <= _SIMPLE_SCHEMA_KEYS and bool(properties)
    return is_simple and not properties.keys() & _HANDLE_PROPERTIES.keys()
