"""Access control lists of Windows, as bytes."""

import struct
from collections.abc import Collection, Iterator

__all__ = ["ADMINISTRATORS", "READ_RIGHTS", "SYSTEM", "WRITE_RIGHTS", "encode_sid", "find_others"]


def encode_sid(text: str) -> bytes:
    """Return the bytes of a security identifier such as `S-1-5-18`."""
    revision, authority, *parts = map(int, text.removeprefix("S-").split("-"))
    return struct.pack(f"<BB6s{len(parts)}I", revision, len(parts), authority.to_bytes(6, "big"), *parts)


SYSTEM = encode_sid("S-1-5-18")
ADMINISTRATORS = encode_sid("S-1-5-32-544")
_OWNER_RIGHTS = encode_sid("S-1-3-4")

_LIST_HEADER = struct.Struct("<BxHHxx")
_ENTRY_HEADER = struct.Struct("<BBHI")
_ALLOWED_TYPES = {0, 4, 5, 9, 11}
"""Types of entries that allow something; the others deny or audit."""
_OBJECT_TYPES = {5, 11}
_INHERIT_ONLY = 0x8

WRITE_RIGHTS = 0x2 | 0x4 | 0x40 | 0x10000 | 0x40000 | 0x80000 | 0x40000000 | 0x10000000
"""Write, append, delete what is in a folder, delete, change the list or the owner, and the generic rights to write."""

READ_RIGHTS = 0x1 | 0x40000 | 0x80000 | 0x80000000 | 0x10000000
"""Read, the generic rights to read, and to change the list or the owner: who has these can take the right to read."""


def find_others(access_list: bytes | None, trusted: Collection[bytes], wanted_rights: int) -> list[bytes]:
    """Return the identifiers that have one of these rights, apart from trusted ones, the system and the administrators.

    `None` stands for a missing list, which allows everything to everybody. Entries that deny are not considered.
    """
    if access_list is None:
        return [encode_sid("S-1-1-0")]
    known = {SYSTEM, ADMINISTRATORS, _OWNER_RIGHTS, *trusted}
    return [sid for sid, rights in _iter_allowed(access_list) if rights & wanted_rights and sid not in known]


def _iter_allowed(access_list: bytes) -> Iterator[tuple[bytes, int]]:
    count = _LIST_HEADER.unpack_from(access_list)[2]
    offset = _LIST_HEADER.size
    for _ in range(count):
        kind, flags, size, rights = _ENTRY_HEADER.unpack_from(access_list, offset)
        if kind in _ALLOWED_TYPES and not flags & _INHERIT_ONLY:
            # An object entry has other fields before its identifier, which is not read: it counts as another user.
            sid = b"" if kind in _OBJECT_TYPES else access_list[offset + _ENTRY_HEADER.size : offset + size]
            yield sid[: 8 + 4 * sid[1]] if len(sid) > 1 else sid, rights
        offset += size
