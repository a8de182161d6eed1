"""Put payloads into a store, beside plain files and beside the zstd command.

Both sides write to the same folder. forebay also validates the payload, indexes its items and lines, checks the quota
and writes the journal.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import corpus
import forebay
import pytest
from conftest import MeasureRounds

SMALL = 10_000
MAX_EXTRA_BYTES = 64 << 20


def redeem(store: forebay.Store, handle: str) -> bytes:
    with store.open(handle) as file:
        return file.read()


def put_in(store: forebay.Store, put_one: Callable[[], str]) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return a function that puts a payload, and one that removes all payloads put so far."""
    handles: list[str] = []

    def put() -> None:
        handles.append(put_one())

    def clear() -> None:
        while handles:
            store.delete(handles.pop())

    return put, clear


@pytest.mark.parametrize("who", ["forebay", "plain write"])
def bench_put_uncompressed(measure_rounds: MeasureRounds, folder: Path, who: str) -> None:
    data = corpus.load("records", "100 MB")
    partial, path = folder / "records.partial", folder / "records.json"

    def plain() -> None:
        with partial.open("wb") as file:
            file.write(data)
        partial.rename(path)

    with forebay.open_store((folder / "uncompressed").as_uri(), compression="none") as store:
        put, clear = put_in(store, lambda: store.put(data).output_handle)
        plain()
        assert path.read_bytes() == redeem(store, store.put(data).output_handle) == data
        works = {"forebay": (put, clear), "plain write": (plain, lambda: path.unlink(missing_ok=True))}
        measure_rounds("put, uncompressed", "records 100 MB", who, len(data), *works[who])
        clear()


@pytest.fixture(scope="module")
def records(folder: Path) -> Path:
    path = folder / "records"
    path.write_bytes(corpus.load("records", "100 MB"))
    return path


STREAM = """
import pathlib, sys
import forebay

def status(key):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(key))

with forebay.open_store(sys.argv[1]) as store:
    store.put(b"[]")
    before = status("VmRSS")
    with open(sys.argv[2], "rb") as file:
        store.put(file)
    print(status("VmHWM") - before)
"""


def extra_memory(url: str, path: Path) -> int:
    """Return the bytes that putting a file adds to the peak memory of a process."""
    command = [sys.executable, "-c", STREAM, url, str(path)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.parametrize("who", ["forebay", "zstd -1 -T2"])
def bench_put_compressed(measure_rounds: MeasureRounds, folder: Path, records: Path, who: str) -> None:
    """Both sides read the payload from a file."""
    zstd = shutil.which("zstd")
    assert zstd, "install the zstd command: it is what compressed puts are compared with"
    path = folder / "records.zst"

    def compress() -> None:
        subprocess.run([zstd, "-1", "-T2", "-q", "-f", records, "-o", path], check=True)

    def decompress(path: Path) -> bytes:
        return subprocess.run([zstd, "-dcq", path], check=True, capture_output=True).stdout

    with forebay.open_store((folder / "compressed").as_uri()) as store:

        def put_file() -> str:
            with records.open("rb") as file:
                return store.put(file).output_handle

        put, clear = put_in(store, put_file)
        compress()
        handle = put_file()
        (stored,) = folder.glob(f"compressed/*/{handle}.*")
        assert decompress(stored) == decompress(path) == records.read_bytes()
        extra = extra_memory((folder / "child").as_uri(), records)
        assert extra <= MAX_EXTRA_BYTES
        relative_size = stored.stat().st_size / path.stat().st_size
        note = f"{relative_size:.2f} × the size on disk, {extra / corpus.MB:.0f} MB of memory"
        store.delete(handle)
        works = {"forebay": (put, clear), "zstd -1 -T2": (compress, path.unlink)}
        measure_rounds("put, compressed", "records 100 MB", who, records.stat().st_size, *works[who], note=note)
        clear()


def small_payloads() -> Iterator[bytes]:
    """Yield arrays of ten records each."""
    lines = corpus.ndjson(SMALL * 2200).splitlines()
    for start in range(0, SMALL * 10, 10):
        yield b"[" + b",".join(lines[start : start + 10]) + b"]"


@pytest.mark.parametrize("who", ["forebay", "plain files"])
def bench_put_small(measure_rounds: MeasureRounds, folder: Path, who: str) -> None:
    """Nothing is removed between rounds: ext4 creates files slowly after many were removed."""
    payloads = list(small_payloads())
    numbers = count()

    with forebay.open_store((folder / "small").as_uri()) as store:

        def put() -> None:
            for payload in payloads:
                store.put(payload)

        def plain() -> None:
            target = folder / f"plain-{who}-{next(numbers)}"
            target.mkdir()
            for i, payload in enumerate(payloads):
                with open(f"{target}/{i}.json", "wb") as file:  # noqa: PTH123 - the fastest way in Python
                    file.write(payload)

        assert redeem(store, store.put(payloads[-1]).output_handle) == payloads[-1]
        size = sum(map(len, payloads))
        works = {"forebay": put, "plain files": plain}
        measure_rounds("10,000 small puts", "2 KB each", who, size, works[who])
