"""Values that are made up, where there is nothing to keep: as simple as the schema allows."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from forebay.operations.casting.endings import HEAVIEST, LONGEST, has_values, needed, needed_items
from forebay.operations.casting.sampling import samples
from forebay.operations.casting.scalars import NO, copied, weight
from forebay.operations.casting.shape import Shape

__all__ = ["Maker"]

_HEAVIEST_SAMPLE = 1000


class Maker:
    """Makes values up, each once."""

    def __init__(self, default_of: Any) -> None:
        self._default_of = default_of
        self._made: dict[Shape, Any] = {}
        self._lights: dict[Shape, Any] = {}
        self._sampled: dict[Shape, Any] = {}

    def made(self, shape: Shape) -> Any:
        """A value that fits; `NO` if there is none that ends."""
        if not has_values(shape):
            return NO
        if shape not in self._made:
            self._make_all(shape)
        return copied(self._made[shape])

    def samples(self, shape: Shape) -> Iterator[Any]:
        """Values of which one may fit, to be copied by whoever takes one."""
        return samples(shape, self._light)

    def _light(self, shape: Shape) -> Any:
        if shape not in self._lights:
            made = self.made(shape)
            self._lights[shape] = NO if weight(made) > _HEAVIEST_SAMPLE else made
        return self._lights[shape]

    def sample(self, shape: Shape) -> Any:
        """A value that fits, of any kind; `NO` if none is found."""
        if shape not in self._sampled:
            fitting = (value for value in self.samples(shape) if shape.fits(value))
            self._sampled[shape] = next(fitting, NO)
        return copied(self._sampled[shape])

    def nearest(self, shape: Shape) -> Any:
        """A value that fits, or what comes nearest to one."""
        made = self.made(shape)
        if made is not NO:
            return made
        for one in (*shape.alternatives, shape):
            if one.types and "object" in one.types:
                for member in one.members.values():
                    self.made(member)
                return self._object(one, is_whole=False)
            if one.types:
                return _PLAIN[one.types[0]]()
        return None

    def _make_all(self, shape: Shape) -> None:
        """Whatever needs nothing is made first, then what needs only that, and so on: each is as small as can be."""
        waiting = [one for one in needed(shape) if has_values(one) and one not in self._made]
        while shape not in self._made:
            # Samples are for what the simplest values are not enough for, once there are some to vary. A pattern, or
            # another rule that nothing can be made up for, must not be in the way: who validates tells.
            ways = (self._simplest, self._sampled_one, self._any_candidate)
            ready = next(filter(None, (self._attempts(waiting, way) for way in ways)), dict.fromkeys(waiting, NO))
            self._made |= ready
            waiting = [one for one in waiting if one not in ready]

    def _attempts(self, shapes: list[Shape], way: Callable[[Shape], Any]) -> dict[Shape, Any]:
        tried = ((shape, way(shape)) for shape in shapes)
        return {shape: value for shape, value in tried if value is not NO}

    def _simplest(self, shape: Shape) -> Any:
        default = self._default_of(shape)
        if default is not NO:
            return default
        if shape.enum is not None:
            return shape.enum[0]
        return next(filter(shape.fits, self._candidates(shape)), NO)

    def _sampled_one(self, shape: Shape) -> Any:
        if not shape.alternatives and shape.types is not None:
            return NO
        return next(filter(shape.fits, samples(shape, lambda one: self._made.get(one, NO))), NO)

    def _any_candidate(self, shape: Shape) -> Any:
        return next(self._candidates(shape), NO)

    def _candidates(self, shape: Shape) -> Iterator[Any]:
        if shape.takes("null") and shape.fits(None):
            yield None
        if shape.alternatives:
            yield from (self._made[one] for one in shape.alternatives if self._made.get(one, NO) is not NO)
            return
        for name in shape.inferred_types():
            match name:
                case "object":
                    made = self._object(shape, is_whole=True)
                case "array":
                    made = self._array(shape)
                case "string":
                    made = "-" * min(int(shape.least("minLength") or 0), LONGEST)
                case "integer" | "number":
                    made = _number(shape, is_whole=name == "integer")
                case _:
                    made = _PLAIN[name]()
            if made is not NO:
                yield made

    def _object(self, shape: Shape, *, is_whole: bool) -> Any:
        made: dict[str, Any] = {}
        for name, member in shape.members.items():
            if name in shape.required:
                made[name] = self._made.get(member, NO)
            elif member.default:
                made[name] = self._default_of(member)
        if is_whole and any(made.get(name, NO) is NO for name in shape.required):
            return NO
        members = [(name, value) for name, value in made.items() if value is not NO]
        return dict(members[: _room_for(value for _, value in members)])

    def _array(self, shape: Shape) -> Any:
        needed = needed_items(shape)
        if any(self._made.get(one, NO) is NO for one in needed):
            return NO
        return [self._made[one] for one in needed[: _room_for(self._made[one] for one in needed)]]


_PLAIN: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": int,
    "boolean": bool,
    "null": lambda: None,
}


def _room_for(values: Iterable[Any]) -> int:
    """How many of them, from the first on, are not too much together."""
    weights = itertools.accumulate(map(weight, values))
    return sum(1 for _ in itertools.takewhile(lambda total: total < HEAVIEST, weights))


def _number(shape: Shape, *, is_whole: bool) -> Any:
    """Zero, or what is nearest to it within the bounds; zero if those are beyond what can be reckoned with."""
    try:
        return _nearest_to_zero(shape, is_whole=is_whole)
    except OverflowError:
        return 0


def _nearest_to_zero(shape: Shape, *, is_whole: bool) -> Any:
    low, high = shape.least("minimum"), shape.most("maximum")
    above, below = shape.least("exclusiveMinimum"), shape.most("exclusiveMaximum")
    step = shape.least("multipleOf") or 1
    tries = [0]
    for bound in (low, high, above, below):
        if bound is not None:
            tries += [math.ceil(bound / step) * step, math.floor(bound / step) * step]
            tries += [(math.floor(bound / step) + 1) * step, (math.ceil(bound / step) - 1) * step]
            tries += [] if is_whole else [bound]
    if None not in (low if above is None else above, high if below is None else below) and not is_whole:
        tries.append(((low if above is None else above) + (high if below is None else below)) / 2)
    return next((number for number in sorted(tries, key=abs) if shape.fits(number)), 0)
