"""Lists of allowed tools have forebay's tools too, as long as a server is behind forebay."""

import json
from pathlib import Path
from typing import Any

import forebay
import pytest
from forebay.config.adopt import adopt_servers, find_tool_problems, restore_servers
from forebay.config.allow_lists import (
    add_rules,
    find_hidden_tools,
    find_missing_rules,
    list_tool_names,
    remove_rules,
)
from forebay.config.documents import Document, parse_document
from forebay.outputs.tools import OutputTools
from hypothesis import given
from hypothesis import strategies as st
from jsonc_texts import documents

FOREBAY = ["forebay"]
TOOLS = ("output_fetch", "output_search", "output_query")


def parse(value: Any) -> Document:
    return parse_document(json.dumps(value), "f")


def adopt_entry(entry: dict[str, Any], *flags: str) -> dict[str, Any]:
    """Adopt a server, check that this can be undone, and return its new entry."""
    text = json.dumps({"mcpServers": {"s": entry}}, indent=1)
    change = adopt_servers(text, "f", FOREBAY, flags)
    assert restore_servers(change.text, "f").text == text
    adopted: dict[str, Any] = json.loads(change.text)["mcpServers"]["s"]
    return adopted


def test_the_names_are_those_of_the_tools(tmp_path: Path) -> None:
    with forebay.open_store(tmp_path) as store:
        tools = OutputTools(store, prefix="oc_", journal=False)
    assert [*list_tool_names(["--prefix=oc_"])] == [*list_tool_names(["--prefix", "oc_"])] == [*tools.names]
    assert list_tool_names([]) == list_tool_names(["--journal", "--prefix"]) == tuple(tools.base_names)


@pytest.mark.parametrize(
    "key", ["includeTools", "enabled_tools", "tools", "available_tools", "autoApprove", "alwaysAllow"]
)
@pytest.mark.parametrize("target", [{"command": "x"}, {"url": "http://x"}], ids=["command", "url"])
def test_a_list_in_the_entry(key: str, target: dict[str, str]) -> None:
    adopted = adopt_entry({**target, key: ["a", "b"]})
    assert adopted[key] == ["a", "b", *TOOLS]
    assert f"--adopted={key}=output_fetch,output_search,output_query" in adopted["args"]
    assert adopt_entry({**target, key: ["a"]}, "--prefix=p_")[key] == [
        "a",
        "p_output_fetch",
        "p_output_search",
        "p_output_query",
    ]


@pytest.mark.parametrize("listed", [[], ["*"], ["a", "*"], [*TOOLS], ["a", 1], {"a": {}}, "a"])
def test_lists_that_need_no_change(listed: Any) -> None:
    adopted = adopt_entry({"command": "x", "tools": listed})
    assert adopted == {"command": "forebay", "args": ["wrap", "--adopted=no-args", "--", "x"], "tools": listed}


def test_what_was_in_the_list_stays_when_forebay_goes() -> None:
    adopted = adopt_entry({"command": "x", "tools": ["output_search", "a"]})
    assert adopted["tools"] == ["output_search", "a", "output_fetch", "output_query"]
    assert "--adopted=tools=output_fetch,output_query" in adopted["args"]


def test_a_server_that_is_behind_forebay_already_gets_them_too() -> None:
    entry = {"command": "forebay", "args": ["wrap", "--journal", "--", "x", "y"], "tools": ["a"]}
    text = json.dumps({"mcpServers": {"s": entry}})
    change = adopt_servers(text, "f", FOREBAY, [])
    assert change.changed_servers == ("s",)
    adopted = json.loads(change.text)["mcpServers"]["s"]
    assert adopted["tools"] == ["a", *TOOLS]
    assert adopted["args"] == ["wrap", "--adopted=tools=output_fetch,output_search,output_query", *entry["args"][1:]]
    assert adopt_servers(change.text, "f", FOREBAY, []).changed_servers == ()
    restored = json.loads(restore_servers(change.text, "f").text)["mcpServers"]["s"]
    assert restored == {"command": "x", "args": ["y"], "tools": ["a"]}


