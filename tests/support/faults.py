"""Helpers for fault tests: what the files of a store really hold, and child processes to damage or kill."""

import functools
import hashlib
import inspect
import multiprocessing
import re
import runpy
import struct
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from forebay import OPERATOR, ForebayError, Store, open_store

_P = ParamSpec("_P")
_T = TypeVar("_T")

_OBJECT = re.compile(r"\d{4}-\d\d-\d\d/(oh_[A-Z2-7]+)\.\w+\.zst")
_OURS = re.compile(
    r"journal/\d{4}-\d\d-\d\d(\.\d+)?\.jsonl|calls/\d{4}-\d\d-\d\d\.json|(calls/)?\.lock|\.usage/(total|p-[0-9a-f]{32})"
)


def opened(root: Path, **options: Any) -> Store:
    """Open a store at `root` without background sweeps."""
    return open_store(root.as_uri(), **{"sweep_interval": 0, **options})


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def redeem(store: Store, handle: str, principal: Any = None) -> bytes:
    """Read a whole payload."""
    with store.open(handle, principal=principal) as file:
        return file.read()


def stored_files(root: Path) -> dict[str, Path]:
    """Return the file of every handle."""
    found = {}
    for path in root.rglob("*"):
        name = _OBJECT.fullmatch(path.relative_to(root).as_posix())
        if name:
            found[name[1]] = path
    return found


def stray_files(root: Path) -> list[str]:
    """Return the files that are neither objects, counters nor a journal or counts of calls."""
    names = (path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir())
    return [name for name in names if not _OBJECT.fullmatch(name) and not _OURS.fullmatch(name)]


def counters(root: Path) -> dict[str, int]:
    """Return the counters that are not zero."""
    values = {path.name: struct.unpack_from("<q", path.read_bytes())[0] for path in (root / ".usage").iterdir()}
    return {name: value for name, value in values.items() if value}


def expected_counters(root: Path) -> dict[str, int]:
    """Return what the counters should be, from the sizes and principals of the files."""
    sums: dict[str, int] = {}
    with opened(root) as store:
        for stored in store.list(principal=OPERATOR):
            size = stored_files(root)[stored.output_handle].stat().st_size
            names = ["total"]
            if stored.principal is not None:
                names.append("p-" + digest(stored.principal.encode()))
            for name in names:
                sums[name] = sums.get(name, 0) + size
    return sums


def assert_tidy(root: Path) -> None:
    """Check that after a sweep there are only valid objects, and that the counters match them."""
    with opened(root) as store:
        store.sweep()
        listed = {stored.output_handle for stored in store.list(principal=OPERATOR)}
        for handle in listed:
            redeem(store, handle, OPERATOR)
    assert stray_files(root) == []
    assert set(stored_files(root)) == listed
    assert counters(root) == expected_counters(root)


def error_code(act: Callable[[], object]) -> str:
    """Return the code of the forebay error that a call raises, or `""`. Other errors propagate."""
    try:
        act()
    except ForebayError as error:
        return error.code
    return ""


def in_child(function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call a function of a test file in a new process, so that its limits and damage stay there."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(spawnable(function), *args, **kwargs).result()


def spawnable(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Return a function that a spawned process can import.

    Test files are no package: a child would look for `tests` among the installed packages, and may find another one.
    """
    return cast("Callable[_P, _T]", functools.partial(_call_from_file, inspect.getfile(function), function.__name__))


def _call_from_file(file: str, name: str, /, *args: Any, **kwargs: Any) -> Any:
    return runpy.run_path(file)[name](*args, **kwargs)
