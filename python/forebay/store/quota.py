"""Quotas: limits for the bytes on disk, in total and for each principal."""

from collections.abc import Mapping

from forebay.errors import StoreFull
from forebay.store.backends import TOTAL_ACCOUNT, AccountFull, Backend, Upload, has_room, name_account
from forebay.store.entries import Entry

__all__ = ["Quota", "QuotaExceeded"]


class QuotaExceeded(StoreFull):
    """A quota is exceeded according to the accounts. After a crash they may be too high until the next recount."""


class Quota:
    """Limits of the accounts of a backend; `None` is no limit."""

    def __init__(self, backend: Backend, max_total_bytes: int | None, max_principal_bytes: int | None) -> None:
        self._backend = backend
        self._max_total_bytes = max_total_bytes
        self._max_principal_bytes = max_principal_bytes

    def is_counted(self) -> bool:
        """Return whether the objects of this store were ever counted."""
        return TOTAL_ACCOUNT in self._backend.usage([TOTAL_ACCOUNT])

    def explain_shortage(self, principal: str | None, size: int) -> str | None:
        """Return why `size` more bytes do not fit now, or `None` if they do. Only `commit` guarantees the space."""
        limits = self._get_limits(principal)
        return self._explain(self._backend.usage(limits), principal, size)

    def explain_oversize(self, principal: str | None, size: int) -> str | None:
        """Return why `size` bytes do not fit even into an empty store, or `None` if they do."""
        limits = self._get_limits(principal)
        if has_room({TOTAL_ACCOUNT: 0}, size, limits):
            return None
        smallest = min(limit for limit in limits.values() if limit is not None)
        return f"this payload is larger than a quota of {smallest:,} bytes; store less of it, or raise the quota"

    def commit(self, upload: Upload, entry: Entry, extension: str) -> None:
        """Commit an object. Raises `QuotaExceeded` if it does not fit; then it is not committed."""
        try:
            upload.commit(extension, self._get_limits(entry.principal), entry)
        except AccountFull as full:
            # Another writer may have made room since.
            shortage = self._explain(full.usage, entry.principal, entry.size) or "the quota had no room; call again"
            raise QuotaExceeded(shortage) from None

    def delete(self, handle: str, principal: str | None, size: int) -> bool:
        """Delete an object, and return whether it existed."""
        return self._backend.delete(handle, size, self._get_limits(principal))

    def _get_limits(self, principal: str | None) -> dict[str, int | None]:
        """Return the limit of each account that an object of the principal counts in."""
        limits = {TOTAL_ACCOUNT: self._max_total_bytes}
        return limits if principal is None else limits | {name_account(principal): self._max_principal_bytes}

    def _explain(self, usage: Mapping[str, int], principal: str | None, size: int) -> str | None:
        if TOTAL_ACCOUNT not in usage:
            return "what is stored was not counted yet; call again"
        for name, limit in self._get_limits(principal).items():
            used = usage.get(name, 0)
            if limit is not None and used + size > limit:
                owner = "the store's" if name == TOTAL_ACCOUNT else "your"
                return (
                    f"{owner} quota of {limit:,} bytes has {max(0, limit - used):,} left, "
                    f"and this takes at least {size:,}; "
                    "delete what is no longer needed, wait until it expires, or raise the quota"
                )
        return None
