"""Values that are changed where they do not fit, and are the same objects where they do."""

from typing import TYPE_CHECKING, Any

from forebay.operations.casting.endings import HEAVIEST, has_values
from forebay.operations.casting.making import Maker
from forebay.operations.casting.scalars import NO, copied, is_same, json_type, raised, weight
from forebay.operations.casting.shape import Shape

if TYPE_CHECKING:
    from forebay.operations.casting.checking import Check

__all__ = ["Change", "Defaults"]

_DEEPEST = 128
"""Below this a value is left as it is. Python has no room for many more calls in each other."""


_MOST_PUT_IN = 1_000_000
"""Values, in one cast. Then what is missing stays so, and what does not fit is kept: whoever validates tells."""

_MOST_TRIALS = 64
"""Members of a union, of which the first that keeps the most is taken."""


class Defaults:
    """The defaults of shapes, and what is made up where there is none; each found once."""

    def __init__(self) -> None:
        self._found: dict[Shape, Any] = {}
        self._finding: set[Shape] = set()
        self._endless: set[Shape] = set()
        self.maker = Maker(self.of)

    def of(self, shape: Shape) -> Any:
        """The default, made to fit; `NO` if there is none that fits without a loss, ends, and is not too much."""
        if not shape.default:
            return NO
        if shape in self._finding:
            self._endless.add(shape)
            return NO
        if shape not in self._found:
            self._finding.add(shape)
            change = Change(self)
            try:
                fitted = change.fitted(shape, copied(shape.default[0]), 0)
            finally:
                self._finding.remove(shape)
            is_heavy = weight(fitted) > HEAVIEST + weight(shape.default[0])
            self._found[shape] = NO if change.replaced or is_heavy or shape in self._endless else fitted
        return copied(self._found[shape])


class _Room:
    """For what one cast puts in: many items that each lack much must not fill the memory."""

    def __init__(self, most: int) -> None:
        self._left = most

    @property
    def is_out(self) -> bool:
        return self._left <= 0

    def taken(self, value: Any) -> Any:
        self._left -= weight(value)
        return value


