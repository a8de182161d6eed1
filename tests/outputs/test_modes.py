"""Output modes of tools and of single calls."""

import copy

import jsonschema
import pytest
from forebay import InvalidArgument
from forebay.outputs.modes import Mode, ToolModes, add_mode_arguments, split_mode_arguments


def test_the_first_pattern_that_matches_counts() -> None:
    modes = ToolModes(
        Mode("auto"),
        {
            "list_users": "inline",
            "list_*": "handle",
            "get_*": Mode("auto", 7000),
            "*": {"output_inline_limit_bytes": 5000},
        },
    )
    assert modes.find_mode("get_user") == Mode("auto", 7000)
    assert modes.find_mode("list_users").output_mode == "inline"
    assert modes.find_mode("list_rows").output_mode == "handle"
    assert modes.find_mode("other") == Mode("auto", 5000)
    assert modes.find_mode("LIST_rows") == Mode("auto", 5000)


def test_a_call_chooses_its_mode() -> None:
    mode, tool_arguments = split_mode_arguments(
        Mode("inline"), {"output_mode": "auto", "output_inline_limit_bytes": 4096, "url": "x"}
    )
    assert (mode, tool_arguments) == (Mode("auto", 4096), {"url": "x"})
    mode, tool_arguments = split_mode_arguments(Mode("handle"), {"output_mode": None})
    assert (mode, tool_arguments) == (Mode("handle"), {})
    with pytest.raises(InvalidArgument, match="output_mode is one of inline, handle, auto, not 'x"):
        split_mode_arguments(Mode(), {"output_mode": "x" * 1000})


def test_mode_arguments_are_added_to_the_input_schema() -> None:
    properties = {"url": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["url"], "additionalProperties": False}
    before = copy.deepcopy(schema)
    listed = add_mode_arguments(schema, Mode("auto", 2048))
    validator = jsonschema.Draft202012Validator(listed)
    assert validator.is_valid({"url": "x", "output_mode": "handle", "output_inline_limit_bytes": 5000})
    assert not validator.is_valid({"url": "x", "output_mode": "both"})
    assert not validator.is_valid({"output_mode": "handle"})
    assert listed["properties"]["output_mode"]["default"] == "auto"
    assert schema == before, "the original schema is unchanged"
