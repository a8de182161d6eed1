"""Access control lists of Windows; the tests run on every system."""

import struct

import pytest
from forebay.system.access_lists import (
    ADMINISTRATORS,
    READ_RIGHTS,
    SYSTEM,
    WRITE_RIGHTS,
    encode_sid,
    find_others,
)

ANN, EVERYBODY, USERS = encode_sid("S-1-5-21-1-2-3-1001"), encode_sid("S-1-1-0"), encode_sid("S-1-5-32-545")
ALL, READ, MODIFY = 0x1F01FF, 0x1200A9, 0x1301BF
ALLOW, DENY, ALLOW_OBJECT = 0, 1, 5
INHERITED, INHERIT_ONLY = 0x10, 0x8


def make_list(*entries: tuple[int, int, int, bytes]) -> bytes:
    """Return an access control list, as bytes. An entry is its type, flags, rights and identifier."""
    data = b"".join(
        struct.pack("<BBHI", kind, flags, 8 + len(sid), rights) + sid for kind, flags, rights, sid in entries
    )
    return struct.pack("<BBHHH", 2, 0, 8 + len(data), len(entries), 0) + data


def test_an_identifier_is_encoded() -> None:
    assert SYSTEM.hex() == "010100000000000512000000"
    assert ADMINISTRATORS.hex() == "01020000000000052000000020020000"


@pytest.mark.parametrize(
    ("entries", "writers", "readers"),
    [
        ([], [], []),
        ([(ALLOW, 0, ALL, ANN), (ALLOW, 0, ALL, SYSTEM), (ALLOW, INHERITED, ALL, ADMINISTRATORS)], [], []),
        ([(ALLOW, 0, ALL, ANN), (ALLOW, 0, READ, USERS)], [], [USERS]),
        ([(ALLOW, INHERITED, MODIFY, EVERYBODY)], [EVERYBODY], [EVERYBODY]),
        ([(ALLOW, 0, 0x10000000, USERS)], [USERS], [USERS]),
        ([(ALLOW, 0, 0x80000, USERS)], [USERS], [USERS]),
        ([(ALLOW, 0, 0x2, USERS)], [USERS], []),
        # It applies only to files created in the folder, and these get a list of their own.
        ([(ALLOW, INHERIT_ONLY, ALL, EVERYBODY)], [], []),
        ([(DENY, 0, ALL, EVERYBODY)], [], []),
    ],
)
def test_other_users_with_access_are_found(
    entries: list[tuple[int, int, int, bytes]], writers: list[bytes], readers: list[bytes]
) -> None:
    access_list = make_list(*entries)
    assert find_others(access_list, [ANN], WRITE_RIGHTS) == writers
    assert find_others(access_list, [ANN], READ_RIGHTS) == readers


def test_without_a_list_everybody_may_do_everything() -> None:
    assert find_others(None, [ANN], WRITE_RIGHTS) == [EVERYBODY]


def test_an_object_entry_counts_as_access_of_another_user() -> None:
    assert find_others(make_list((ALLOW_OBJECT, 0, ALL, ANN)), [ANN], WRITE_RIGHTS) != []
