"""A store for payloads that are too large to show."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.errors import InvalidArgument
from forebay.store.address import REDIS_SCHEMES, RemoteAddress, mask_address, resolve_address
from forebay.store.backends import Backend
from forebay.store.backends.local import LocalBackend
from forebay.store.catalog import StoredOutput
from forebay.store.handles import OPERATOR
from forebay.store.options import Options
from forebay.store.store import Store
from forebay.store.sweep import SweepReport

if TYPE_CHECKING:
    from forebay.store.backends.object_store import ObjectStoreBackend
    from forebay.store.backends.redis import RedisBackend

__all__ = [
    "OPERATOR",
    "Options",
    "RemoteAddress",
    "Store",
    "StoredOutput",
    "SweepReport",
    "mask_address",
    "open_store",
    "resolve_address",
]


def open_store(url: str | os.PathLike[str] | RemoteAddress | None = None, **options: Any) -> Store:
    """Open a store: `file:///path` or a `Path`, `s3://bucket/prefix`, `gs://`, `az://`, or `redis://host`.

    Without one, it is that of the variable `FOREBAY_STORE` (an address) or `FOREBAY_HOME` (a folder), or is in the
    user's data directory. `options` are fields of `Options`.
    """
    address = resolve_address(url)
    unknown = set(options).difference(Options.__slots__)
    if unknown:
        names = ", ".join(Options.__slots__)
        raise InvalidArgument(f"no such option of a store: {', '.join(sorted(unknown))}; there are {names}")
    store_options = Options(**options)
    return Store(_open_backend(address, store_options), store_options)


def _open_backend(address: Path | RemoteAddress, options: Options) -> Backend:
    if isinstance(address, Path):
        return LocalBackend(address, clock=options.clock, is_durable=options.durability == "power")
    if not options.read_cache_bytes:
        return _open_remote_backend(address, options)
    from forebay.store.backends.read_cache import CachedBackend, ReadCache

    cache = ReadCache(options.read_cache_bytes, options.read_cache_folder)
    try:
        return CachedBackend(_open_remote_backend(address, options), cache)
    except BaseException:
        cache.close()
        raise


def _open_remote_backend(address: RemoteAddress, options: Options) -> "RedisBackend | ObjectStoreBackend":
    if address.parts.scheme in REDIS_SCHEMES:
        from forebay.store.backends.redis import RedisBackend

        return RedisBackend(address, clock=options.clock)
    from forebay.store.backends.object_store import ObjectStoreBackend

    return ObjectStoreBackend(address, clock=options.clock)
