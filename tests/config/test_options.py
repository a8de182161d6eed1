"""The table of options, and that it agrees with the library."""

import contextlib
import dataclasses
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from forebay.config import option_types
from forebay.config.option_types import (
    ADDRESS,
    CONTRACT,
    COUNT,
    FLAG,
    HEADERS,
    HOURS,
    MODE,
    PREFIX,
    SECONDS,
    SIZE,
    TOOLS,
    URL,
    accept_none,
    choice,
    name_list,
    name_map,
    reject_zero,
)
from forebay.config.options import OPTIONS, OPTIONS_AND_ALIASES, REMOVED_OPTIONS, Option, Settings
from forebay.outputs import policy
from forebay.outputs.contract.limits import BUDGETS
from forebay.outputs.modes import OutputMode
from forebay.outputs.policy import OutputPolicy
from forebay.store import Options
from hypothesis import given
from hypothesis import strategies as st


def api_defaults() -> dict[str, Any]:
    parameters = inspect.signature(OutputPolicy).parameters
    store_defaults = {field.name: field.default for field in dataclasses.fields(Options)}
    return store_defaults | {name: parameter.default for name, parameter in parameters.items()}


def test_defaults_are_those_of_the_library() -> None:
    defaults = api_defaults()
    for option in OPTIONS.values():
        if not option.is_policy:
            continue
        if option.name == "output_mode":
            # `None` is `inline`, with a hint in the log.
            assert (option.default, defaults["output_mode"]) == ("auto", None)
        else:
            assert (option.default or None) == (defaults[option.name] or None), option.name


LIBRARY_ONLY = {
    # Tuning that the gateway leaves at its default.
    *("compression", "connection_limit_bytes", "durability", "file_ref_max_bytes", "handle_length", "warn_bytes"),
    "read_cache_folder",
    # The gateway sets these itself, or they are functions.
    *("clock", "monitor", "options", "default_capability", "known_capabilities", "secret_files"),
}


def test_every_option_of_the_library_can_be_set() -> None:
    reached = {option.name for option in OPTIONS.values() if option.is_policy}
    assert api_defaults().keys() - reached == LIBRARY_ONLY
    assert reached <= api_defaults().keys()


def test_removed_options_are_no_options_and_name_what_to_do() -> None:
    assert REMOVED_OPTIONS.keys().isdisjoint(OPTIONS_AND_ALIASES)
    assert all(REMOVED_OPTIONS.values())


def test_aliases_are_those_of_the_original_flags() -> None:
    aliases = {alias.flag: option.name for option in OPTIONS.values() for alias in option.aliases}
    assert aliases == {
        "--output-handle-ttl-hours": "ttl",
        "--output-handle-sweep-interval-seconds": "sweep_interval",
    }


def test_every_option_has_names_of_its_own() -> None:
    for attribute in ("flag", "variable", "name"):
        names = [getattr(option, attribute) for option in OPTIONS_AND_ALIASES.values()]
        assert len(set(names)) == len(names)
    for option in OPTIONS_AND_ALIASES.values():
        assert option.help
        assert option.variable.startswith("FOREBAY_")
        assert option.flag.startswith("--")


def test_categories_are_those_of_the_contract() -> None:
    assert CONTRACT.parse([f"t{number}={name}" for number, name in enumerate(BUDGETS)]) == {
        f"t{number}": name for number, name in enumerate(BUDGETS)
    }


def test_modes_and_prefixes_are_those_of_the_library() -> None:
    assert MODE.metavar == "|".join(get_args(OutputMode))
    assert option_types._PREFIX_PATTERN.pattern == policy._PREFIX_PATTERN.pattern


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("http", ("127.0.0.1", 80), '"127.0.0.1:80"'),
        ("http", ("::1", 80), '"[::1]:80"'),
        ("contract", {"*_list": True, "a": "list"}, '{ "*_list" = true, a = "list" }'),
        ("tools", {"big": {"output_inline_limit_bytes": 1024}}, "{ big = { output_inline_limit_bytes = 1024 } }"),
        ("redact", ("a+", '"'), '["a+", "\\""]'),
        ("ttl", 5400.0, '"90min"'),
        ("ttl", 0.5, "0.5"),
        ("headers", {}, "-"),
    ],
)
def test_values_are_shown_as_a_file_would_hold_them(name: str, value: Any, text: str) -> None:
    assert OPTIONS[name].format_value(value) == text


def test_what_was_not_set_is_not_passed_on() -> None:
    assert Settings().policy_options() == {"output_mode": "auto"}


def test_what_was_set_is_passed_on_as_the_library_has_it() -> None:
    settings = Settings(
        ttl=5400,
        prefix="oc_",
        redact=("a+",),
        tools_only=("core",),
        sources=dict.fromkeys(["ttl", "prefix", "redact", "tools_only"], "x"),
    )
    options = settings.policy_options()
    assert options.pop("redact") == ("a+",)
    assert options == {
        "output_mode": "auto",
        "ttl": 5400,
        "prefix": "oc_",
        "tools_only": ("core",),
    }


