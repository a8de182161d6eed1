"""Names of tools: short, unique and stable."""

from typing import Any

import pytest
from forebay.operations import tool_names
from forebay.operations.tool_names import ToolNames


def test_names_are_as_short_as_they_can_be() -> None:
    origins = [
        ("crm", "find"),
        ("shop", "find"),
        ("x", "shop_find"),
        ("crm", "only one/of.it"),
        ("shop", "watch"),
        # Some servers list a tool twice.
        ("shop", "watch"),
    ]
    assert ToolNames().assign(origins) == {
        "crm_find": ("crm", "find"),
        "shop_find_2": ("shop", "find"),
        "shop_find": ("x", "shop_find"),
        "only_one_of.it": ("crm", "only one/of.it"),
        "watch": ("shop", "watch"),
    }


def test_names_do_not_depend_on_which_server_connected_first() -> None:
    origins = [("b", "find"), ("late", "find"), ("a", "find"), ("a", "b_find")]
    names = [ToolNames(namespace_order=["a", "b"]).assign(order) for order in (origins, origins[::-1])]
    assert [*names[0]] == ["a_find", "b_find", "b_find_2", "late_find"]
    assert names[0] == names[1]


def test_a_prefix_is_for_the_tools_of_its_namespace() -> None:
    names = ToolNames({"crm": "crm."})
    assert [*names.assign([("crm", "find"), ("shop", "find")])] == ["crm.find", "find"]


def test_a_name_is_never_given_to_another() -> None:
    names = ToolNames()
    assert [*names.assign([("crm", "find")])] == ["find"]
    assert [*names.assign([("crm", "find"), ("shop", "find")])] == ["crm_find", "shop_find"]
    assert names.origins["find"] == ("crm", "find")
    assert [*names.assign([("shop", "find")])] == ["shop_find"]
    assert [*names.assign([("crm", "find")])] == ["find"]


def test_many_of_a_name_are_named_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0

    class Counting(dict[str, tuple[str, str]]):
        def get(self, *args: Any) -> Any:
            nonlocal looked
            looked += 1
            return super().get(*args)

    # All of them clash, with and without their namespaces.
    monkeypatch.setattr(tool_names, "_to_tool_name", lambda _: "one")
    many = [(f"n{number}", "same") for number in range(2000)]
    names = ToolNames()
    names.origins = Counting()
    assert len(names.assign(many)) == len(many)
    assert looked <= 3 * len(many)


def test_a_server_that_always_lists_other_tools_uses_bounded_memory() -> None:
    names = ToolNames()
    names.origins = {"former": ("crm", "former")}
    for number in range(300):
        current = names.assign([("crm", "find"), *(("shop", f"tool_{number}_{index}") for index in range(100))])
        assert current.keys() <= names.origins.keys()
    assert len(names.origins) <= 10_000 + len(current)
    # The tools of one server do not displace the names of another.
    assert names.origins["former"] == ("crm", "former")
    assert "find" in names.origins
