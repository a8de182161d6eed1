"""Disks that are full, read-only or gone, and too few open files: a clear error, and nothing lost or left behind."""

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from faults import assert_tidy, error_code, in_child, opened, redeem, stored_files, stray_files
from forebay import ForebayError, HandleNotFound, Store, StoreFull, StoreUnavailable
from on_wine import IS_WINE

MEGABYTE = bytes(range(256)) * 4096


class Disk:
    """A small file system in memory, mounted only for a child process, and gone when that ends."""

    def __init__(self, size: str) -> None:
        # In its own mount namespace the child may mount anywhere; if not run by root, it needs a user namespace too.
        unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
        mount = f"mount -t tmpfs -o size={size},mode=700 none /mnt && echo mounted && . /dev/stdin"
        self._process = subprocess.Popen(
            [*unshare, "sh", "-c", mount], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if self._read_line() != "mounted":
            self.close()
            pytest.skip("this user may mount nothing here")
        self.root = Path(f"/proc/{self._process.pid}/root/mnt/store")

    def _read_line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def remount(self, how: str) -> None:
        """Remount the file system. It can become read-only only while no file is open for writing."""
        assert self._process.stdin
        self._process.stdin.write(f"mount -o remount,{how} /mnt; echo $?\n")
        self._process.stdin.flush()
        assert self._read_line() == "0"

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk("8m")
    yield disk
    disk.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def fill(store: Store, **options: Any) -> dict[str, bytes]:
    """Store payloads until there is no room, and return those that were acknowledged."""
    stored = {}
    for i in range(1000):
        data = os.urandom(300_000) if i % 2 else b"%d" % i
        try:
            stored[store.put(data, **options).output_handle] = data
        except StoreFull:
            return stored
    raise AssertionError("the disk is never full")


def iter_pieces(size: int) -> Iterator[bytes]:
    return (os.urandom(100_000) for _ in range(size // 100_000))


@pytest.mark.posix
@pytest.mark.slow
@pytest.mark.parametrize("compression", ["zstd", "none"])
@pytest.mark.parametrize("durability", ["process", "power"])
def test_a_full_tmpfs_is_a_full_store_and_loses_nothing(disk: Disk, compression: str, durability: str) -> None:
    root = disk.root
    with opened(root, compression=compression, durability=durability) as store:
        stored = fill(store)
        assert len(stored) > 10
        for payload in (os.urandom(9_000_000), iter_pieces(20_000_000)):
            with pytest.raises(StoreFull, match="no room"):
                store.put(payload, principal="ann")
        assert list((root / ".partial").iterdir()) == []
        assert {handle: redeem(store, handle) for handle in stored} == stored
        assert len(list(store.list())) == len(stored)
        store.sweep()
    with opened(root) as store:
        assert {handle: redeem(store, handle) for handle in stored} == stored
        for handle in stored:
            store.delete(handle)
        assert redeem(store, store.put(MEGABYTE * 4).output_handle) == MEGABYTE * 4
    assert_tidy(root)


@pytest.mark.posix
def test_expired_payloads_on_a_full_tmpfs_make_room(disk: Disk) -> None:
    now = 1_800_000_000.0
    with opened(disk.root, clock=lambda: now) as store:
        assert fill(store, ttl=10)
        now += 11
        assert store.sweep().kept == 0
        store.put(MEGABYTE * 4)
    with opened(disk.root, clock=lambda: now) as store:
        assert [stored.size_bytes for stored in store.list()] == [len(MEGABYTE) * 4]


@pytest.mark.posix
def test_a_root_on_a_read_only_tmpfs_can_be_read(disk: Disk) -> None:
    with opened(disk.root) as store:
        handle = store.put(b"payload").output_handle
        expired = store.put(b"expired", ttl=0).output_handle
        store._backend.log.close()
        store._backend.accounts.close()  # type: ignore[attr-defined]
        disk.remount("ro")
        with opened(disk.root) as another:
            for reader in (store, another):
                assert redeem(reader, handle) == b"payload"
                assert reader.fetch(handle).content == "payload"
                assert [stored.output_handle for stored in reader.list()] == [handle]
                acts: list[Callable[[], object]] = [
                    partial(reader.put, b"new"),
                    partial(reader.delete, handle),
                    reader.sweep,
                ]
                for act in acts:
                    with pytest.raises(StoreUnavailable, match=os.strerror(errno.EROFS)):
                        act()
        disk.remount("rw")
        store.put(b"new")
        store.sweep()
        assert redeem(store, handle) == b"payload"
        assert expired not in stored_files(disk.root)
    assert_tidy(disk.root)


@pytest.mark.posix
def test_a_store_cannot_be_created_on_a_read_only_tmpfs(disk: Disk) -> None:
    disk.remount("ro")
    with pytest.raises(StoreUnavailable, match=os.strerror(errno.EROFS)):
        opened(disk.root)
    disk.remount("rw")
    with opened(disk.root) as store:
        store.put(b"payload")


def write_under_a_limit(root: Path) -> None:
    import resource

    with opened(root, compression="none") as store:
        kept = store.put(b"kept").output_handle
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
        for payload in (MEGABYTE * 3, iter([MEGABYTE] * 3), os.urandom(1_000_001)):
            with pytest.raises(StoreFull):
                store.put(payload, principal="ann")
        assert list((root / ".partial").iterdir()) == []
        small = store.put(b"small", principal="ann").output_handle
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        store.put(MEGABYTE * 3)
        assert (redeem(store, kept), redeem(store, small, "ann")) == (b"kept", b"small")


@pytest.mark.posix
@pytest.mark.slow
def test_a_system_limit_on_file_sizes_is_a_full_store(root: Path) -> None:
    in_child(write_under_a_limit, root)
    assert_tidy(root)


def run_out_of_files(root: Path) -> set[str]:
    """Try every operation with 0, 1, 2… more files allowed to be opened, and return the error codes."""
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    large = b"[" + b"1," * 10_000_000 + b"1]"
    with opened(root) as store:
        handle = store.put([1, 2, 3]).output_handle
        huge = store.put(large).output_handle
    codes = set()
    for left in range(12):
        for is_open in (False, True):
            acts: list[Callable[[Store], object]] = [
                lambda store: store.put(b"new", principal="ann"),
                lambda store: store.put(iter([MEGABYTE] * 2)),
                lambda store: store.fetch(handle),
                lambda store: redeem(store, handle),
                lambda store: list(store.list()),
                lambda store: store.sweep(),
                lambda store: store.journal.recent(),
                lambda store: store.journal.summary(),
                lambda store: store.outline(huge),
                lambda store: store.delete(store.put(b"brief").output_handle),
            ]
            for act in acts:
                codes.add(with_few_files(root, left, is_open, act))
    with opened(root) as store:
        assert redeem(store, handle) == b"[1,2,3]"
        assert redeem(store, huge) == large
    return codes


def with_few_files(root: Path, left: int, is_open: bool, act: Callable[[Store], object]) -> str:
    hoard: list[int] = []

    def hoard_files() -> None:
        try:
            while True:
                hoard.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            for _ in range(left):
                os.close(hoard.pop())

    try:
        if is_open:
            with opened(root) as store:
                hoard_files()
                return error_code(lambda: act(store))
        hoard_files()
        with opened(root) as store:
            return error_code(lambda: act(store))
    except ForebayError as error:
        return error.code
    finally:
        for fd in hoard:
            os.close(fd)


@pytest.mark.posix
@pytest.mark.slow
def test_too_many_open_files_make_the_store_unavailable(root: Path) -> None:
    assert in_child(run_out_of_files, root) == {"", "store_unavailable"}
    assert_tidy(root)


@pytest.mark.posix
def test_a_store_that_ran_out_of_open_files_leaks_none(root: Path) -> None:
    assert in_child(count_files_after_running_out, root) == 0


def count_files_after_running_out(root: Path) -> int:
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - `Path` would hold one open meanwhile
    for left in range(8):
        with_few_files(root, left, False, lambda store: store.put(b"new", principal="ann"))
    return len(os.listdir("/proc/self/fd")) - before  # noqa: PTH208


@pytest.mark.xfail(IS_WINE, reason="Wine removes an open file when it is closed")
def test_a_removed_root_is_created_again(root: Path) -> None:
    with opened(root) as store, opened(root) as another:
        handle = store.put(b"payload", principal="ann").output_handle
        shutil.rmtree(root)
        assert error_code(lambda: store.fetch(handle, principal="ann")) == "output_handle_not_found"
        assert list(store.list()) == []
        new = another.put(b"new", principal="ann").output_handle
        newer = store.put(b"newer", principal="ann").output_handle
        for reader in (store, another):
            assert (redeem(reader, new, "ann"), redeem(reader, newer, "ann")) == (b"new", b"newer")
        assert store.sweep() == another.sweep()
        created = [event["handle"] for event in store.journal.recent() if event["event"] == "output_handle_created"]
        assert created == [newer, new]
    assert_tidy(root)


@pytest.mark.xfail(IS_WINE, reason="Wine removes an open file when it is closed")
def test_a_root_removed_during_a_put_stores_nothing(root: Path) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(12):
            yield MEGABYTE
        shutil.rmtree(root)
        yield MEGABYTE

    with opened(root) as store:
        with pytest.raises(StoreUnavailable):
            store.put(chunks())
        handle = store.put(b"works again").output_handle
        assert redeem(store, handle) == b"works again"
    assert_tidy(root)


@pytest.mark.posix
def test_a_root_that_is_moved_away_and_back_still_has_all_payloads(root: Path, tmp_path: Path) -> None:
    with opened(root) as store:
        before = store.put(b"before").output_handle
        root.rename(tmp_path / "away")
        meanwhile: dict[str, bytes] = {}
        code = error_code(lambda: meanwhile.update({store.put(b"meanwhile").output_handle: b"meanwhile"}))
        assert code in ("", "store_unavailable")
        assert error_code(store.sweep) in ("", "store_unavailable")
        shutil.rmtree(root, ignore_errors=True)
        (tmp_path / "away").rename(root)
        store.put(b"after")
        assert redeem(store, before) == b"before"
        assert {handle: redeem(store, handle) for handle in meanwhile} == meanwhile
    assert_tidy(root)


def test_a_store_moves_to_the_folder_that_replaced_its_root(root: Path, tmp_path: Path) -> None:
    with opened(root) as store:
        store.put(b"old")
        root.rename(tmp_path / "old")
        with opened(root) as another:
            new = another.put(b"new").output_handle
        store.sweep()
        assert redeem(store, new) == b"new"
        mine = store.put(b"mine").output_handle
        assert set(stored_files(root)) == {new, mine}
    assert_tidy(root)


@pytest.mark.posix
def test_a_put_to_a_root_that_was_moved_away_is_refused(root: Path, tmp_path: Path) -> None:
    with opened(root) as store:
        before = store.put(b"before").output_handle
        root.rename(tmp_path / "away")
        with pytest.raises(StoreUnavailable, match="was moved away; move it back"):
            store.put(b"meanwhile")
        assert set(stored_files(tmp_path / "away")) == {before}
        assert not root.exists()
        (tmp_path / "away").rename(root)
        store.put(b"after")
        assert redeem(store, before) == b"before"
    assert_tidy(root)


@pytest.mark.posix
@pytest.mark.parametrize("replaced", [False, True])
def test_a_root_moved_away_just_before_the_commit_is_noticed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    rename = os.rename

    def move_and_rename(source: str, target: str, **folders: int) -> None:
        monkeypatch.setattr(os, "rename", rename)
        root.rename(tmp_path / "away")
        if replaced:
            root.mkdir(mode=0o700)
        rename(source, target, **folders)

    with opened(root) as store:
        before = store.put(b"before").output_handle
        monkeypatch.setattr(os, "rename", move_and_rename)
        acknowledged: list[str] = []
        code = error_code(lambda: acknowledged.append(store.put(b"meanwhile").output_handle))
        assert (code == "") == replaced
        assert set(stored_files(tmp_path / "away")) == {before}
        assert set(stored_files(root)) == set(acknowledged)
        assert list((tmp_path / "away" / ".partial").iterdir()) == []


@pytest.mark.posix
@pytest.mark.parametrize("moved", ["the root", "the day"])
def test_a_put_goes_to_the_folder_that_other_processes_see(root: Path, tmp_path: Path, moved: str) -> None:
    with opened(root) as store:
        before = store.put(b"before").output_handle
        (day,) = (path for path in root.iterdir() if path.name[0] == "2")
        place = root if moved == "the root" else day
        place.rename(tmp_path / "aside")
        place.mkdir(mode=0o700)
        after = store.put(b"after").output_handle
        with opened(root) as other:
            assert redeem(other, after) == redeem(store, after) == b"after"
        with pytest.raises(HandleNotFound):
            store.stat(before)
    assert stray_files(root) == []


def test_a_closed_store_is_unavailable(root: Path) -> None:
    store = opened(root)
    handle = store.put(b"payload").output_handle
    store.close()
    store.close()
    # Files opened now may get the descriptor numbers that the store had.
    with (root / ".." / "other").open("wb"), opened(root.parent / "another"):
        for act in (lambda: store.put(b"new"), lambda: store.fetch(handle), store.sweep, lambda: list(store.list())):
            with pytest.raises(StoreUnavailable, match="this store is closed; open it again"):
                act()