@pytest.mark.parametrize(
    ("option_type", "text", "value"),
    [
        (SIZE, "0", 0),
        (SIZE, "64MiB", 64 << 20),
        (SIZE, "1.5 GiB", 3 << 29),
        (SIZE, "2MB", 2_000_000),
        (SIZE, "8k", 8192),
        (SECONDS, "5", 5.0),
        (SECONDS, "500ms", 0.5),
        (SECONDS, "2m", 120.0),
        (HOURS, "24", 86400.0),
        (HOURS, 1.5, 5400.0),
        (HOURS, "90min", 5400.0),
        (HOURS, "7d", 604800.0),
        (COUNT, "3", 3),
        (FLAG, "Yes", True),
        (FLAG, "0", False),
        (accept_none(SIZE), "none", None),
        (accept_none(reject_zero(COUNT)), "1", 1),
        (reject_zero(SECONDS), "1ms", 0.001),
        (choice("a", "b"), "b", "b"),
        (URL, "https://[::1]:80/mcp?x=1", "https://[::1]:80/mcp?x=1"),
        (ADDRESS, "[::1]:8000", ("::1", 8000)),
        (ADDRESS, "a.example:0", ("a.example", 0)),
        (PREFIX, "", ""),
        (TOOLS, "a=b=handle", {"a=b": "handle"}),
        (CONTRACT, "true", True),
        (CONTRACT, False, False),
        (CONTRACT, "FALSE", False),
        (CONTRACT, "*_list", {"*_list": True}),
        (HEADERS, "A: b: c", {"A": "b: c"}),
        (name_list("N", ""), "a, b", ("a", "b")),
        (name_map("P=N", ""), "x_*=core", {"x_*": "core"}),
    ],
    ids=lambda value: str(getattr(value, "metavar", value)),
)
def test_what_a_text_says(option_type: Any, text: str, value: object) -> None:
    parsed = option_type.parse(text)
    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize(
    ("option_type", "wrong"),
    [
        *(
            (SIZE, wrong)
            for wrong in ("", "x", "-1", "1.5", "5 apples", "1e9", "9" * 50, -1, 1.5, True, None, [1], "١")
        ),
        *((SECONDS, wrong) for wrong in ("1y", "nan", "inf", float("inf"), float("nan"), True, "1000000w")),
        *((COUNT, wrong) for wrong in ("1.5", "5k", -3)),
        *((reject_zero(COUNT), wrong) for wrong in ("0", 0, -1, "x")),
        *((FLAG, wrong) for wrong in ("maybe", "", 1, None)),
        *((URL, wrong) for wrong in ("example.com", "ftp://x", "http://", "http://[x", "http://x:y", 3)),
        *((ADDRESS, wrong) for wrong in ("8000", ":8000", "::1:80", "x:99999", "x:-1", 8000)),
        *((PREFIX, wrong) for wrong in ("a b", "x" * 65, 1)),
        *((TOOLS, wrong) for wrong in ("a", "=auto", "a=b", {"a": {"mode": "auto"}}, {"a": {"output_mode": "x"}}, 3)),
        *((CONTRACT, wrong) for wrong in ("a=x", 3, [3], "", {"": True})),
        *((HEADERS, wrong) for wrong in ("A", "A b: c", ": c", {"A": "b\r\nC: d"}, {"A": 3}, 3)),
        *((name_list("N", ""), wrong) for wrong in ("a,,b", "", [3], 3)),
        *((name_map("P=N", ""), wrong) for wrong in ("a", "a=", "=a", {"a": 3})),
    ],
    ids=lambda value: str(getattr(value, "metavar", value)),
)
def test_what_says_nothing_is_refused(option_type: Any, wrong: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        option_type.parse(wrong)


@given(st.integers(0, 10**15), st.sampled_from(["", "KiB", "MiB", "GiB", "kb", "MB"]))
def test_sizes_are_what_their_units_say(number: int, unit: str) -> None:
    factor = {"": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "kb": 10**3, "mb": 10**6}[unit.lower()]
    assert SIZE.parse(f"{number}{unit}") == number * factor


@given(st.text())
def test_no_text_makes_a_kind_fail_otherwise(text: str) -> None:
    for option in OPTIONS.values():
        with contextlib.suppress(ValueError):
            option.type.parse(text)


def doc_row(option: Option) -> str:
    flags = ", ".join(f"`{spelling.flag}`" for spelling in (option, *option.aliases))
    default = f"`{option.default_text}`" if option.default_text and option.default is not False else ""
    return f"| `{option.name}` | {flags} | {default} | {option.help} |"


def test_the_documentation_lists_every_option() -> None:
    text = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\| option \|.*\n\|.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    both, wrap, serve = (
        [doc_row(option) for option in OPTIONS.values() if option.commands == commands]
        for commands in (("wrap", "serve"), ("wrap",), ("serve",))
    )
    assert [table.splitlines() for table in tables] == [both, wrap, serve]


def test_the_table_needs_nothing_heavy() -> None:
    heavy = ("mcp", "pydantic", "httpx2", "asyncio", "rich", "zstandard", "forebay.store", "forebay.outputs.policy")
    code = f"import sys, forebay.config.load; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.strip() == b"[]"
