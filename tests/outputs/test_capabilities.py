"""The capability filter: disabled tools are neither listed nor callable, and all others are."""

import contextlib
import fnmatch
import itertools
import json
import logging
from pathlib import Path
from typing import Any

import forebay
import pytest
from forebay.errors import CapabilityDisabled, InvalidArgument
from forebay.outputs.capabilities import CORE, META_KEY, CapabilityFilter, expand_tools, get_declared_capability
from forebay.outputs.policy import OutputPolicy
from forebay.outputs.tool_call import ToolCall
from forebay.outputs.tools import Caller
from forebay.store.payload import encode
from forebay.wire.lazy_json import parse_lazy
from hypothesis import given
from hypothesis import strategies as st

NAMES = ["core", "crawl", "workflow", "files"]
names = st.sampled_from(NAMES)
tool_names = st.text("abc_", min_size=1, max_size=3)
patterns = st.text("abc_*?", min_size=1, max_size=3)

tools = st.lists(
    st.builds(
        lambda name, capability: {
            "name": name,
            "inputSchema": {},
            **({"_meta": {META_KEY: capability}} if capability else {}),
        },
        tool_names,
        st.none() | names,
    ),
    max_size=12,
    unique_by=lambda tool: tool["name"],
)
filter_options = st.fixed_dictionaries(
    {},
    optional={
        "tools_only": st.lists(names),
        "disable_tools": st.lists(names | tool_names),
        "capabilities": st.dictionaries(patterns, names, max_size=3),
        "hidden_tools": st.lists(names | patterns, max_size=3),
    },
)


def naive_capability(tool: dict[str, Any], options: dict[str, Any]) -> str:
    for pattern, name in options.get("capabilities", {}).items():
        if fnmatch.fnmatchcase(tool["name"], pattern):
            return str(name)
    return str(tool.get("_meta", {}).get(META_KEY, CORE))


def naive_is_allowed(tool: dict[str, Any], options: dict[str, Any], all_tools: list[dict[str, Any]]) -> bool:
    known = {CORE, *options.get("capabilities", {}).values()}
    known |= {other["_meta"][META_KEY] for other in all_tools if "_meta" in other}
    if not {*options.get("tools_only", [])} <= known:
        return False
    if not {*options.get("disable_tools", [])} <= known | {other["name"] for other in all_tools}:
        return False
    return tool["name"] not in options.get("disable_tools", []) and naive_allows(
        naive_capability(tool, options), options
    )


def naive_allows(capability: str, options: dict[str, Any]) -> bool:
    return capability in options.get("tools_only", NAMES) and capability not in options.get("disable_tools", [])


def naive_is_hidden(tool: dict[str, Any], options: dict[str, Any]) -> bool:
    hidden = options.get("hidden_tools", [])
    return naive_capability(tool, options) in hidden or any(
        fnmatch.fnmatchcase(tool["name"], entry) for entry in hidden
    )


def make_filter(options: dict[str, Any]) -> CapabilityFilter | None:
    """Return a filter, or `None` if it rejects the options at once."""
    try:
        return CapabilityFilter(**options)
    except InvalidArgument:
        known = {CORE, *options["capabilities"].values()}
        assert "*" in options["capabilities"]
        assert not {*options.get("tools_only", [])} <= known
        return None


@pytest.mark.slow
@given(tools, filter_options, st.sets(tool_names))
def test_only_allowed_tools_are_listed_and_callable(
    listed: list[dict[str, Any]], options: dict[str, Any], expanded: set[str]
) -> None:
    if (capabilities := make_filter(options)) is None:
        return
    logging.getLogger("forebay").disabled = True
    capabilities.learn_tools(listed, is_complete=True)
    logging.getLogger("forebay").disabled = False
    allowed = [tool["name"] for tool in listed if naive_is_allowed(tool, options, listed)]
    hidden = [tool["name"] for tool in listed if naive_is_hidden(tool, options)]
    assert [tool["name"] for tool in listed if capabilities.find_denial(tool["name"]) is None] == allowed
    assert [tool["name"] for tool in listed if capabilities.is_listed(tool["name"], expanded)] == [
        name for name in allowed if name not in hidden or name in expanded
    ]