def test_a_list_that_was_changed_since_keeps_what_is_not_ours() -> None:
    text = adopt_servers('{"mcpServers": {"s": {"command": "x", "tools": ["a"]}}}', "f", FOREBAY, []).text
    for now, expected in (
        (["output_search", "b", "output_fetch", "c", "output_query"], ["b", "c"]),
        (["output_fetch", "output_search", "output_query"], []),
        (["output_fetch", "output_search", "output_query", "b"], ["b"]),
        ([], []),
    ):
        changed = text.replace('["a", "output_fetch", "output_search", "output_query"]', json.dumps(now))
        assert json.loads(restore_servers(changed, "f").text)["mcpServers"]["s"]["tools"] == expected


@pytest.mark.parametrize("key", ["excludeTools", "disabled_tools", "disabledTools"])
def test_a_deny_list_is_reported(key: str) -> None:
    entry = {"command": "forebay", "args": ["wrap", "--", "x"], key: ["output_fetch", "a"]}
    problems = find_tool_problems(parse({"mcpServers": {"s": entry}}), "f")
    assert problems == [("s", f"{key} has output_fetch; take that out")]
    assert find_tool_problems(parse({"mcpServers": {"s": {**entry, "command": "other"}}}), "f") == []


def test_an_allow_list_without_them_is_reported() -> None:
    entry = {"command": "forebay", "args": ["wrap", "--", "x"], "includeTools": ["a", "output_fetch"]}
    ((name, advice),) = find_tool_problems(parse({"mcpServers": {"s": entry}}), "f")
    assert (name, advice) == (
        "s",
        "includeTools lacks output_search, output_query; add them, which `forebay adopt` does",
    )


CLAUDE = {"permissions": {"allow": ["Bash(ls)", "mcp__my_db__query"], "deny": []}}
CURSOR_CLI = {"permissions": {"allow": ["Shell(ls)", "Mcp(my db:query)"], "deny": []}}
CURSOR = {"mcpAllowlist": ["my db:query"], "terminalAllowlist": ["ls"]}
RULES = {
    "claude": (CLAUDE, [f"mcp__my_db__{tool}" for tool in TOOLS]),
    "cursor-cli": (CURSOR_CLI, [f"Mcp(my db:{tool})" for tool in TOOLS]),
    "cursor": (CURSOR, [f"my db:{tool}" for tool in TOOLS]),
}
SERVERS = {"my db": TOOLS, "other": TOOLS}


@pytest.mark.parametrize("client", RULES)
def test_rules_are_added_and_removed(client: str) -> None:
    value, expected = RULES[client]
    before = parse(value)
    assert find_missing_rules(before, SERVERS) == expected
    text, added = add_rules(before, SERVERS)
    assert added == expected
    after = parse_document(text, "f")
    assert find_missing_rules(after, SERVERS) == []
    assert add_rules(after, SERVERS) == (text, [])
    assert remove_rules(after, SERVERS, [before]) == (before.text, sorted(expected), [])


@pytest.mark.parametrize(
    "allowed",
    [
        ["mcp__my_db", "mcp__my_db__query"],
        ["mcp__my_db__*"],
        ["mcp__my_db__query", "mcp__my_db__output_*"],
        ["mcp__other_db__query", "mcp__my"],
        [],
        ["mcp__my_db__query", 3],
    ],
)
def test_rules_that_need_no_change(allowed: list[Any]) -> None:
    document = parse({"permissions": {"allow": allowed}})
    assert add_rules(document, {"my db": TOOLS}) == (document.text, [])


def test_rules_that_were_there_before_stay() -> None:
    before = parse({"permissions": {"allow": ["mcp__s__a", "mcp__s__output_fetch"]}})
    text, added = add_rules(before, {"s": TOOLS})
    assert added == ["mcp__s__output_search", "mcp__s__output_query"]
    after = parse_document(text, "f")
    assert remove_rules(after, {"s": TOOLS}, [before]) == (before.text, sorted(added), [])
    # Without a backup nobody knows who added them.
    all_rules = [f"mcp__s__{tool}" for tool in TOOLS]
    assert remove_rules(after, {"s": TOOLS}, []) == (text, [], sorted(all_rules))
    assert remove_rules(after, {"other": TOOLS}, [before]) == (text, [], [])


