"""The ledger against a model: whatever replicas do during a recount, no account becomes too low."""

from collections import Counter

from forebay.store.backends.object_ledger import Account, Ledger, RecountStart, Replica
from hypothesis import given
from hypothesis import strategies as st

NAME = "total"


class Model:
    """Replicas with slices, objects, and a recount that lists the objects in the order of their numbers."""

    def __init__(self) -> None:
        self.ledger = Ledger.create({})
        self.objects: dict[int, int] = {}
        self.unspent: Counter[str] = Counter()
        self.deleted: list[tuple[str, int, int]] = []
        self.views: Counter[str] = Counter()
        self.start: RecountStart | None = None
        self.listed: dict[int, int] = {}
        self.listed_up_to = -1

    def update(self, replica: str, granted: int = 0) -> None:
        """Write the ledger, as a replica does: with what it deleted, and what it has."""
        for _, size, position in [entry for entry in self.deleted if entry[0] == replica]:
            self.ledger.release_deleted(NAME, size, position)
        self.deleted = [entry for entry in self.deleted if entry[0] != replica]
        if granted:
            self.ledger.grant(NAME, granted)
            self.unspent[replica] += granted
        self.ledger.replicas[replica] = Replica(0.0, {NAME: self.unspent[replica]})
        self.ledger = Ledger.decode(self.ledger.encode("x")) or self.ledger
        self.views[replica] = self.ledger.position

    def put(self, replica: str, number: int, size: int) -> None:
        if number not in self.objects:
            if self.unspent[replica] < size:
                self.update(replica, size * 2)
            self.unspent[replica] -= size
            self.objects[number] = size

    def delete(self, replica: str, number: int) -> None:
        if number in self.objects:
            self.deleted.append((replica, self.objects.pop(number), self.views[replica]))

    def step_recount(self, end: int) -> None:
        """Begin a recount, list objects, or apply it."""
        if self.start is None:
            self.start, self.listed, self.listed_up_to = self.ledger.start_recount(), {}, -1
        elif self.listed_up_to < 20:
            new = {number: size for number, size in self.objects.items() if self.listed_up_to < number <= end}
            self.listed |= new
            self.listed_up_to = max(self.listed_up_to, end)
        else:
            self.ledger.apply_recount(self.start, {NAME: sum(self.listed.values())})
            self.start = None

    @property
    def used_bytes(self) -> int:
        return self.ledger.accounts[NAME].used_bytes


replicas = st.sampled_from("abc")
numbers = st.integers(0, 20)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), replicas, numbers, st.integers(1, 9)),
        st.tuples(st.just("delete"), replicas, numbers),
        st.tuples(st.just("update"), replicas),
        st.tuples(st.just("step_recount"), numbers),
        st.tuples(st.just("step_recount"), st.just(20)),
    ),
    max_size=60,
)


@given(steps)
def test_no_account_is_ever_too_low_and_a_quiet_recount_makes_it_exact(steps: list[tuple[object, ...]]) -> None:
    model = Model()
    for name, *arguments in steps:
        getattr(model, str(name))(*arguments)
        assert model.used_bytes >= sum(model.objects.values()) + sum(model.unspent.values())
    for replica in "abc":
        model.update(replica)
    # Nothing changes now; the replicas have died.
    model.ledger.replicas.clear()
    model.ledger.apply_recount(model.ledger.start_recount(), {NAME: sum(model.objects.values())})
    assert model.used_bytes == sum(model.objects.values())


def test_a_recount_of_another_ledger_changes_nothing() -> None:
    ledger, other = Ledger.create({NAME: 10}), Ledger.create({NAME: 20})
    assert not ledger.apply_recount(other.start_recount(), {NAME: 5})
    assert ledger.accounts == {NAME: Account(10)}


def test_a_damaged_ledger_is_none() -> None:
    data = Ledger.create({NAME: 10, "p-1": 5}).encode("x")
    assert Ledger.decode(data) is not None
    for end in range(len(data)):
        assert Ledger.decode(data[:end]) is None
    for wrong in (b"[]", b"{}", b"null", b'{"id": "x", "position": 1, "accounts": {}, "replicas": {}}'):
        assert Ledger.decode(wrong) is None
