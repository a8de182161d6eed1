"""Parts of a message that nobody parsed."""

import contextlib
import dataclasses
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import orjson

from forebay import _core
from forebay.store.payload import PIECE, WrittenJSON, encoded
from forebay.wire.spool import Spool

__all__ = [
    "MOST_CONTAINER",
    "MOST_DEPTH",
    "MOST_STRING",
    "Part",
    "Pieces",
    "LazyJSON",
    "part_of",
    "spliced",
    "parse_lazy",
    "whole_of",
    "written",
]

MOST_STRING = 1024
"""The longest string that is parsed."""

MOST_CONTAINER = 8192
"""The largest container that is parsed."""

MOST_DEPTH = 64
"""How many containers stand around what is parsed; `orjson` reads no more than 1,024."""

_TOKEN = secrets.token_hex(16)
"""What stands for holes. Nobody who writes messages knows it, so nobody can write a hole."""

_HOLE = re.compile(f'"{_TOKEN}:([0-9]+)"'.encode())

Part: TypeAlias = tuple[bytes | memoryview | str, int, int]
"""A value as the core takes it: a buffer or the path of a file, and where in it."""


class LazyJSON(WrittenJSON):
    """The bytes of a value, quotes or brackets included: in memory, or in a spool."""

    __slots__ = ("_source", "end", "start")

    def __init__(self, source: memoryview | Spool, start: int, end: int) -> None:
        self._source = source
        self.start = start
        self.end = end

    def __len__(self) -> int:
        return self.end - self.start

    def __repr__(self) -> str:
        where = "in a spool" if self.is_spooled else "in memory"
        return f"Raw({len(self)} bytes {where})"

    @property
    def is_spooled(self) -> bool:
        return isinstance(self._source, Spool)

    @property
    def folder(self) -> str | None:
        """Where there is room for more of the same, if it is spooled."""
        return self._source.folder if isinstance(self._source, Spool) else None

    @property
    def is_string(self) -> bool:
        return self._first == b'"'

    @property
    def is_object(self) -> bool:
        return self._first == b"{"

    @property
    def is_array(self) -> bool:
        return self._first == b"["

    @property
    def _first(self) -> bytes:
        return b"".join(self._bytes(self.start, self.start + 1))

    @property
    def part(self) -> Part:
        source = self._source
        return (source.path if isinstance(source, Spool) else source, self.start, self.end)

    def at(self, start: int, end: int) -> "LazyJSON":
        """What stands elsewhere in the same message."""
        return LazyJSON(self._source, start, end)

    def only_member(self, name: str) -> "LazyJSON | None":
        """The value of the only member, if that is called so."""
        span = _core.only_member(self.part, name)
        return None if span is None else self.at(*span)

    def members(self, names: Sequence[str]) -> "dict[str, LazyJSON]":
        """The members of these names, each as it came, whatever others are called. Raises `InvalidJSON`."""
        spans = _core.members(self.part, names)
        return {name: self.at(*span) for name, span in zip(names, spans, strict=True) if span is not None}

    def taken_apart(self) -> Any:
        """What `taken_apart` makes of it."""
        return parse_lazy(self._source, self.start, self.end)

    def json_pieces(self) -> Iterator[bytes | memoryview]:
        """The bytes that came."""
        return self._bytes(self.start, self.end)

    def text_pieces(self) -> Iterator[bytes]:
        """What a string stands for."""
        unescaper = _core.Unescaper()
        for piece in self._bytes(self.start + 1, self.end - 1):
            yield unescaper.push(piece)
        yield unescaper.finish()

    def json(self) -> bytes:
        return b"".join(self.json_pieces())

    def text(self) -> bytes:
        if isinstance(self._source, Spool):
            return b"".join(self.text_pieces())
        return _core.unescape(self._source[self.start + 1 : self.end - 1])

    def _bytes(self, start: int, end: int) -> Iterator[bytes | memoryview]:
        if isinstance(self._source, Spool):
            return self._source.pieces(start, end)
        view = self._source[start:end]
        return (view[at : at + PIECE] for at in range(0, len(view), PIECE))


