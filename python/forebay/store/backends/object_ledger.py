"""The ledger of a bucket: one object with all accounts, and the bytes that each replica may still spend of them.

A replica is granted bytes in advance, and the grant is added to the account at once. So the ledger is never too low,
whatever replicas do with their grants.
"""

import dataclasses
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import orjson

from forebay.store.backends import TOTAL_ACCOUNT

__all__ = ["Account", "Ledger", "RecountStart", "Replica"]


@dataclasses.dataclass(slots=True)
class Account:
    """An account in the ledger."""

    used_bytes: int = 0
    """The bytes of its objects, and all that replicas may still spend."""
    changed_at: int = 0
    """The ledger's position at the last grant or release."""
    lowered_at: int = 0
    """The ledger's position when it got the account or a recount lowered it. Earlier deletions are not subtracted."""


@dataclasses.dataclass(slots=True)
class Replica:
    """A process that spends bytes of the accounts."""

    seen_at: float
    slices: dict[str, int]
    """Upper bounds of the granted bytes that are not spent yet, by account."""


@dataclasses.dataclass(frozen=True, slots=True)
class RecountStart:
    """The state of the ledger when a recount starts."""

    ledger_id: str
    position: int
    unspent: Mapping[str, int]
    """Unspent bytes by account: the recount may not list the objects that are paid for with them."""


@dataclasses.dataclass(slots=True)
class Ledger:
    """All accounts. Each grant or release adds its bytes to `position`, which so bounds what was granted since."""

    id: str
    position: int = 1
    accounts: dict[str, Account] = dataclasses.field(default_factory=dict)
    replicas: dict[str, Replica] = dataclasses.field(default_factory=dict)

    @classmethod
    def create(cls, sums: Mapping[str, int]) -> "Ledger":
        """Return a ledger of counted objects, which no replica has used yet."""
        accounts = {name: Account(size) for name, size in sums.items() if size}
        accounts.setdefault(TOTAL_ACCOUNT, Account())
        return cls(secrets.token_hex(8), accounts=accounts)

    @classmethod
    def decode(cls, data: bytes) -> "Ledger | None":
        """Return the ledger in JSON, or `None` if it is damaged."""
        try:
            value: dict[str, Any] = orjson.loads(data)
            ledger = cls(
                str(value["id"]),
                int(value["position"]),
                {name: Account(*map(int, fields)) for name, fields in value["accounts"].items()},
                {
                    name: Replica(
                        float(replica["seen_at"]), {key: int(size) for key, size in replica["slices"].items()}
                    )
                    for name, replica in value["replicas"].items()
                },
            )
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError):
            return None
        return ledger if TOTAL_ACCOUNT in ledger.accounts else None

    def encode(self, writer: str) -> bytes:
        """Return the ledger as JSON. `writer` makes the text unique, so that a writer recognizes its own."""
        return orjson.dumps(
            {
                "id": self.id,
                "position": self.position,
                "writer": writer,
                "accounts": {name: list(dataclasses.astuple(account)) for name, account in self.accounts.items()},
                "replicas": {
                    name: {"seen_at": replica.seen_at, "slices": replica.slices}
                    for name, replica in self.replicas.items()
                },
            }
        )

    def usage(self) -> Counter[str]:
        """Return the bytes of each account."""
        return Counter({name: account.used_bytes for name, account in self.accounts.items()})

    def grant(self, name: str, size: int) -> None:
        """Add bytes to an account that a replica may spend from now on."""
        self.position += size
        account = self.accounts.setdefault(name, Account(lowered_at=self.position))
        account.used_bytes += size
        account.changed_at = self.position

    def release(self, name: str, size: int) -> None:
        """Subtract bytes that were not spent, or those of a deleted object."""
        self.position += size
        account = self.accounts.get(name)
        if account is not None:
            account.used_bytes = max(0, account.used_bytes - size)
            account.changed_at = self.position

    def release_deleted(self, name: str, size: int, position: int) -> None:
        """Subtract the size of an object that was deleted after `position`, unless a recount may have done so."""
        account = self.accounts.get(name)
        if account is not None and account.lowered_at <= position:
            self.release(name, size)

    def drop_replicas(self, max_age_seconds: float) -> bool:
        """Drop replicas without a recent heartbeat. The next recount frees what they have not spent."""
        limit = time.time() - max_age_seconds
        dead = [name for name, replica in self.replicas.items() if replica.seen_at < limit]
        for name in dead:
            del self.replicas[name]
        return bool(dead)

    def start_recount(self) -> RecountStart:
        """Return the state that `apply_recount` needs. Call this before the objects are listed."""
        unspent: Counter[str] = Counter()
        for replica in self.replicas.values():
            unspent.update(replica.slices)
        return RecountStart(self.id, self.position, unspent)

    def apply_recount(self, start: RecountStart, sums: Mapping[str, int]) -> bool:
        """Correct the accounts by the sums of the listed objects, and return whether something changed.

        Every object that exists now was listed, or was paid for with bytes that were unspent at the start or granted
        since. So the sum of these three is never too low.
        """
        if self.id != start.ledger_id or self.position < start.position:
            return False
        moved = self.position - start.position
        corrections: dict[str, int] = {}
        for name in {*self.accounts, *sums}:
            account, listed = self.accounts.get(name, Account()), sums.get(name, 0)
            has_changed = account.changed_at > start.position
            upper_bound = listed + start.unspent.get(name, 0) + (moved if has_changed else 0)
            if account.used_bytes > upper_bound:
                corrections[name] = upper_bound
            elif account.used_bytes < listed and not has_changed:
                corrections[name] = listed
        self.position += bool(corrections)
        for name, used_bytes in corrections.items():
            account = self.accounts.setdefault(name, Account(changed_at=self.position))
            if used_bytes < account.used_bytes:
                account.lowered_at = self.position
            account.used_bytes = used_bytes
        in_use = {name for replica in self.replicas.values() for name in replica.slices} | {TOTAL_ACCOUNT}
        unused = [name for name, account in self.accounts.items() if not account.used_bytes and name not in in_use]
        for name in unused:
            del self.accounts[name]
        return bool(corrections or unused)
