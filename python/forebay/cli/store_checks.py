"""Check a remote store: whether it can be used, and the lifecycle rules of its bucket."""

from typing import NamedTuple

from forebay.errors import ForebayError, StoreUnavailable
from forebay.store import RemoteAddress, open_store
from forebay.store.address import OBJECT_STORE_SCHEMES

__all__ = ["StoreCheck", "check_store"]


class StoreCheck(NamedTuple):
    """The problems of a store, and a note about what could not be checked."""

    problems: list[str]
    note: str | None = None


def check_store(address: RemoteAddress) -> StoreCheck:
    """Open a store, and compare the lifecycle rules of its bucket with those that `forebay store lifecycle` prints."""
    try:
        with open_store(address, sweep_interval=0) as store:
            store.check()
    except ForebayError as error:
        return StoreCheck([str(error)])
    scheme = address.parts.scheme
    if scheme not in OBJECT_STORE_SCHEMES:
        return StoreCheck([])
    if scheme != "s3":
        return StoreCheck([], f"compare the rules of the bucket with `forebay store lifecycle {address}`")
    # Imported here, because few stores are in a bucket.
    from forebay.store.backends.s3_lifecycle import find_rule_problems

    try:
        return StoreCheck(find_rule_problems(address))
    except StoreUnavailable as error:
        return StoreCheck([], str(error))
