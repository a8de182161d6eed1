"""Malformed handles, files planted in the root and payloads of other principals are never read."""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from faults import assert_tidy, error_code, in_child, opened, redeem, stored_files
from forebay import (
    OPERATOR,
    ForebayError,
    HandleNotFound,
    InvalidArgument,
    Store,
    StoreUnavailable,
    open_store,
)
from forebay.system.paths import check_windows_name

READS: dict[str, Callable[[Store, Any, Any], object]] = {
    "fetch": lambda store, handle, who: store.fetch(handle, principal=who),
    "fetch_path": lambda store, handle, who: store.fetch(handle, path="/0", principal=who),
    "fetch_nonsense": lambda store, handle, who: store.fetch(handle, offset=-1, limit=0, principal=who),
    "search": lambda store, handle, who: store.search(handle, "a", principal=who),
    "outline": lambda store, handle, who: store.outline(handle, principal=who),
    "get": lambda store, handle, who: store.get(handle, "/0", principal=who),
    "open": lambda store, handle, who: store.open(handle, principal=who),
    "stat": lambda store, handle, who: store.stat(handle, principal=who),
    "delete": lambda store, handle, who: store.delete(handle, principal=who),
}

KNOWN = "oh_ABCDEFGHIJKL"

MALFORMED_HANDLES: list[Any] = [
    "",
    "oh_",
    "oh_ABCDEFGHIJK",
    "oh_ABCDEFGHIJKLM",
    "oh_ABCDEFGHIJKLMNOPQRSTUVWXYZ2",
    "oh_" + "A" * 100_000,
    "oh_abcdefghijkl",
    "OH_ABCDEFGHIJKL",
    "oh_ABCDEFGHIJK1",
    "oh-ABCDEFGHIJKL",
    " " + KNOWN,
    KNOWN + " ",
    KNOWN + "\n",
    "\n" + KNOWN,
    KNOWN + "\0",
    KNOWN + "\0.json.zst",
    KNOWN + ".json",
    KNOWN + ".json.zst",
    KNOWN + "/",
    KNOWN + "/../" + KNOWN,
    "./" + KNOWN,
    "../" + KNOWN,
    "../../../../etc/passwd",
    "..\\..\\" + KNOWN,
    "/etc/passwd",
    "file:///etc/passwd",
    "%2e%2e%2f" + KNOWN,
    "oh_../../../pa",
    "oh_/etc/passwd",
    "oh_............",
    "oh_************",
    "oh_ABCDEFGHIJK?",
    # Letters and digits that look alike, that case folding makes alike, or that are digits in other scripts.
    "oh_\u0410BCDEFGHIJKL",
    "oh_ABCDEFGHIJ\u212aL",
    "oh_ABCDEFGHIJK\uff2c",
    "oh_ABCDEFGHIJK\u0662",
    "oh_ABCDEFGHIJK\u00b2",
    "oh_ABCDEFGHIJKL\u200b",
    "\u202eoh_ABCDEFGHIJKL",
    "oh\uff3fABCDEFGHIJKL",
    "oh_ABCDEFGHIJK\ud800",
    "\U0001f600" * 15,
    None,
    0,
    True,
    1.5,
    b"oh_ABCDEFGHIJKL",
    bytearray(b"oh_ABCDEFGHIJKL"),
    [KNOWN],
    {"output_handle": KNOWN},
    Path(KNOWN),
    object(),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    with opened(root) as store:
        yield store


def refusal(read: str, store: Store, handle: object, who: object) -> tuple[type, str, str]:
    with pytest.raises(ForebayError) as caught:
        READS[read](store, handle, who)
    return type(caught.value), caught.value.code, str(caught.value)


def everything_under(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


@pytest.mark.parametrize("read", READS)
def test_a_malformed_handle_is_not_found(store: Store, read: str) -> None:
    for handle in MALFORMED_HANDLES:
        kind, code, message = refusal(read, store, handle, OPERATOR)
        assert (kind, code) == (HandleNotFound, "output_handle_not_found"), handle
        assert len(message) < 300
        assert message.encode().isascii() or isinstance(handle, str)


def test_a_malformed_handle_reaches_no_file(store: Store, root: Path) -> None:
    # Files of these very names, where a careless path would find them.
    store.put(b"so that there is a day")
    (day,) = root.glob("2*")
    for name in (
        "passwd.json.zst",
        "oh_abcdefghijkl.json.zst",
        "oh_ABCDEFGHIJK?.json.zst",
        f"{KNOWN}.json.zst.json.zst",
    ):
        if sys.platform != "win32" or check_windows_name(name) is None:
            (day / name).write_bytes(b"planted")
    before = everything_under(day)
    for handle in MALFORMED_HANDLES:
        with pytest.raises(HandleNotFound):
            store.delete(handle, principal=OPERATOR)
    assert len(list(store.list(principal=OPERATOR))) == 1
    store.sweep()
    assert everything_under(day) == before


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("stranger", [None, "bob", "", "Ann", "ann ", "ann\0", "a\u0301nn"])
def test_another_principal_gets_the_same_error_as_for_an_unknown_handle(
    store: Store, read: str, stranger: str | None
) -> None:
    handle = store.put([{"a": 1}], principal="ann").output_handle
    kind, code, message = refusal(read, store, handle, stranger)
    unknown = refusal(read, store, KNOWN, stranger)
    assert (kind, code, message.replace(handle, KNOWN)) == unknown
    assert redeem(store, handle, "ann") == b'[{"a":1}]'
    assert [stored.output_handle for stored in store.list(principal=stranger)] == []


@pytest.mark.parametrize("read", READS)
def test_deleted_and_expired_handles_get_the_same_error_too(store: Store, read: str) -> None:
    deleted = store.put([1], principal="ann").output_handle
    store.delete(deleted, principal="ann")
    expired = store.put([1], principal="ann", ttl=0).output_handle
    words = {refusal(read, store, handle, "ann")[2].replace(handle, KNOWN) for handle in (deleted, expired, KNOWN)}
    assert len(words) == 1


def test_a_payload_without_a_principal_is_not_found_for_a_principal_named_none(store: Store) -> None:
    handle = store.put(b"nobody's").output_handle
    for who in ("None", "", "null"):
        with pytest.raises(HandleNotFound):
            store.fetch(handle, principal=who)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder outside the root, with a file that must not change."""
    folder = tmp_path / "elsewhere"
    folder.mkdir(mode=0o700)
    (folder / "precious").write_bytes(b"precious")
    return folder


@pytest.mark.posix
def test_a_root_that_is_a_link_is_refused(tmp_path: Path, elsewhere: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(elsewhere, target_is_directory=True)
    with pytest.raises(StoreUnavailable, match="symbolic link"):
        opened(link)
    assert [path.name for path in elsewhere.iterdir()] == ["precious"]


@pytest.mark.posix
def test_a_root_that_is_a_dangling_link_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere", target_is_directory=True)
    with pytest.raises(StoreUnavailable, match="symbolic link"):
        opened(link)
    assert not (tmp_path / "nowhere").exists()


def test_a_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"precious")
    with pytest.raises(StoreUnavailable, match="file is not a folder; name one"):
        opened(tmp_path / "file")
    with pytest.raises(StoreUnavailable, match="name a folder"):
        opened(tmp_path / "file" / "below")
    assert (tmp_path / "file").read_bytes() == b"precious"


@pytest.mark.posix
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702, 0o1777])
def test_a_root_that_others_can_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    root = tmp_path / "shared"
    root.mkdir()
    root.chmod(mode)
    with pytest.raises(StoreUnavailable, match=f"chmod 700 {root}"):
        opened(root)
    root.chmod(0o700)
    with opened(root) as store:
        store.put(b"as the message said")


@pytest.mark.parametrize(
    "url",
    [
        "file://host/path",
        "http://x/y",
        "s3:bucket",
        "s3://",
        "ftp://host/x",
        "/plain",
        "",
        "file:",
        "file:///a%00b",
        "file:///a\0b",
    ],
)
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument):
        open_store(url)


@pytest.mark.posix
@pytest.mark.parametrize("name", [".partial", ".usage", "journal", "calls", "today"])
def test_a_link_in_place_of_a_folder_is_not_followed(root: Path, elsewhere: Path, name: str) -> None:
    with opened(root) as store:
        described = store.put(b"before", ttl=9999)
        handle = described.output_handle
        store.call_counts.add("crawl", calls=1)
    (day,) = root.glob("2*")
    planted = day if name == "today" else root / name
    planted.rename(root / "aside")
    planted.symlink_to(elsewhere, target_is_directory=True)
    before = everything_under(elsewhere)
    with opened(root) as store:
        for act in (lambda: store.put(b"new", principal="ann"), store.sweep, lambda: store.delete(handle)):
            assert error_code(act) in ("", "store_unavailable", "output_handle_not_found")
        list(store.list())
        store.journal.recent()
        store.call_counts.add("crawl", calls=1)
        assert sum(row["calls"] for row in store.call_counts.read()) == (0 if name == "calls" else 2)
    assert everything_under(elsewhere) == before
    planted.unlink()
    (root / "aside").rename(planted)
    with opened(root) as store:
        store.put(b"works again")
    assert_tidy(root)


def plant_link(path: Path, elsewhere: Path) -> None:
    path.symlink_to(elsewhere / "precious")


def plant_pipe(path: Path, elsewhere: Path) -> None:  # noqa: ARG001
    os.mkfifo(path)


def plant_folder(path: Path, elsewhere: Path) -> None:  # noqa: ARG001
    path.mkdir()


def plant_link_to_a_stored_file(path: Path, elsewhere: Path) -> None:
    """A valid stored file outside the root."""
    with opened(elsewhere / "other") as store:
        handle = store.put(b"of another root").output_handle
    path.symlink_to(stored_files(elsewhere / "other")[handle])


PLANTS = [plant_link, plant_pipe, plant_folder, plant_link_to_a_stored_file]


@pytest.mark.posix
@pytest.mark.parametrize("plant", PLANTS)
def test_a_link_pipe_or_folder_with_the_name_of_a_handle_is_not_found(
    store: Store, root: Path, elsewhere: Path, plant: Callable[[Path, Path], None]
) -> None:
    handle = store.put(b"payload").output_handle
    kept = store.put(b"kept").output_handle
    path = stored_files(root)[handle]
    path.unlink()
    plant(path, elsewhere)
    before = everything_under(elsewhere)
    for read in READS:
        assert refusal(read, store, handle, OPERATOR)[0] is HandleNotFound
    assert [stored.output_handle for stored in store.list()] == [kept]
    store.sweep()
    with opened(root, clock=lambda: 1e11) as later:
        later.sweep()
    assert os.path.lexists(path), "what is not ours is left alone"
    assert everything_under(elsewhere) == before


@pytest.mark.posix
@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("name", [".partial/oh_ABCDEFGHIJKL", ".usage/total", "journal/today"])
def test_a_link_pipe_or_folder_in_place_of_an_own_file_does_no_harm(
    root: Path, elsewhere: Path, plant: Callable[[Path, Path], None], name: str
) -> None:
    with opened(root) as store:
        handle = store.put(b"before").output_handle
    path = root / name
    if path.name == "today":
        (path,) = path.parent.iterdir()
    path.unlink(missing_ok=True)
    plant(path, elsewhere)
    before = everything_under(elsewhere)
    with opened(root) as store:
        assert redeem(store, handle) == b"before"
        for act in (lambda: store.put(b"new"), store.sweep, lambda: store.fetch(handle), store.journal.summary):
            assert error_code(act) in ("", "store_unavailable")
    assert everything_under(elsewhere) == before
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
    with opened(root) as store:
        store.put(b"works again")
    assert_tidy(root)


def modes_under(umask: int, root: Path) -> dict[str, str]:
    """Return the modes of all files and folders that a store creates under a umask."""
    os.umask(umask)
    with opened(root) as store:
        store.put(b"payload", principal="ann")
        store.put(iter([b"payload"] * 3))
        store.sweep()
        store.put(b"expired", ttl=0)
        upload = store._backend.create("oh_ABCDEFGHIJKL")
        modes = {str(path.relative_to(root)): stat.filemode(path.stat().st_mode) for path in root.rglob("*")}
        upload.abort()
        return {**modes, "": stat.filemode(root.stat().st_mode)}


@pytest.mark.posix
@pytest.mark.slow
@pytest.mark.parametrize("umask", [0, 0o022, 0o077, 0o777])
def test_only_the_owner_may_read_or_write_whatever_the_umask(root: Path, umask: int) -> None:
    modes = in_child(modes_under, umask, root)
    assert len(modes) >= 10
    for name, mode in modes.items():
        assert mode == ("drwx------" if mode[0] == "d" else "-rw-------"), name
