"""Arguments with half of a surrogate pair, which no file name and no JSON can hold, are refused with our errors."""

from collections.abc import Callable
from pathlib import Path

import pytest
from forebay import OPERATOR, ForebayError, InvalidArgument, Store, open_store
from stores import store_at

HALF = "half \ud800"

CALLS: list[Callable[[Store, str], object]] = [
    lambda store, _: store.put(b"x", principal=HALF),
    lambda store, _: store.put(b"x", source_tool=HALF),
    lambda store, _: store.put(b"x", mime_type=HALF),
    lambda store, _: store.put(HALF),
    lambda store, _: store.put([HALF]),
    lambda store, _: store.put({HALF: 1}),
    lambda store, _: store.fetch(HALF),
    lambda store, _: store.delete(HALF),
    lambda store, _: store.delete(HALF, principal=OPERATOR),
    lambda store, handle: store.fetch(handle, principal=HALF),
    lambda store, handle: store.delete(handle, principal=HALF),
    lambda store, handle: store.fetch(handle, path=HALF),
    lambda store, handle: store.fetch(handle, path="/" + HALF),
    lambda store, handle: store.fetch(handle, fields=[HALF]),
    lambda store, handle: store.fetch(handle, format=HALF),  # type: ignore[arg-type]
    lambda store, handle: store.search(handle, HALF),
    lambda store, handle: store.search(handle, HALF, regex=True),
    lambda store, handle: store.get(handle, HALF),
    lambda store, _: [*store.list(principal=HALF)],
    lambda store, _: store.journal.recent(principal=HALF, is_operator=False),
    lambda store, _: store.journal.summary(principal=HALF, is_operator=False),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_call_raises_our_error_or_none(call: Callable[[Store, str], object], tmp_path: Path) -> None:
    with store_at(tmp_path / "store") as store:
        handle = store.put([{"a": 1}]).output_handle
        try:
            call(store, handle)
        except ForebayError as error:
            str(error).encode()
        store.sweep()
        assert store.get(handle, "/0/a") == b"1"


@pytest.mark.posix
@pytest.mark.parametrize("path", [HALF, "nul \0"])
def test_a_root_that_no_system_can_have_is_an_invalid_argument(path: str, tmp_path: Path) -> None:
    for url in (tmp_path / path, f"{tmp_path}/{path}", f"file://{tmp_path}/{path}"):
        with pytest.raises(InvalidArgument) as caught:
            open_store(url)
        str(caught.value).encode()


def test_an_address_that_is_no_text_is_an_invalid_argument() -> None:
    with pytest.raises(InvalidArgument):
        open_store(5)  # type: ignore[arg-type]
