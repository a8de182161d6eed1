"""Whether there are values of a shape at all: one that must contain another of its own kind never ends."""

from forebay.operations.casting.shape import Shape

__all__ = ["HEAVIEST", "LONGEST", "has_values", "needed", "needed_items"]

LONGEST = 1000
"""Nobody is served by more of what is made up."""

HEAVIEST = 10_000
"""The most values in one that is made up: a few schemas that need each other twice make millions."""


def has_values(shape: Shape) -> bool:
    """Whether a value can fit, as far as how it is built goes."""
    if shape.has_values is None:
        _settle(needed(shape))
    return bool(shape.has_values)


def _settle(shapes: list[Shape]) -> None:
    """Whatever needs nothing has values, then what needs only that, and so on; what is left never ends."""
    ended: set[Shape] = set()
    while fresh := {shape for shape in shapes if shape not in ended and _can_end(shape, ended)}:
        ended |= fresh
    for shape in shapes:
        shape.has_values = shape in ended


def _can_end(shape: Shape, ended: set[Shape]) -> bool:
    if shape.is_never or shape.enum is not None:
        return not shape.is_never
    if shape.alternatives:
        return any(one in ended for one in shape.alternatives)
    if shape.types is None or set(shape.types) - {"object", "array"}:
        return True
    if shape.takes("object") and all(shape.members.get(name) in ended for name in shape.required):
        return True
    return shape.takes("array") and ended.issuperset(needed_items(shape))


def needed(shape: Shape) -> list[Shape]:
    """All shapes that a value of one may have to contain, the innermost first."""
    found = {shape: None}
    waiting = [shape]
    while waiting:
        one = waiting.pop()
        if one.is_never or one.enum is not None:
            continue
        inner = [*one.alternatives, *(one.members[name] for name in one.required if name in one.members)]
        inner += needed_items(one) if one.takes("array") else []
        fresh = [below for below in dict.fromkeys(inner) if below not in found]
        found.update(dict.fromkeys(fresh))
        waiting += fresh
    return [*found][::-1]


def needed_items(shape: Shape) -> list[Shape]:
    """The shapes of the items that an array must have."""
    least = min(int(shape.least("minItems") or 0), LONGEST)
    return [*shape.first_items, *[shape.item] * least][:least]