@dataclasses.dataclass(frozen=True, slots=True)
class Pieces:
    """A payload that is too large for memory: as often as it is asked, from its start."""

    make: Callable[[], Iterator[bytes | memoryview]]
    most: int
    """What it is not larger than."""
    folder: str | None = None
    """Where there is room for as much again."""

    def __iter__(self) -> Iterator[bytes | memoryview]:
        return self.make()

    def head(self) -> bytes:
        """Its start."""
        return bytes(next((piece for piece in self if piece), b""))

    def whole(self) -> bytes:
        return b"".join(self)


def parse_lazy(
    source: bytes | bytearray | memoryview | Spool,
    start: int = 0,
    end: int | None = None,
    *,
    most_string: int = MOST_STRING,
    most_container: int = MOST_CONTAINER,
    most_depth: int = MOST_DEPTH,
) -> Any:
    """A message in which everything large, and whatever Python would not keep as it is, is a `Raw`.

    Raises `InvalidJSON` for what is not one JSON value.
    """
    whole = whole_of(source, start, end)
    skeleton, holes = _core.dissect(
        whole.part, _TOKEN, most_string=most_string, most_container=most_container, most_depth=most_depth
    )
    return _filled(orjson.loads(skeleton), [whole.at(*hole) for hole in holes])


def whole_of(source: bytes | bytearray | memoryview | Spool, start: int = 0, end: int | None = None) -> LazyJSON:
    """A message that nobody parsed."""
    if not isinstance(source, Spool):
        source = memoryview(source).cast("B").toreadonly()
    return LazyJSON(source, start, len(source) if end is None else end)


def _filled(skeleton: Any, holes: list[LazyJSON]) -> Any:
    """The skeleton with its holes in it. Not by recursion: it may be deeper than Python's stack."""
    root = [skeleton]
    waiting: list[Any] = [root] if holes else []
    while waiting:
        container = waiting.pop()
        for place, value in container.items() if isinstance(container, dict) else enumerate(container):
            if isinstance(value, dict | list):
                waiting.append(value)
            elif isinstance(value, str):
                token, _, number = value.partition(":")
                if token == _TOKEN:
                    container[place] = holes[int(number)]
    return root[0]


def written(value: object) -> bytes:
    """A value as JSON, each `Raw` in it as the bytes that came."""
    data = spliced(value)
    return data.whole() if isinstance(data, Pieces) else data


def spliced(value: object) -> bytes | Pieces:
    """A value as JSON, each `Raw` in it as the bytes that came; in pieces if one of them is spooled."""
    holes: list[LazyJSON] = []

    def placeholder(inner: object) -> object:
        if not isinstance(inner, LazyJSON):
            return inner
        holes.append(inner)
        return f"{_TOKEN}:{len(holes) - 1}"

    skeleton = encoded(value, placeholder)

    def pieces() -> Iterator[bytes | memoryview]:
        for number, between in enumerate(_HOLE.split(skeleton)):
            if number % 2 == 0:
                yield between
            else:
                yield from holes[int(between)].json_pieces()

    folder = next((hole.folder for hole in holes if hole.folder is not None), None)
    if folder is not None:
        return Pieces(pieces, len(skeleton) + sum(map(len, holes)), folder)
    return b"".join(pieces()) if holes else skeleton


@contextlib.contextmanager
def part_of(value: object) -> Iterator[Part]:
    """A value as the core takes it; one with something spooled in it is put together where that is."""
    if isinstance(value, LazyJSON):
        yield value.part
        return
    data = spliced(value)
    if isinstance(data, bytes):
        yield data, 0, len(data)
        return
    with Spool(data.folder or tempfile.gettempdir()) as spool:
        for piece in data:
            spool.write(piece)
        yield spool.path, 0, spool.size
