"""Values to try where the simplest one does not do, as for members of a union that overlap."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from forebay.operations.casting.scalars import NO
from forebay.operations.casting.shape import Shape

__all__ = ["in_place", "inside", "samples"]

_SCALARS: tuple[Any, ...] = (None, 0, "", False, 0.5, 1, "-", True, -1)
_MOST_SHAPES = 64
_MOST = 1000
_MOST_INSIDE = 32
_DEEPEST = 2


def in_place(shape: Shape) -> list[Shape]:
    """A shape, the members of its unions, theirs, and so on."""
    found = {shape: None}
    waiting = [shape]
    while waiting and len(found) < _MOST_SHAPES:
        fresh = [one for one in waiting.pop().alternatives if one not in found]
        found.update(dict.fromkeys(fresh))
        waiting += fresh
    return [*found]


def inside(shapes: list[Shape], name: str) -> list[Shape]:
    """What a member may look like."""
    return [*dict.fromkeys(one.members[name] for one in shapes if name in one.members)]


def samples(shape: Shape, made: Callable[[Shape], Any]) -> Iterator[Any]:
    """Values of which one may fit, the simplest first."""
    return itertools.islice(_samples([shape], made, 0), _MOST)


def _samples(shapes: list[Shape], made: Callable[[Shape], Any], depth: int) -> Iterator[Any]:
    shapes = [*dict.fromkeys(below for one in shapes for below in in_place(one))]
    bases = [value for value in map(made, shapes) if value is not NO]
    yield from bases
    for one in shapes:
        yield from (one.enum or ())
    yield from _SCALARS
    yield from ([], {})
    if depth >= _DEEPEST:
        return

    def some(below: list[Shape]) -> Iterator[Any]:
        return itertools.islice(_samples(below, made, depth + 1), _MOST_INSIDE)

    yield from ([item] for item in some([one.item for one in shapes]))
    names = dict.fromkeys(name for one in shapes for name in sorted(one.named))
    objects = [*(value for value in bases if isinstance(value, dict)), {}]
    for name in names:
        for value in some(inside(shapes, name)):
            yield from ({**base, name: value} for base in objects)
    for values in itertools.islice(zip(*(some(inside(shapes, name)) for name in names), strict=False), 4):
        yield dict(zip(names, values, strict=True))
