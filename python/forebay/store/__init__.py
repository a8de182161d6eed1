"""A store for payloads that are too large to show."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from forebay.arguments import check_text, short_repr
from forebay.errors import InvalidArgument, StoreUnavailable
from forebay.store.backends.local import LocalBackend
from forebay.store.call_counts import CallCounts
from forebay.store.catalog import StoredOutput
from forebay.store.handles import OPERATOR
from forebay.store.journal import Journal
from forebay.store.options import Options
from forebay.store.store import Store
from forebay.store.sweep import SweepReport

__all__ = ["OPERATOR", "Options", "Store", "StoredOutput", "SweepReport", "open_store", "resolve_root"]


def open_store(url: str | os.PathLike[str] | None = None, **options: Any) -> Store:
    """Open the store in a folder: `file:///path` or a `Path`.

    Without one, it is that of the variable `FOREBAY_STORE` (an address) or `FOREBAY_HOME` (a folder), or is in the
    user's data directory. `options` are fields of `Options`.
    """
    root = resolve_root(url)
    unknown = set(options).difference(Options.__slots__)
    if unknown:
        names = ", ".join(Options.__slots__)
        raise InvalidArgument(f"no such option of a store: {', '.join(sorted(unknown))}; there are {names}")
    store_options = Options(**options)
    backend = LocalBackend(root, clock=store_options.clock, is_durable=store_options.durability == "power")
    folders, clock = backend.folders, store_options.clock
    return Store(backend, Journal(folders, clock), CallCounts(folders, clock), store_options)


def resolve_root(url: str | os.PathLike[str] | None) -> Path:
    """Return the folder that `open_store` opens for this argument."""
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
    path = unquote(parts.path)
    is_file = parts.scheme == "file" and parts.netloc in ("", "localhost") and path.startswith("/")
    if not is_file or parts.query or parts.fragment or "\0" in path:
        hint = f"; did you mean {Path(url).as_uri()}?" if url.startswith("/") and "\0" not in url else ""
        raise InvalidArgument(f"a store is file:///path, or nothing for the default, not {url!r}{hint}")
    return Path(path)


def _check_path(path: str) -> None:
    """Raise `InvalidArgument` for a path that the system cannot have."""
    try:
        is_valid = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        is_valid = False
    if not is_valid:
        raise InvalidArgument(f"no folder can have the path {short_repr(path)}; pass another one")
