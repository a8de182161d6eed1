"""Values that are still not built as the schema says, such as those of two members of a `oneOf`, made to be."""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from forebay.operations.casting.endings import has_values
from forebay.operations.casting.making import Maker
from forebay.operations.casting.sampling import in_place, inside
from forebay.operations.casting.scalars import NO, copied, json_type, raised, weight
from forebay.operations.casting.shape import Shape

__all__ = ["Mend", "Mender"]

_DEEPEST = 64

_MOST_WORK = 100_000
"""Values that are looked at in one cast. After that only a few changes of each are tried."""

_FEWEST = 8

_TYPES = ("string", "number", "boolean")


class Mend(NamedTuple):
    """A value, and what was thrown away for it: each with its path."""

    value: Any
    lost: tuple[tuple[tuple[Any, ...], Any], ...] = ()

    @property
    def loss(self) -> int:
        return sum(weight(old) for _, old in self.lost)

    @property
    def is_new(self) -> bool:
        """Whether nothing of the value is left."""
        return any(path == () for path, _ in self.lost)


class Mender:
    """Of one value."""

    def __init__(self, maker: Maker) -> None:
        self._maker = maker
        self._work = _MOST_WORK
        self._known: dict[tuple[int, int], tuple[Any, Mend]] = {}

    def mended(self, shape: Shape, value: Any, depth: int = 0) -> Mend:
        """The value itself if it is built as it should be, or if nothing is found that is."""
        key = (id(shape), id(value))
        if key not in self._known:
            # A union that comes back to itself learns nothing from it. The value is held, so that its id stays its own.
            self._known[key] = (value, Mend(value))
            if depth < _DEEPEST and not shape.is_never and not self._stands(shape, value):
                self._known[key] = (value, self._best(shape, value, depth))
        return self._known[key][1]

    def _stands(self, shape: Shape, value: Any) -> bool:
        self._work -= weight(value)
        return shape.is_built_like(value)

    def _best(self, shape: Shape, value: Any, depth: int) -> Mend:
        if shape.alternatives:
            tries = [self.mended(one, value, depth + 1) for one in shape.alternatives if has_values(one)]
        else:
            tries = [self._inside(shape, value, depth)]
        tries = sorted((one for one in tries if one.value is not value and not one.is_new), key=lambda one: one.loss)
        made = self._maker.sample(shape)
        # Where nothing is found that fits, it is not looked for near to each value again.
        edits = () if made is NO else _edits(shape, value, self._maker)
        for number, mend in enumerate(itertools.chain(tries, edits)):
            if number > _FEWEST and self._work < 0:
                break
            if self._stands(shape, mend.value):
                return mend
        return Mend(value) if made is NO else Mend(made, (((), value),))

    def _inside(self, shape: Shape, value: Any, depth: int) -> Mend:
        if isinstance(value, dict):
            below = {name: shape.members.get(name) or shape.member(name) for name in value}
            mends = {name: self._below(one, value[name], depth) for name, one in below.items()}
            better: Any = {name: mend.value for name, mend in mends.items()}
        elif isinstance(value, list | tuple):
            firsts = shape.first_items[: len(value)]
            shapes = [*firsts, *[shape.item] * (len(value) - len(firsts))]
            mends = {number: self._below(one, value[number], depth) for number, one in enumerate(shapes)}
            better = [mend.value for mend in mends.values()]
        else:
            return Mend(value)
        if all(mend.value is value[name] for name, mend in mends.items()):
            return Mend(value)
        lost = (((name, *path), old) for name, mend in mends.items() for path, old in mend.lost)
        return Mend(better, tuple(lost))

    def _below(self, shape: Shape | None, value: Any, depth: int) -> Mend:
        return Mend(value) if shape is None else self.mended(shape, value, depth + 1)


def _edits(shape: Shape, value: Any, maker: Maker) -> Iterator[Mend]:
    """The value with one thing changed: what loses nothing comes first."""
    if isinstance(value, dict):
        yield from _edits_of_object(in_place(shape), value, maker)
    elif isinstance(value, list | tuple):
        yield from _edits_of_array(in_place(shape), value, maker)
    elif json_type(value) is not None:
        others = (raised(value, name) for name in _TYPES)
        yield from (Mend(other) for other in others if other is not NO and other is not value)


def _edits_of_object(shapes: list[Shape], value: dict[Any, Any], maker: Maker) -> Iterator[Mend]:
    names = dict.fromkeys(name for one in shapes for name in sorted(one.named))

    def with_another(name: str) -> Iterator[Any]:
        for one in inside(shapes, name) or shapes[:1]:
            for sample in maker.samples(one):
                yield {**value, name: copied(sample)}

    for name in names:
        if name not in value:
            yield from map(Mend, with_another(name))
    for name in sorted(value, key=lambda name: weight(value[name])):
        lost = (((name,), value[name]),)
        yield Mend({other: item for other, item in value.items() if other != name}, lost)
        if name in names:
            yield from (Mend(other, lost) for other in with_another(name))


def _edits_of_array(shapes: list[Shape], value: Any, maker: Maker) -> Iterator[Mend]:
    items = [*dict.fromkeys(one.item for one in shapes)]
    for one in items:
        yield from (Mend([*value, copied(sample)]) for sample in maker.samples(one))
    for number in range(len(value))[::-1]:
        lost = (((number,), value[number]),)
        if number == len(value) - 1:
            # What comes after it would be told of at another place.
            yield Mend([*value[:-1]], lost)
        for one in items:
            for sample in maker.samples(one):
                yield Mend([*value[:number], copied(sample), *value[number + 1 :]], lost)