@pytest.mark.slow
@given(tools, filter_options, st.data())
def test_expanding_shows_allowed_tools_only(
    listed: list[dict[str, Any]], options: dict[str, Any], data: st.DataObject
) -> None:
    if (capabilities := make_filter(options)) is None:
        return
    logging.getLogger("forebay").disabled = True
    capabilities.learn_tools(listed, is_complete=True)
    logging.getLogger("forebay").disabled = False
    allowed = {tool["name"] for tool in listed if naive_is_allowed(tool, options, listed)}
    hidden = [tool for tool in listed if naive_is_hidden(tool, options) and tool["name"] in allowed]
    named = expand_tools(capabilities, {}, listed, None)["hidden_tools"]
    assert [tool["name"] for tool in named] == [tool["name"] for tool in hidden]
    arguments: dict[str, Any] = data.draw(
        st.fixed_dictionaries({"names": st.lists(tool_names, min_size=1, max_size=3)})
        | st.fixed_dictionaries({"capability": names})
    )
    expanded: set[str] = set()
    try:
        definitions = json.loads(encode(expand_tools(capabilities, arguments, listed, None)["tools"]))
    except CapabilityDisabled:
        assert "names" not in arguments or not set(arguments["names"]) <= allowed
        assert "capability" not in arguments or not naive_allows(arguments["capability"], options)
    except InvalidArgument:
        assert "names" not in arguments or not set(arguments["names"]) <= allowed
        assert "capability" not in arguments or naive_allows(arguments["capability"], options)
    else:
        assert all(tool in listed and tool["name"] in allowed for tool in definitions)
        assert [tool["name"] for tool in definitions] == expand_tools(capabilities, arguments, listed, expanded)[
            "expanded"
        ]
        assert expanded == {tool["name"] for tool in definitions}
        if "names" in arguments:
            assert expanded == set(arguments["names"])
        else:
            assert definitions == [
                tool for tool in hidden if naive_capability(tool, options) == arguments["capability"]
            ]


@pytest.mark.parametrize(
    ("tool", "capability"),
    [
        ({"_meta": {META_KEY: "crawl"}}, "crawl"),
        ({"_meta": {"capability": "crawl"}}, "crawl"),
        ({"annotations": {"capability": "crawl"}}, "crawl"),
        ({"_meta": {"capability": "other", META_KEY: " crawl "}}, "crawl"),
        ({"_meta": {META_KEY: ["crawl"]}}, None),
        ({"_meta": {META_KEY: " "}}, None),
        ({"_meta": {"fastmcp": {"tags": ["crawl"]}}}, None),
        ({"_meta": None}, None),
        ({"_meta": "crawl"}, None),
        ({}, None),
    ],
)
def test_get_declared_capability(tool: dict[str, Any], capability: str | None) -> None:
    assert get_declared_capability(tool) == capability


def test_the_first_pattern_wins_over_the_tool_and_the_default() -> None:
    capabilities = CapabilityFilter(capabilities={"crawl_s*": "sites", "crawl*": "pages"}, default="up")
    capabilities.learn_tools(
        [{"name": "crawl", "_meta": {META_KEY: "own"}}, {"name": "own", "_meta": {META_KEY: "own"}}], is_complete=True
    )
    assert [capabilities.get_capability(name) for name in ("crawl_sitemap", "crawl", "own", "other")] == [
        "sites",
        "pages",
        "own",
        "up",
    ]


@pytest.mark.parametrize("option", ["tools_only", "disable_tools"])
def test_an_unknown_capability_disables_all_tools(option: str, caplog: pytest.LogCaptureFixture) -> None:
    options: dict[str, Any] = {option: ["workflw"]}
    capabilities = CapabilityFilter(**options)
    capabilities.learn_tools([{"name": "a", "_meta": {META_KEY: "workflow"}}, {"name": "b"}], is_complete=True)
    capabilities.learn_tools([{"name": "b"}], is_complete=False)
    (record,) = caplog.records
    assert f"{option} names 'workflw', but no tool has " in record.getMessage()
    assert "; the capabilities are core, workflow; " in record.getMessage()
    for name in ("a", "b", "unheard_of"):
        denied = capabilities.find_denial(name)
        assert denied is not None
        assert "the capabilities are core, workflow" in str(denied)
    capabilities.learn_tools([{"name": "c", "_meta": {META_KEY: "workflw"}}], is_complete=False)
    assert (capabilities.find_denial("c") is None) == (option == "tools_only")
    assert (capabilities.find_denial("b") is None) == (option == "disable_tools")


