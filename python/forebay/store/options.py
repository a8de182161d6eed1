"""Options of a store."""

import dataclasses
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Literal, cast, get_args

from forebay.errors import InvalidArgument
from forebay.store.clock import check_clock
from forebay.store.handles import SHORT_HANDLE_LENGTH, check_handle_length
from forebay.store.redaction import PayloadRedaction, TextRedaction, make_redactions

__all__ = ["Options", "check_ttl"]

_Compression = Literal["zstd", "none"]
_Durability = Literal["process", "power"]
_OnFull = Literal["refuse", "evict"]

_MAX_TTL_SECONDS = 100 * 366 * 24 * 3600


def check_ttl(ttl: float) -> None:
    """Raise `InvalidArgument` unless a time to live is from 0 seconds to a century."""
    if not _is_number(ttl) or not 0 <= ttl <= _MAX_TTL_SECONDS:
        raise InvalidArgument(f"ttl is a number of seconds from 0 to {_MAX_TTL_SECONDS:,}, a century, not {ttl!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a store. Sizes are in bytes, times in seconds."""

    ttl: float = 24 * 3600
    """How long a payload is kept; with 0 it expires at once."""
    quota_bytes: int | None = 4 << 30
    """Maximum bytes that all payloads together may take on disk; `None` for no limit."""
    principal_quota_bytes: int | None = 1 << 30
    """Maximum bytes that the payloads of one principal may take. Payloads without a principal have no such limit."""
    on_full: _OnFull = "refuse"
    """What a full store does: `refuse` raises `StoreFull`, `evict` removes the principal's oldest payloads."""
    compression: _Compression = "zstd"
    """How payloads are stored. `zstd` leaves alone what does not compress."""
    durability: _Durability = "process"
    """What a stored payload survives: `process` a crash of the process, `power` also a power cut."""
    redact: str | TextRedaction | Sequence[str | TextRedaction] = ()
    """Regular expressions whose matches become `[redacted]`, and functions that return a text without its secrets.

    They are applied in turn to each text of a payload before any of it is written: to all of it, or in JSON to each
    string (keys included) and number, with its escapes decoded. A text that is itself JSON, or base64 of text, is
    redacted by its own texts. A stream is read into memory for this.
    """
    handle_length: int = SHORT_HANDLE_LENGTH
    """Number of characters after `oh_`: 12, or 26 if other users must not guess handles."""
    sweep_interval: float = 300
    """Seconds between background sweeps, which remove expired payloads; 0 turns them off."""
    warn_bytes: int = 100_000_000
    """Log a warning when a principal has stored more than this through one open store."""
    read_cache_bytes: float = 0
    """Maximum size of a file that keeps what was read from a store on other machines; 0 for no such file.

    What was deleted there is not found here: a page from the cache still takes one short request.
    """
    read_cache_folder: str | os.PathLike[str] | None = None
    """Where the file is: a disk with room for it. By default the folder for temporary files."""
    clock: Callable[[], float] = time.time
    """Function that returns the time, in seconds since 1970."""

    def __post_init__(self) -> None:
        for name, allowed in (("compression", _Compression), ("durability", _Durability), ("on_full", _OnFull)):
            if getattr(self, name) not in get_args(allowed):
                choices = " or ".join(map(repr, get_args(allowed)))
                raise InvalidArgument(f"{name} is {choices}, not {getattr(self, name)!r}")
        check_ttl(self.ttl)
        for name in ("quota_bytes", "principal_quota_bytes", "sweep_interval", "warn_bytes", "read_cache_bytes"):
            value = getattr(self, name)
            if value is None and name in ("quota_bytes", "principal_quota_bytes"):
                continue
            if not _is_number(value) or not 0 <= value < math.inf:
                raise InvalidArgument(f"{name} is a number, not negative, and not {value!r}")
        object.__setattr__(self, "clock", check_clock(self.clock))
        object.__setattr__(self, "redact", make_redactions(self.redact))
        check_handle_length(self.handle_length)

    @property
    def redactions(self) -> Sequence[PayloadRedaction]:
        """The entries of `redact`, compiled."""
        return cast("Sequence[PayloadRedaction]", self.redact)
