"""The cache forgets the least recently used entries, and never more than it has to."""

from forebay.store.cache import LRUCache
from hypothesis import given
from hypothesis import strategies as st

MAX_SIZE = 10

steps = st.lists(st.tuples(st.sampled_from(["get", "set", "remove"]), st.integers(0, 5), st.integers(0, 14)))


@given(steps)
def test_it_works_like_a_list_of_entries(steps: list[tuple[str, int, int]]) -> None:
    """Compare with a list that has the most recently used entry last. The value of an entry is its size."""
    cache: LRUCache[int, int] = LRUCache(MAX_SIZE, lambda value: value)
    entries: list[tuple[int, int]] = []
    for step, key, value in steps:
        found = [entry for entry in entries if entry[0] == key]
        entries = [entry for entry in entries if entry[0] != key]
        if step == "get":
            assert cache.get(key, None) == (found[0][1] if found else None)
            entries += found
        elif step == "remove":
            cache.remove(key)
        else:
            cache[key] = value
            entries.append((key, value))
            while len(entries) > 1 and sum(size for _, size in entries) > MAX_SIZE:
                entries.pop(0)
    for key, value in entries:
        assert cache.get(key, None) == value
    assert [key for key in range(6) if cache.get(key, None) is None] == sorted(
        {*range(6)} - {key for key, _ in entries}
    )


def test_entries_count_as_one_by_default() -> None:
    cache: LRUCache[str, int] = LRUCache(2)
    for key in "abc":
        cache[key] = 1000
    assert [cache.get(key, None) for key in "abc"] == [None, 1000, 1000]