def test_an_unused_pattern_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    patterns = {"admn*": "admin", "crawl*": "crawl", "theirs": "crawl"}
    capabilities = CapabilityFilter(
        disable_tools=["admin"], capabilities=patterns, hidden_tools=["crawl", "cra*", "zzz"]
    )
    capabilities.find_other_names = lambda tool: [tool.removeprefix("up_")]
    for _ in range(2):
        capabilities.learn_tools([{"name": "admin_wipe"}, {"name": "crawl"}, {"name": "up_theirs"}], is_complete=True)
    assert [record.getMessage() for record in caplog.records] == [
        f"forebay: {option} names '{pattern}', which no tool of the server is called"
        for option, pattern in (("capabilities", "admn*"), ("hidden_tools", "zzz"))
    ]


def test_an_unused_pattern_named_like_a_capability_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    capabilities = CapabilityFilter(disable_tools=["admin"], capabilities={"admin": "admin"})
    capabilities.learn_tools([{"name": "wipe"}], is_complete=True)
    assert "capabilities names 'admin', which no tool of the server is called" in caplog.text


def test_a_tool_name_in_place_of_a_capability_gives_a_hint(caplog: pytest.LogCaptureFixture) -> None:
    CapabilityFilter(tools_only=["wipe"]).learn_tools([{"name": "wipe"}], is_complete=True)
    assert "--capability 'PATTERN=wipe' gives it to tools" in caplog.text


def test_a_tool_is_disabled_by_its_name() -> None:
    capabilities = CapabilityFilter(disable_tools=["wipe"])
    capabilities.find_other_names = lambda tool: [tool.removeprefix("up_")]
    capabilities.learn_tools(
        [{"name": "wipe"}, {"name": "read"}, {"name": "up_wipe"}, {"name": "Wipe"}], is_complete=True
    )
    assert str(capabilities.find_denial("wipe")) == "'wipe' is disabled here; use another tool"
    assert not capabilities.is_listed("wipe")
    # The name at its upstream counts as well. Another tool whose name differs in case is another tool.
    assert [capabilities.find_denial(name) is None for name in ("read", "up_wipe", "Wipe")] == [True, False, True]
    # A spelling that the server does not list is refused, as always.
    for name in ("WIPE", " wipe", "wipe\0"):
        assert "lists no tool" in str(capabilities.find_denial(name))
    with pytest.raises(CapabilityDisabled):
        expand_tools(capabilities, {"name": "wipe"}, [{"name": "wipe"}], set())


def test_a_disabled_tool_that_is_gone_disables_no_others() -> None:
    capabilities = CapabilityFilter(disable_tools=["wipe"])
    capabilities.learn_tools([{"name": "wipe"}, {"name": "read"}], is_complete=True)
    capabilities.forget_tools(["wipe"])
    assert capabilities.find_denial("read") is None
    assert capabilities.find_denial("wipe") is not None
    capabilities.learn_tools([{"name": "wipe"}], is_complete=False)
    assert capabilities.find_denial("wipe") is not None


def test_a_name_of_a_capability_and_of_a_tool_disables_both() -> None:
    capabilities = CapabilityFilter(disable_tools=["crawl"])
    capabilities.learn_tools([{"name": "crawl"}, {"name": "b", "_meta": {META_KEY: "crawl"}}], is_complete=True)
    assert None not in (capabilities.find_denial("crawl"), capabilities.find_denial("b"))


def test_an_unknown_capability_is_refused_at_once_with_a_star_pattern() -> None:
    with pytest.raises(InvalidArgument, match="tools_only names 'coer', but no tool has"):
        CapabilityFilter(tools_only=["coer"], capabilities={"crawl*": "crawl", "*": "core"})


@pytest.mark.parametrize("option", [{"tools_only": ["core"]}, {"disable_tools": ["core"]}])
def test_no_tool_can_be_called_before_the_list_is_complete(option: dict[str, Any]) -> None:
    capabilities = CapabilityFilter(**option)
    capabilities.learn_tools([{"name": "a"}], is_complete=False)
    denied = capabilities.find_denial("a")
    assert denied is not None
    assert "could not be listed yet; try again" in str(denied)


