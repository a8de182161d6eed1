"""Where a store is: a folder, or the URL of a bucket or a Redis server."""

import dataclasses
import itertools
import os
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from forebay.arguments import check_text, short_repr
from forebay.errors import InvalidArgument, StoreUnavailable
from forebay.system.paths import parse_file_url

__all__ = ["OBJECT_STORE_SCHEMES", "REDIS_SCHEMES", "RemoteAddress", "mask_address", "resolve_address"]

OBJECT_STORE_SCHEMES = ("s3", "gs", "az")
REDIS_SCHEMES = tuple(
    f"{server}{encrypted}{topology}"
    for server, topology in itertools.product(("redis", "valkey"), ("", "+cluster", "+sentinel"))
    for encrypted in ("", "s")
)

_SHOWN_PARAMETERS = ("prefix", "endpoint", "region")
"""Parameters of an address that tell stores apart, and are no secrets."""


@dataclasses.dataclass(frozen=True, slots=True)
class RemoteAddress:
    """The URL of a store on other machines. Its text has no credentials."""

    url: str = dataclasses.field(repr=False)

    @property
    def parts(self) -> SplitResult:
        return urlsplit(self.url)

    def __str__(self) -> str:
        return mask_address(self.url)


def mask_address(url: str) -> str:
    """Return an address without what may be a credential, even if the address is not valid.

    That is everything before the last `@`, because a password may have characters that should be escaped, and all of
    the query but a few harmless parameters.
    """
    if url.startswith(("file:///", "/")):
        return url
    head, at, rest = url.rpartition("@")
    rest, _, query = rest.partition("#")[0].partition("?")
    shown = "&".join(pair for pair in query.split("&") if pair.partition("=")[0] in _SHOWN_PARAMETERS)
    scheme, separator, _ = head.partition("://")
    return f"{scheme + separator if separator else ''}{'***@' if at else ''}{rest}{f'?{shown}' if shown else ''}"


def resolve_address(url: str | os.PathLike[str] | RemoteAddress | None) -> Path | RemoteAddress:
    """Return where `open_store` finds the store for this argument."""
    if isinstance(url, RemoteAddress):
        return url
    if isinstance(url, os.PathLike):
        path = os.fsdecode(url)
        _check_path(path)
        return Path(path).absolute()
    # An empty variable counts as unset.
    url = url if url is not None else os.environ.get("FOREBAY_STORE") or None
    if url is None:
        home = os.environ.get("FOREBAY_HOME")
        if home:
            try:
                return Path(home).expanduser().absolute()
            except RuntimeError as error:
                raise StoreUnavailable(f"FOREBAY_HOME={home} leads nowhere: {error}") from None
        import platformdirs

        return platformdirs.user_data_path("forebay", appauthor=False)
    check_text("the address of a store", url)
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme in (*OBJECT_STORE_SCHEMES, *REDIS_SCHEMES) and parts.netloc:
        return RemoteAddress(url)
    file_path = parse_file_url(parts.netloc, unquote(parts.path)) if parts.scheme == "file" else None
    if file_path is None or parts.query or parts.fragment or "\0" in file_path:
        hint = f"; did you mean {Path(url).as_uri()}?" if "\0" not in url and Path(url).is_absolute() else ""
        raise InvalidArgument(
            "a store is file:///path, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or redis://host, "
            f"or nothing for the default, not {mask_address(url)!r}{hint}"
        )
    return Path(file_path)


def _check_path(path: str) -> None:
    """Raise `InvalidArgument` for a path that the system cannot have."""
    try:
        is_valid = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        is_valid = False
    if not is_valid:
        raise InvalidArgument(f"no folder can have the path {short_repr(path)}; pass another one")
