"""What the policy remembers of a server's tools has a bound."""

from pathlib import Path
from typing import Any

from forebay.outputs.known_tools import MAX_KNOWN_BYTES, KnownTools, encode_definition
from forebay.outputs.policy import OutputPolicy


def make_tools(page: int, count: int = 1000, size: int = 1000) -> list[dict[str, Any]]:
    return [{"name": f"tool-{page}-{index}", "description": "x" * size} for index in range(count)]


def encode_tools(tools: list[dict[str, Any]]) -> dict[str, bytes]:
    return {tool["name"]: encode_definition(tool) for tool in tools}


def test_tools_listed_longest_ago_are_forgotten() -> None:
    known = KnownTools()
    for page in range(20):
        known.add(encode_tools(make_tools(page)))
    assert "tool-0-0" not in known
    assert "tool-19-0" in known
    assert "tool-18-999" in known
    assert len(known) * 1000 <= MAX_KNOWN_BYTES


def test_tools_that_are_listed_again_are_kept() -> None:
    known = KnownTools()
    for page in range(20):
        known.add(encode_tools([*make_tools(page), *make_tools(99, 1)]))
    assert "tool-99-0" in known


def test_one_list_is_remembered_whatever_its_size() -> None:
    known = KnownTools()
    known.add(encode_tools([{"name": "early"}]))
    assert known.add(encode_tools(make_tools(0, 10_000))) == ["early"]
    assert len(known) == 10_000


def test_a_definition_that_cannot_be_encoded_is_remembered() -> None:
    known = KnownTools()
    assert known.add(encode_tools([{"name": "odd", "x": object()}])) == []
    assert known.get("odd") == {"name": "odd"}


def test_a_definition_is_parsed_when_it_is_needed() -> None:
    definition = {"name": "one", "description": "é" * 5000, "inputSchema": {"maximum": 1.5, "x": [[]] * 5000}}
    known = KnownTools()
    known.add(encode_tools([definition]))
    assert known.get("one") == definition
    assert known.get("two") is None


def test_a_filter_denies_forgotten_tools_until_they_are_listed_again(tmp_path: Path) -> None:
    policy = OutputPolicy(tmp_path.as_uri(), disable_tools=["other"], capabilities={"none": "other"}, sweep_interval=0)
    policy.learn_tools(make_tools(0))
    for page in range(1, 20):
        policy.learn_tools(make_tools(page), is_complete=False)
    assert policy.find_denial("tool-19-0") is None
    assert policy.find_denial("tool-0-0") is not None
    assert policy.must_list_tools("tool-0-0")
    policy.learn_tools(make_tools(0))
    assert policy.find_denial("tool-0-0") is None
    policy.close()


def test_a_name_of_the_server_is_avoided_even_after_it_is_forgotten(tmp_path: Path) -> None:
    policy = OutputPolicy(tmp_path.as_uri(), sweep_interval=0)
    policy.learn_tools([{"name": "output_fetch"}])
    for page in range(20):
        policy.learn_tools(make_tools(page), is_complete=False)
    assert policy.tools.fetch_tool == "forebay_output_fetch"
    policy.close()


def test_remembered_capabilities_have_a_bound(tmp_path: Path) -> None:
    policy = OutputPolicy(tmp_path.as_uri(), sweep_interval=0)
    for page in range(30):
        tools = [{"name": f"t{index}", "_meta": {"capability": f"c-{page}-{index}"}} for index in range(1000)]
        policy.learn_tools(tools)
    assert len(policy.capabilities._known_capabilities) == 10_000
    policy.close()