@pytest.mark.parametrize(
    "invalid",
    [
        {"tools_only": "core"},
        {"tools_only": [1]},
        {"disable_tools": {"core": True}},
        {"disable_tools": [""]},
        {"hidden_tools": 3},
        {"capabilities": ["core"]},
        {"capabilities": {"crawl*": None}},
    ],
)
def test_options_of_the_wrong_type_are_refused(invalid: dict[str, Any], tmp_path: Path) -> None:
    (option,) = invalid
    with pytest.raises(InvalidArgument, match=rf"^{option} (is a list of names|are names by pattern)"):
        OutputPolicy(tmp_path.as_uri(), **invalid)


@pytest.mark.parametrize(
    ("invalid", "message"),
    [
        ({"name": 1}, "name is a text"),
        ({"names": "a"}, "names is a list"),
        ({"names": [None]}, "names is a list"),
        ({"name": "a", "query": "b"}, "not by several"),
        ({"capability": "b", "names": []}, "not by several"),
        ({"name": "none"}, "there is no tool 'none'; hidden are a0, a1"),
        ({"capability": "none"}, "no hidden tool is of the capability 'none'; there are core"),
    ],
)
def test_invalid_expansions_are_refused(invalid: dict[str, Any], message: str) -> None:
    capabilities = CapabilityFilter(hidden_tools=["a*"])
    with pytest.raises(InvalidArgument, match=message):
        expand_tools(capabilities, invalid, [{"name": f"a{number}"} for number in range(30)], None)


def test_a_query_finds_by_every_word_of_name_capability_and_description() -> None:
    capabilities = CapabilityFilter(hidden_tools=["*"], capabilities={"b": "crawl"})
    listed = [{"name": "a", "description": "Opens a PAGE.\nAnd more " + "x" * 500}, {"name": "b"}]
    (found,) = expand_tools(capabilities, {"query": "page opens"}, listed, None)["hidden_tools"]
    assert (found["name"], found["capability"]) == ("a", "core")
    assert found["description"].startswith("Opens a PAGE. And more xxx")
    assert len(found["description"]) <= 120 + len("...")
    assert [tool["name"] for tool in expand_tools(capabilities, {"query": "CRAWL"}, listed, None)["hidden_tools"]] == [
        "b"
    ]
    assert expand_tools(capabilities, {"query": "page crawl"}, listed, None) == {"hidden_tools": []}
    assert "again with names or a capability" in expand_tools(capabilities, {}, listed, None)["next"]


def make_policy(root: Path, **options: Any) -> OutputPolicy:
    policy = OutputPolicy(root.as_uri(), sweep_interval=0, **options)
    policy.learn_tools([{"name": "crawl", "_meta": {META_KEY: "crawl"}}, {"name": "read"}])
    return policy


def test_a_refusal_is_structured_and_journalled(tmp_path: Path) -> None:
    policy = make_policy(tmp_path, disable_tools=["crawl"])
    assert policy.refuse_disabled("read") is None
    refused = policy.refuse_disabled("crawl", "ann")
    assert refused is not None
    assert refused["isError"] is True
    error = forebay.CapabilityDisabled("m", "crawl", "crawl").to_dict()["error"]
    assert error == {"code": "CAPABILITY_DISABLED", "message": "m", "capability": "crawl"}
    (event,) = policy.store.journal.recent()
    assert (event["event"], event["tool"], event["capability"], event["principal"]) == (
        "capability_denied",
        "crawl",
        "crawl",
        "ann",
    )
    policy.close()


def test_an_unencodable_name_is_refused(tmp_path: Path) -> None:
    policy = make_policy(tmp_path, tools_only=["crawl"])
    assert policy.refuse_disabled("\ud800" * 10_000) is not None
    assert len(policy.store.journal.recent()) == 1
    policy.close()


