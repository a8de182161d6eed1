"""Values made to fit a schema: what matches is kept, what is not named goes, defaults come in.

Words that say how a value is built are followed: `type`, `properties`, `required`, `items`, `enum`, unions and their
like. A value that only breaks a rule of another kind, such as `minimum` or `pattern`, is kept: whoever validates tells.
"""

import logging
from collections.abc import Callable
from typing import Any, TypeAlias

from headgate.operations.casting.changing import Change, Defaults
from headgate.operations.casting.shapes import Shapes
from headgate.operations.validation import Schema, is_meaningful, pointer

__all__ = ["Caster", "OnReplaced", "cast"]

_log = logging.getLogger("headgate")

OnReplaced: TypeAlias = Callable[[str, Any], None]
"""Told of every value that was thrown away for one that is made up: its JSON Pointer, and what it was."""


def cast(schema: Schema, value: Any, *, on_replaced: OnReplaced | None = None) -> Any:
    """A value that fits the schema, as near to the one that is given as can be.

    What needs no change is the same object; what is given is never changed itself.
    """
    return Caster(schema).cast(value, on_replaced=on_replaced)


class Caster:
    """A schema that was read once, for many casts. One that cannot be understood changes nothing."""

    def __init__(self, schema: Schema | None) -> None:
        self._shapes: Shapes | None = None
        self._defaults = Defaults()
        if schema is None or not is_meaningful(schema):
            return
        try:
            self._shapes = Shapes(schema)
        except (ValueError, RecursionError) as error:
            _log.debug("headgate: nothing is made to fit a schema that cannot be understood: %.200s", error)

    def cast(self, value: Any, *, on_replaced: OnReplaced | None = None) -> Any:
        """See `cast`."""
        fitted, change = self._changed(value)
        if on_replaced is not None:
            for path, old in change.replaced:
                on_replaced(pointer(path[::-1]), old)
        return fitted

    def normalized(self, value: Any) -> Any:
        """A value that fits, if nothing has to be thrown away or made up for it; else the value itself.

        An object that says what went wrong must not become one that says that all is well, with a price of 0.
        """
        fitted, change = self._changed(value)
        return value if change.replaced or change.is_made_up else fitted

    def _changed(self, value: Any) -> tuple[Any, Change]:
        change = Change(self._defaults)
        if self._shapes is None or self._shapes.stay(value):
            return value, change
        try:
            return change.fitted(self._shapes.root, value, 0), change
        except RecursionError:
            # Whoever called was deep in other calls already: the value is what it was, and validation tells of it.
            return value, Change(self._defaults)