RULE_TEXTS = st.sampled_from(["mcp__s__a", "mcp__s__output_fetch", "mcp__t__b", "Bash(ls)", "Mcp(s:a)", "mcp__s", "x"])


@pytest.mark.slow
@given(st.data())
def test_any_rules_come_back_to_the_byte(data: st.DataObject) -> None:
    allowed = data.draw(st.lists(RULE_TEXTS, unique=True, max_size=5))
    before = parse_document(data.draw(documents({"permissions": {"allow": allowed, "ask": []}, "x": 1})), "f")
    servers = {"s": TOOLS, "t": TOOLS}
    text, added = add_rules(before, servers)
    after = parse_document(text, "f")
    assert after.root.to_python()["permissions"]["allow"] == [*allowed, *added]
    restored, removed, _ = remove_rules(after, servers, [before])
    assert (restored, sorted(removed)) == (before.text, sorted(added))


@pytest.mark.parametrize("rule", ["mcp__s__output_fetch", "mcp__s", "mcp__*", "mcp__s__output_*"])
def test_a_rule_that_denies_is_reported(rule: str) -> None:
    problems = find_hidden_tools(parse({"permissions": {"deny": ["Read(x)", rule]}}), {"s": TOOLS, "t": ()})
    assert [name for name, _ in problems] == ["s"]
    assert "permissions.deny denies mcp__s__output_fetch" in problems[0][1]


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"tools": {"*": False, "s_query": True}}, '"s_output_fetch": "allow", "s_output_search": "allow"'),
        ({"permission": {"s_*": "deny", "s_query": "ask"}}, 'end of permission: "s_output_fetch": "allow"'),
        ({"tools": {"s_*": False, "s_output_fetch": True}}, 'end of permission: "s_output_search": "allow"'),
        (
            {"tools": {"s_*": False}, "agent": {"a": {"permission": {"s_query": "allow"}}}},
            'end of agent.a.permission: "s_output_fetch": "allow"',
        ),
        ({"tools": {"s_*": False}}, None),
        ({"tools": {"s_*": False}, "agent": {"a": {"tools": {"s_*": True}}}}, None),
        ({"permission": {"*": "ask", "s_query": "allow"}}, None),
        ({"permission": "allow", "tools": []}, None),
        ({"permission": {"bash": {"*": "deny"}}}, None),
    ],
)
def test_rules_of_opencode(settings: dict[str, Any], advice: str | None) -> None:
    problems = find_hidden_tools(parse(settings), {"s": TOOLS})
    if advice is None:
        assert problems == []
    else:
        ((name, text),) = problems
        assert name == "s"
        assert advice in text


@pytest.mark.parametrize(
    ("profile", "is_hidden"),
    [
        ({"context_servers": {"s": {"tools": {"a": True, "output_search": True, "output_query": True}}}}, True),
        ({"context_servers": {"s": {"tools": {"a": True}}}, "enable_all_context_servers": True}, False),
        ({"context_servers": {"s": {"tools": {"a": True, **dict.fromkeys(TOOLS, True)}}}}, False),
        ({"context_servers": {"s": {"tools": {"a": False}}}}, False),
        ({"context_servers": {"t": {"tools": {"a": True}}}}, False),
        ({}, False),
    ],
)
def test_profiles_of_zed(profile: dict[str, Any], is_hidden: bool) -> None:
    problems = find_hidden_tools(parse({"agent": {"profiles": {"ask": profile}}}), {"s": TOOLS})
    expected = ("s", 'the profile ask hides forebay\'s tools; add to its tools of s: "output_fetch": true')
    assert problems == ([expected] if is_hidden else [])