def test_forebay_s_tools_are_always_listed(tmp_path: Path) -> None:
    policy = make_policy(tmp_path, tools_only=[], hidden_tools=["*"], journal=True)
    assert policy.list_visible([{"name": "crawl"}, {"name": "read"}]) == []
    names = [tool["name"] for tool in policy.tools.list_definitions()]
    assert names == ["output_fetch", "output_search", "output_query", "journal", "expand_tools"]
    assert [policy.find_denial(name) for name in names] == [None] * 5
    policy.close()


def test_forebay_s_tools_take_at_most_3_kib(tmp_path: Path) -> None:
    exports = tmp_path / "exports"
    exports.mkdir()
    switches: dict[str, Any] = {"journal": True, "hidden_tools": ["*"], "file_refs": True, "export_roots": [exports]}
    for count in range(len(switches) + 1):
        for chosen in itertools.combinations(switches, count):
            policy = make_policy(tmp_path, **{name: switches[name] for name in chosen})
            definitions = policy.tools.list_definitions()
            assert len(encode(definitions)) <= 3072, chosen
            policy.close()
    assert [tool["name"] for tool in definitions] == [
        *("output_fetch", "output_search", "output_query", "output_export", "journal", "expand_tools"),
    ]


def test_expand_tools_is_renamed_on_a_clash(tmp_path: Path) -> None:
    policy = make_policy(tmp_path, hidden_tools=["x"])
    policy.learn_tools([{"name": "expand_tools"}])
    assert policy.tools.expand_tool == "forebay_expand_tools"
    policy.close()


def test_large_definitions_become_a_handle(tmp_path: Path) -> None:
    policy = make_policy(tmp_path, hidden_tools=["*"])
    many = [{"name": f"t{number}", "description": "d" * 1000} for number in range(100)]
    caller = Caller(tools=many)
    few = policy.call_own_tool({"names": ["t1", "t2"]}, caller, ToolCall("expand_tools"))
    assert json.loads(few["content"][0]["text"]) == {"tools": many[1:3]}
    everything = policy.call_own_tool({"capability": "core"}, caller, ToolCall("expand_tools"))
    with policy.store.open(json.loads(everything["content"][0]["text"])["output_handle"]) as stored:
        assert json.loads(stored.read()) == {"tools": many}
    policy.close()


INVALID_ENTRIES: list[Any] = [
    None,
    7,
    "crawl",
    ["crawl"],
    {},
    {"name": None},
    {"name": 7},
    *parse_lazy(b'[{"name":"\\ud800"}]'),
]
"""Entries of a tool list that are not valid tools."""

UNREADABLE_TOOLS: list[Any] = [
    {"name": "unclear", "_meta": "crawl"},
    {"name": "unclear", "_meta": {META_KEY: ["crawl"]}},
    {"name": "unclear", "annotations": ["crawl"]},
    *parse_lazy(
        b'[{"name":"unclear","_meta":{"\\ud800":1}},{"name":"unclear","annotations":{"\\ud800":1}},'
        b'{"name":"unclear","_meta":{"capability":"\\ud800"}}]'
    ),
]
"""Tools whose capability cannot be read."""

ALL_OPTIONS: dict[str, Any] = {"per_call": True, "file_refs": True, "output_mode": "auto", "hidden_tools": ["hidden*"]}


@pytest.mark.parametrize("entry", [*INVALID_ENTRIES, *UNREADABLE_TOOLS])
def test_invalid_entries_are_listed_unchanged_and_refused_behind_a_filter(tmp_path: Path, entry: Any) -> None:
    with contextlib.closing(OutputPolicy(tmp_path.as_uri(), sweep_interval=0)) as policy:
        policy.learn_tools([entry, {"name": "a"}])
        assert policy.list_visible([entry, {"name": "a"}]) == [entry, {"name": "a"}]
        assert policy.find_denial("unclear") is None
    with contextlib.closing(
        OutputPolicy(tmp_path.as_uri(), sweep_interval=0, tools_only=["core"], **ALL_OPTIONS)
    ) as policy:
        policy.learn_tools([entry, {"name": "a"}])
        assert [tool["name"] for tool in policy.list_visible([entry, {"name": "a"}])] == ["a"]
        for name in ("unclear", "None", "7", "crawl"):
            assert policy.find_denial(name) is not None
        assert policy.find_denial("a") is None
        result = policy.call_own_tool(
            {}, Caller(tools=policy.rewrite_tools([entry, {"name": "hidden"}])), ToolCall("expand_tools")
        )
        assert "isError" not in result or result["isError"] is False


