"""A count of all objects in a bucket, made while replicas store and delete, that then corrects the ledger."""

from collections import Counter
from collections.abc import Iterator

from forebay.store.backends import TOTAL_ACCOUNT, name_account
from forebay.store.backends.object_accounts import ObjectAccounts

__all__ = ["ObjectRecount"]


class ObjectRecount:
    """A count that also frees what dead replicas have not spent."""

    def __init__(self, accounts: ObjectAccounts) -> None:
        self._accounts = accounts
        self._sums: Counter[str] = Counter({TOTAL_ACCOUNT: 0})
        ledger = accounts.read_ledger(drops_dead=True)
        self._start = None if ledger is None else ledger.start_recount()

    def add(self, principal: str | None, size: int) -> None:
        """Count an object."""
        self._sums[TOTAL_ACCOUNT] += size
        if principal is not None:
            self._sums[name_account(principal)] += size

    def apply(self) -> Iterator[None]:
        """Correct the accounts, in one step."""
        start = self._start
        if start is None:
            # Nothing could be stored while there was no ledger.
            self._accounts.create_ledger(self._sums)
        else:
            self._accounts.correct(lambda ledger: ledger.apply_recount(start, self._sums))
        yield
