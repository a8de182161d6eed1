"""The table of entries that a sweep keeps, compared with a dictionary."""

import tracemalloc

import forebay.store.entries
import pytest
from forebay.store.entries import Entry, EntryTable
from forebay.store.handles import new_handle
from hypothesis import given
from hypothesis import strategies as st

# The first handles are packed into bytes that other fields may contain, too.
HANDLES = ["oh_" + character * length for length in (12, 26) for character in "AB7"] + [new_handle(12), new_handle(26)]

entries = st.builds(
    Entry,
    created_at=st.floats(0, 1e12),
    expires_at=st.floats(0, 1e12),
    size=st.integers(0, 1 << 62),
    principal=st.none() | st.sampled_from(["ann", "bob", ""]),
    is_corrupt=st.just(False),
    is_estimate=st.just(False),
)
actions = st.one_of(
    st.tuples(st.just("begin"), st.none(), st.none()),
    st.tuples(st.just("see"), st.sampled_from(HANDLES), st.none()),
    st.tuples(st.just("add"), st.sampled_from(HANDLES), entries),
    st.tuples(st.just("discard"), st.sampled_from(HANDLES), st.none()),
    st.tuples(st.just("end"), st.none(), st.none()),
)


@given(st.lists(st.tuples(st.integers(0, 3), actions), max_size=60))
def test_a_table_equals_a_dictionary(steps: list[tuple[int, tuple[str, str, Entry]]]) -> None:
    table = EntryTable()
    naive: dict[str, tuple[Entry, int]] = {}
    newest = table.begin_sweep()
    for age, (action, handle, entry) in steps:
        # Sweeps may overlap: the older one need not end first.
        sweep = max(1, newest - age)
        if action == "begin":
            newest = table.begin_sweep()
        elif action == "see":
            found, last_seen = naive.get(handle, (None, 0))
            assert table.see(handle, sweep) == (found, last_seen == sweep)
            if found is not None:
                naive[handle] = found, max(last_seen, sweep)
        elif action == "add":
            table.add(handle, entry, sweep)
            naive[handle] = entry, sweep
        elif action == "discard":
            table.discard(handle)
            naive.pop(handle, None)
        else:
            table.remove_unseen(sweep)
            naive = {handle: seen for handle, seen in naive.items() if seen[1] >= sweep}
            assert len(table._principals) <= len(naive)
        assert dict(table) == {handle: entry for handle, (entry, _) in naive.items()}
        assert len(table) == len(naive)


def test_an_entry_takes_less_than_64_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    # As many entries in a bucket as in a table of a million.
    count = 16_000
    monkeypatch.setattr(forebay.store.entries, "_BUCKETS", count * 16384 // 1_000_000)
    table = EntryTable()
    sweep = table.begin_sweep()
    tracemalloc.start()
    try:
        for number in range(count):
            table.add(new_handle(), Entry(number, number + 1.0, number, f"principal {number % 10}"), sweep)
        assert len(table) == count
        assert tracemalloc.get_traced_memory()[1] < 64 * count
    finally:
        tracemalloc.stop()