@pytest.mark.parametrize("schema", [7, "object", [], {"properties": 7}, {"properties": {"a": {"anyOf": 7}}}, None])
def test_an_invalid_schema_stays_unchanged(tmp_path: Path, schema: Any) -> None:
    for entry in (schema, parse_lazy(b'{"\\ud800":1}')):
        tool = {"name": "a", "inputSchema": entry, "outputSchema": entry}
        with contextlib.closing(OutputPolicy(tmp_path.as_uri(), sweep_interval=0, **ALL_OPTIONS)) as policy:
            policy.learn_tools([tool])
            (listed,) = policy.list_visible([tool])
            assert listed["name"] == "a"
            assert policy.resolve_mode("a", {"output_mode": "handle"})


def test_a_configured_capability_overrides_an_unreadable_one() -> None:
    capabilities = CapabilityFilter(tools_only=["core"], capabilities={"unclear": "core"})
    capabilities.learn_tools(UNREADABLE_TOOLS, is_complete=True)
    assert capabilities.find_denial("unclear") is None


def test_a_tool_is_allowed_once_its_capability_is_readable() -> None:
    capabilities = CapabilityFilter(tools_only=["core"])
    capabilities.learn_tools(UNREADABLE_TOOLS[:1], is_complete=True)
    denied = capabilities.find_denial("unclear")
    assert denied is not None
    assert "in the server's list is invalid" in str(denied)
    capabilities.learn_tools([{"name": "unclear"}], is_complete=True)
    assert capabilities.find_denial("unclear") is None


def test_a_denied_tool_decides_for_all_tools_of_its_name() -> None:
    denied, allowed = {"name": "x", "_meta": {META_KEY: "admin"}}, {"name": "x", "_meta": {META_KEY: "core"}}
    for tools in ([denied, allowed], [allowed, denied], [denied, {"name": "x"}, allowed]):
        capabilities = CapabilityFilter(disable_tools=["admin"])
        capabilities.learn_tools(tools, is_complete=True)
        assert capabilities.find_denial("x") is not None
        capabilities.learn_tools([allowed], is_complete=False)
        assert capabilities.find_denial("x") is not None
        capabilities.learn_tools([allowed], is_complete=True)
        assert capabilities.find_denial("x") is None
        capabilities.learn_tools([denied], is_complete=False)
        assert capabilities.find_denial("x") is not None


def test_an_unreadable_tool_decides_for_all_tools_of_its_name() -> None:
    capabilities = CapabilityFilter(tools_only=["core"])
    capabilities.learn_tools([*UNREADABLE_TOOLS[:1], {"name": "unclear"}], is_complete=True)
    assert capabilities.find_denial("unclear") is not None


@pytest.mark.parametrize("name", ["READ", "read ", " read", "Crawl", "unheard_of"])
def test_an_unlisted_name_is_refused_behind_a_filter(tmp_path: Path, name: str) -> None:
    for options in ({"tools_only": ["core"]}, {"disable_tools": ["crawl"]}):
        with contextlib.closing(make_policy(tmp_path, **options)) as policy:
            assert policy.must_list_tools(name)
            refused = policy.refuse_disabled(name)
            assert refused is not None
            assert "the server lists no tool" in refused["content"][0]["text"]
            policy.learn_tools([{"name": name}])
            assert policy.refuse_disabled(name) is None
    with contextlib.closing(make_policy(tmp_path)) as policy:
        assert policy.refuse_disabled(name) is None


def test_an_unlisted_name_is_callable_only_if_it_is_configured_in_full(tmp_path: Path) -> None:
    capabilities = {"made_*": "core", "unlisted": "core", "crawl*": "crawl", "*": "core"}
    with contextlib.closing(make_policy(tmp_path, disable_tools=["crawl"], capabilities=capabilities)) as policy:
        assert policy.refuse_disabled("unlisted") is None
        for name in ("made_later", "Crawl", "CRAWL", "crawl ", " crawl", "made_*", "*", "unlisted*"):
            assert policy.must_list_tools(name)
            assert policy.refuse_disabled(name) is not None
