"""Previews of documents with items: valid JSON with whole first items, at every budget."""

import json
from functools import partial
from typing import Any

import pytest
from forebay import InvalidArgument, InvalidJSON
from forebay._core import index_items, preview, preview_items
from hypothesis import given
from hypothesis import strategies as st
from texts import nasty_text, weigh

scalars = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | nasty_text
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(nasty_text, inner, max_size=4)
)


@given(
    st.lists(values, max_size=8),
    st.dictionaries(st.sampled_from("abc"), scalars),
    st.dictionaries(st.sampled_from("def"), scalars),
    st.sampled_from([None, 1]),
)
def test_items_and_scalars_are_those_of_the_document(
    items: list[Any], before: dict[str, Any], after: dict[str, Any], indent: int | None
) -> None:
    document = json.dumps({**before, "rows": items, **after}, indent=indent).encode()
    start = index_items(document, "/rows").start
    for levels in (1, 2):
        for budget in [*range(0, 300, 7), 10 * len(document) + 1000]:
            shown, count = preview_items(document, start, 10**6, max_escaped_bytes=budget, escape_levels=levels)
            assert weigh(shown, levels) <= budget
            if not shown:
                assert budget < 60
                continue
            value = json.loads(shown)
            found = value.pop("rows")
            omitted = value.pop("...", 0)
            assert (found == items[:count] and count == len(found)) or (count, len(found)) == (0, 1)
            assert omitted in (0, len(before) + len(after) - len(value))
            for key, scalar in value.items():
                expected = {**before, **after}[key]
                assert scalar == expected or (isinstance(expected, str) and len(json.dumps(expected)) > 64)
            if budget > 10 * len(document):
                assert (found, len(value)) == (items, len(before) + len(after))


@given(st.lists(values, min_size=1, max_size=8), st.integers(0, 400))
def test_lines_are_whole_values(items: list[Any], budget: int) -> None:
    shown, count = preview_items("\n".join(map(json.dumps, items)), None, budget)
    found = [json.loads(line) for line in shown.split("\n")] if shown else []
    assert len(shown.encode()) <= budget
    assert (found == items[:count] and count == len(found)) or (count, len(found)) == (0, 1)


@given(st.lists(values, max_size=8), st.integers(0, 400), st.integers(0, 400), st.sampled_from([1, 2]))
def test_a_document_that_fits_may_be_its_own_preview(
    items: list[Any], budget: int, escaped_budget: int, levels: int
) -> None:
    document = f" {json.dumps(items, ensure_ascii=False)}\n".encode()
    show = partial(preview_items, document, 1, budget, max_escaped_bytes=escaped_budget, escape_levels=levels)
    if preview(document, budget, max_escaped_bytes=escaped_budget, escape_levels=levels) == document.decode():
        assert show(or_all=True) == (document.decode(), None)
    else:
        assert show(or_all=True) == show()


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="no items start at items_start"):
        preview_items(b'{"a":[1]}', 6)
    with pytest.raises(InvalidArgument, match="escape_levels must be 1 or 2"):
        preview_items(b"[1]", 0, escape_levels=0)
    with pytest.raises(InvalidArgument, match="items_start"):
        preview_items(b"[1]", -1)
    with pytest.raises(InvalidJSON):
        preview_items(b"[1,]", 0)
