"""No verb copies its payload: what it allocates is as large as its answer.

Each is run in a process of its own on a mapped file, whose pages are all touched before the peak is read.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SIZE = 64 << 20
# A payload that was copied would add 64 MiB. Indexes and answers here are far below this.
SLACK = 8 << 20

MEASURE = """
import mmap, sys, zlib
import headgate


def peak():
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
    except FileNotFoundError:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def verb(data):
    return VERB


verb(SMALL)
with open(PATH, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
    zlib.crc32(data)
    before = peak()
    result = verb(data)
    print(peak() - before)
    del result
"""

ITEM = b'{"id":1,"name":"na\xc3\xafve","tags":["a","b"],"text":"' + b"lorem ipsum " * 12 + b'"}'


@pytest.fixture(scope="session")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("memory") / "records.json"
    with path.open("wb") as file:
        file.write(b'{"items":[' + ITEM)
        file.writelines([b",\n" + ITEM] * (SIZE // (len(ITEM) + 2)))
        file.write(b"]}")
    assert path.stat().st_size >= SIZE - len(ITEM)
    return path


def growth(verb: str, path: Path) -> int:
    small = b'{"items":[' + ITEM + b"]}"
    code = MEASURE.replace("VERB", verb).replace("SMALL", repr(small)).replace("PATH", json.dumps(str(path)))
    command = [sys.executable, "-c", code]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: S603


@pytest.mark.skipif(sys.platform == "win32", reason="neither /proc nor resource there")
@pytest.mark.parametrize(
    "verb",
    [
        "headgate.index_items(data)",
        "headgate.index_items(data, validate=False)",
        "headgate.index_items(data, '/items')",
        "headgate.index_lines(data)",
        "headgate.truncate(data)",
        "headgate.truncate_lines(data)",
        "headgate.preview(data)",
        "headgate.outline(data)",
        "headgate.locate(data, '/items')",
        "headgate.read_text(data, len(data) // 2)",
        "headgate.read_lines(data, 100_000)",
        "headgate.read_lines(data, last=10)",
        "headgate.read_items(data, headgate.index_items(data), last=10)",
        "headgate.search(data, 'nowhere')",
        "headgate.search(data, r'\\bnowhere\\d+', regex=True)",
    ],
)
def test_memory_does_not_grow_with_the_payload(verb: str, records: Path) -> None:
    assert growth(verb, records) < SLACK


def test_a_copy_would_be_noticed(records: Path) -> None:
    assert growth("bytes(data)", records) > SIZE // 2
