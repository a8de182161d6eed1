"""Sidecars: what was computed from a payload, stored beside it so that another process need not compute it again.

A sidecar is an object of the backend like a payload, with the principal and the expiry of its payload, so it counts in
the same quotas, and sweeps remove it. Its handle follows from that of the payload, and nobody can read it by handle.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from forebay.errors import ForebayError, HandleCorrupt
from forebay.store.backends import Backend
from forebay.store.catalog import Catalog
from forebay.store.entries import Entry
from forebay.store.frames import FRAME_BYTES, WriteProgress, build_footer, build_raw_frame
from forebay.store.handles import get_sidecar_handle
from forebay.store.quota import Quota
from forebay.store.reader import PayloadReader

__all__ = ["Sidecars", "delete_hidden", "delete_sidecar", "write_hidden"]


class Sidecars:
    """The sidecars of a store's payloads, at most one of each."""

    def __init__(self, backend: Backend, catalog: Catalog, quota: Quota) -> None:
        self._backend = backend
        self._catalog = catalog
        self._quota = quota

    @contextlib.contextmanager
    def open(self, meta: dict[str, Any]) -> Iterator[tuple[dict[str, Any], PayloadReader] | None]:
        """Open the sidecar of the payload with this metadata: its description and content; `None` if there is none."""
        handle = get_sidecar_handle(meta["handle"])
        try:
            blob = self._backend.open(handle)
        except KeyError:
            yield None
            return
        with blob:
            try:
                footer = self._catalog.read_footer(handle, blob)
            except HandleCorrupt:
                footer = None
            if footer is None or footer.meta.get("sidecar_of") != _identify(meta):
                yield None
            else:
                yield footer.meta["sidecar"], PayloadReader(blob, footer)

    def delete(self, meta: dict[str, Any]) -> None:
        """Delete the sidecar of a payload, if it has one."""
        delete_sidecar(self._backend, self._quota, meta["handle"], meta["principal"])

    def write(self, meta: dict[str, Any], description: dict[str, Any], content: BinaryIO) -> bool:
        """Store a file as the sidecar of a payload, in place of the one it has, and return whether that was possible.

        It is not if a quota is exceeded, the payload is gone, or another process is writing the sidecar.
        """
        handle = get_sidecar_handle(meta["handle"])
        sidecar_meta = {
            "handle": handle,
            **{key: meta[key] for key in ("created_at", "expires_at", "principal")},
            "sidecar_of": _identify(meta),
            "sidecar": description,
        }
        try:
            write_hidden(self._backend, self._quota, sidecar_meta, content)
            self._backend.open(meta["handle"]).close()
        except KeyError:
            # The payload was deleted meanwhile.
            delete_sidecar(self._backend, self._quota, meta["handle"], meta["principal"])
            return False
        except ForebayError:
            return False
        return True


def delete_sidecar(backend: Backend, quota: Quota, handle: str, principal: str | None) -> None:
    """Delete the sidecar of a payload, if it has one."""
    delete_hidden(backend, quota, get_sidecar_handle(handle), principal)


def write_hidden(backend: Backend, quota: Quota, meta: dict[str, Any], content: BinaryIO) -> None:
    """Store a file as an object that is no payload, in place of the one of the same handle."""
    upload = backend.create(meta["handle"])
    try:
        progress = WriteProgress()
        while chunk := content.read(FRAME_BYTES):
            upload.write(progress.add_frames([build_raw_frame(chunk)]))
        whole_meta = {
            "mime_type": "application/octet-stream",
            "size_bytes": progress.payload_bytes,
            "nature": "binary",
            **dict.fromkeys(("item_count", "items_path", "outline", "source_tool")),
            **meta,
        }
        footer = build_footer(whole_meta, None, None, progress.frames)
        upload.write([footer])
        delete_hidden(backend, quota, meta["handle"], meta["principal"])
        size = progress.stored_bytes + len(footer)
        quota.commit(upload, Entry(meta["created_at"], meta["expires_at"], size, meta["principal"]), "bin")
    finally:
        upload.abort()


def delete_hidden(backend: Backend, quota: Quota, handle: str, principal: str | None) -> bool:
    """Delete an object that is no payload, and return whether it existed."""
    try:
        with backend.open(handle) as blob:
            size = blob.size
    except KeyError:
        return False
    return quota.delete(handle, principal, size)


def _identify(meta: dict[str, Any]) -> list[Any]:
    """Return values that identify a payload, even if its handle is used again later."""
    return [meta["handle"], meta["created_at"], meta["size_bytes"]]