class Change:
    """One value on its way to fit, and what is lost of it."""

    def __init__(self, defaults: Defaults, most_put_in: int = _MOST_PUT_IN) -> None:
        self._defaults = defaults
        self.room = _Room(most_put_in)
        self._chosen: dict[tuple[int, int], tuple[Any, Change]] = {}
        self._choosing: set[tuple[int, int]] = set()
        self._check: Check | None = None
        self.replaced: list[tuple[list[str | int], Any]] = []
        """Where something was thrown away, from the inside out, and what that was."""
        self.is_made_up = False
        """Whether something that is required, and was missing, has no default and was made up; or nothing is left of an
        object but what was put in."""
        self.lost = 0
        self.changed = 0

    def fitted(self, shape: Shape, value: Any, depth: int) -> Any:
        """The value itself if it fits, and what is nearest to it otherwise."""
        if type(value) in shape.exact or depth > _DEEPEST or shape.is_never:
            return value
        if shape.enum is not None:
            return self._one_of_the_enum(shape, value)
        if shape.alternatives:
            return self._alternative(shape, value, depth)
        if isinstance(value, dict) and shape.takes("object"):
            return self._object(shape, value, depth + 1)
        if isinstance(value, list | tuple) and shape.takes("array"):
            return self._array(shape, value, depth + 1)
        return self._scalar(shape, value)

    def _scalar(self, shape: Shape, value: Any) -> Any:
        kind = json_type(value)
        if kind is None or shape.takes(kind):
            return value
        for wanted in shape.types or ():
            better = raised(value, wanted)
            if better is not NO:
                self.changed += better is not value
                return better
        return self._replacement(shape, value)

    def _replacement(self, shape: Shape, value: Any) -> Any:
        if self.room.is_out:
            return value
        self.replaced.append(([], value))
        self.lost += weight(value)
        return self.room.taken(self._defaults.maker.nearest(shape))

    def _one_of_the_enum(self, shape: Shape, value: Any) -> Any:
        if shape.has_among(value):
            return value
        for choice in shape.enum or ():
            if is_same(raised(value, json_type(choice) or ""), choice):
                self.changed += 1
                return copied(choice)
        return self._replacement(shape, value)

    def _object(self, shape: Shape, value: dict[Any, Any], depth: int) -> Any:
        members = shape.members
        better: dict[Any, Any] = {}
        unnamed = []
        for name, item in value.items():
            member = members.get(name) or shape.member(name)
            if member is not None and type(item) in member.exact:
                continue
            if member is None or (not has_values(member) and name not in shape.required):
                unnamed.append(name)
            else:
                fitted = self._below(member, item, name, depth)
                if fitted is not item:
                    better[name] = fitted
        missing = {} if shape.expected <= value.keys() else self._missing(shape, value)
        if not (better or unnamed or missing):
            return value
        self.is_made_up |= len(unnamed) == len(value) > 0
        self.lost += sum(weight(value[name]) for name in unnamed)
        self.changed += len(missing)
        gone = set(unnamed)
        return {**{name: better.get(name, item) for name, item in value.items() if name not in gone}, **missing}

    def _missing(self, shape: Shape, value: dict[Any, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, member in shape.members.items():
            if name in shape.expected and name not in value and not self.room.is_out:
                found[name] = self._defaults.of(member)
                if name in shape.required and found[name] is NO:
                    self.is_made_up = True
                    found[name] = self._defaults.maker.made(member)
        return {name: self.room.taken(item) for name, item in found.items() if item is not NO}

    def _array(self, shape: Shape, value: Any, depth: int) -> Any:
        firsts, other = shape.first_items, shape.item
        if not firsts and other.exact.issuperset(map(type, value)):
            return value
        endless = (number for number, one in enumerate([*firsts, other]) if not has_values(one))
        kept = next(endless, len(value))
        better: dict[int, Any] = {}
        for number, item in enumerate(value[:kept] if kept < len(value) else value):
            below = firsts[number] if number < len(firsts) else other
            if type(item) not in below.exact:
                fitted = self._below(below, item, number, depth)
                if fitted is not item:
                    better[number] = fitted
        self.lost += sum(map(weight, value[kept:]))
        if not better and kept >= len(value):
            return value
        return [better.get(number, item) for number, item in enumerate(value[:kept])]

    def _below(self, shape: Shape, item: Any, name: str | int, depth: int) -> Any:
        before = len(self.replaced)
        fitted = self.fitted(shape, item, depth)
        for path, _ in self.replaced[before:]:
            path.append(name)
        return fitted

    def _alternative(self, shape: Shape, value: Any, depth: int) -> Any:
        """The value as the member of a union that keeps the most of it. Each is tried once with the same value."""
        key = (id(shape), id(value))
        if key in self._choosing:
            return value
        if key not in self._chosen:
            self._choosing.add(key)
            self._chosen[key] = self._best(shape, value, depth)
            self._choosing.remove(key)
        better, change = self._chosen[key]
        self.replaced += [([*path], old) for path, old in change.replaced]
        self.is_made_up |= change.is_made_up
        self.lost += change.lost
        self.changed += change.changed
        return better

    def _best(self, shape: Shape, value: Any, depth: int) -> "tuple[Any, Change]":
        ending = [one for one in shape.alternatives if has_values(one)] or shape.alternatives
        named = _named(shape, value)
        fitting = [one for one in (ending if named is None else named) if self._fits(one, value, value)]
        if named is None and not fitting and self._fits(shape, value, value):
            # Of a union that is one of its own members, the validator may know more than the other members do.
            return value, Change(self._defaults)
        trials = fitting or named or (ending if named == [] else _discriminated(ending, value))
        tried = [self._tried(one, value, depth) for one in trials[:_MOST_TRIALS]]
        if not tried:
            return value, Change(self._defaults)
        tried.sort(key=lambda trial: (trial[1].lost, trial[1].changed))
        best, least = tried[0]
        for better, change in tried:
            # No more is thrown away only because a rule is broken, such as a minimum or that just one member fits.
            if (change.lost == least.lost or not change.replaced) and self._fits(shape, better, value):
                return better, change
        if not any(path == [] for path, _ in least.replaced):
            return best, least
        change = Change(self._defaults)
        return change._replacement(shape, value), change

    def _fits(self, shape: Shape, value: Any, given: Any) -> bool:
        if value is not given:
            return shape.fits(value)
        # One check for all that is given: what is in it is not looked at again at each step of the way down.
        if self._check is None or self._check.is_out_of_depth:
            self._check = shape.check()
        return shape.fits(value, self._check)

    def _tried(self, shape: Shape, value: Any, depth: int) -> "tuple[Any, Change]":
        change = Change(self._defaults)
        change._chosen, change._choosing, change.room = self._chosen, self._choosing, self.room
        change._check = self._check
        # What is chosen is known by where it is in memory, so nothing that was tried may go before all is done.
        return change.fitted(shape, value, depth + 1), change


def _named(shape: Shape, value: Any) -> list[Shape] | None:
    """The members of a union that an object says it is one of; `None` if it does not say so by one text."""
    if not isinstance(value, dict) or shape.kinds is None:
        return None
    name, kinds = shape.kinds
    return [one for one in kinds.get(value[name], ()) if has_values(one)] if isinstance(value.get(name), str) else None


def _discriminated(shapes: list[Shape], value: Any) -> list[Shape]:
    """The shapes of which the members that tell shapes apart say most that it is one of them."""
    if not isinstance(value, dict):
        return shapes

    def agreement(shape: Shape) -> int:
        told = [is_told for name in shape.discriminators if name in value for is_told in [_agrees(shape, name, value)]]
        return sum(1 if agrees else -1 for agrees in told)

    scores = [agreement(shape) for shape in shapes]
    return [shape for shape, score in zip(shapes, scores, strict=True) if score == max(scores)]


def _agrees(shape: Shape, name: str, value: dict[str, Any]) -> bool:
    return any(is_same(value[name], choice) for choice in shape.discriminators[name])
