"""Values made to fit a schema: what matches is kept, what is not named goes, defaults come in.

Words that say how a value is built are followed: `type`, `properties`, `required`, `items`, `enum`, unions and their
like. A value that only breaks a rule of another kind, such as `minimum` or `pattern`, is kept: whoever validates tells.
A value of two members of a `oneOf` is changed until it is one of them only, by as little as is found.
What is more than 128 levels down in a value is left as it is.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from forebay.operations.casting.changing import Change, Defaults
from forebay.operations.casting.endings import HEAVIEST
from forebay.operations.casting.mending import Mend, Mender
from forebay.operations.casting.scalars import NO, weight
from forebay.operations.casting.shapes import Shapes
from forebay.operations.validation import Schema, is_meaningful, pointer

__all__ = ["Caster", "OnReplaced", "cast"]

_log = logging.getLogger("forebay")

OnReplaced: TypeAlias = Callable[[str, Any], None]
"""Told of every value that was thrown away because nothing like it fits: its JSON Pointer, and what it was."""

_ROUNDS = 4
"""What is mended may leave something to fit, and the other way around."""


def cast(schema: Schema, value: Any, *, on_replaced: OnReplaced | None = None) -> Any:
    """A value that fits the schema, as near to the one that is given as can be.

    What needs no change is the same object; what is given is never changed itself.
    """
    return Caster(schema).cast(value, on_replaced=on_replaced)


_Path: TypeAlias = tuple[str | int, ...]


class Caster:
    """A schema that was read once, for many casts in any thread. One that cannot be understood changes nothing.

    That is told of once. It is so for one that refers to other documents, or has schemas with an `$id` in it.
    """

    def __init__(self, schema: Schema | None) -> None:
        self._schema = schema if is_meaningful(schema) else None
        self._defaults = Defaults()
        self._is_told = False
        # What is found out about shapes and their defaults is found while values are cast.
        self._lock = threading.Lock()
        self._shapes = self._read()

    @property
    def is_busy(self) -> bool:
        """Whether another thread casts just now, so that one here would wait for it."""
        return self._lock.locked()

    def _read(self) -> Shapes | None:
        if self._schema is None:
            return None
        try:
            return Shapes(self._schema)
        except RecursionError as error:
            # Perhaps whoever called was deep in other calls: the next cast reads it again.
            self._tell(error)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            self._schema = None
            self._tell(error)
        return None

    def _tell(self, error: Exception) -> None:
        if not self._is_told:
            self._is_told = True
            _log.warning("forebay: nothing is made to fit a schema that cannot be understood: %.200s", error)

    def cast(self, value: Any, *, on_replaced: OnReplaced | None = None) -> Any:
        """See `cast`."""
        try:
            fitted, paths = self._built(value)
        except RecursionError:
            return value
        if on_replaced is not None:
            for path in paths:
                on_replaced(pointer([*path]), _at(value, path))
        return fitted

    def normalized(self, value: Any) -> Any:
        """A value that fits, if nothing has to be thrown away or made up for it; else the value itself.

        An object that says what went wrong must not become one that says that all is well, with a price of 0.
        """
        try:
            fitted, change = self._fitted(value)
        except RecursionError:
            return value
        return value if change.replaced or change.is_made_up else fitted

    def _built(self, value: Any) -> tuple[Any, list[_Path]]:
        """A value that is built as the schema says, and where something was thrown away for it."""
        fitted, change = self._fitted(value)
        paths = [tuple(path[::-1]) for path, _ in change.replaced]
        shapes = self._shapes
        for _ in range(_ROUNDS):
            if shapes is None or change.room.is_out:
                break
            mend = Mend(fitted) if shapes.allow(fitted) else self._mended(shapes, fitted)
            better, change = self._fitted(mend.value, HEAVIEST)
            if better is fitted or weight(better) > weight(value) + HEAVIEST:
                break
            fitted = better
            paths += [path for path, _ in mend.lost]
            paths = _outermost(value, paths + [tuple(path[::-1]) for path, _ in change.replaced])
        return fitted, paths

    def _mended(self, shapes: Shapes, fitted: Any) -> Mend:
        with self._lock:
            return Mender(self._defaults.maker).mended(shapes.root, fitted)

    def _fitted(self, value: Any, *most_put_in: int) -> tuple[Any, Change]:
        """Raises `RecursionError` if whoever called is deep in other calls: the value stays, and validation tells."""
        with self._lock:
            shapes = self._shapes = self._shapes or self._read()
        change = Change(self._defaults, *most_put_in)
        if shapes is None or shapes.stay(value):
            return value, change
        with self._lock:
            fitted = change.fitted(shapes.root, value, 0)
        if fitted is not value and shapes.is_broken_by(value, fitted):
            return value, Change(self._defaults)
        return fitted, change


def _outermost(value: Any, paths: list[_Path]) -> list[_Path]:
    """Those that lead to something that was given, and are not within another."""
    every = {*paths}
    outer = (path for path in dict.fromkeys(paths) if not any(path[:end] in every for end in range(len(path))))
    return [path for path in outer if _at(value, path) is not NO]


def _at(value: Any, path: _Path) -> Any:
    """What is there; `NO` if nothing is."""
    for name in path:
        try:
            value = value[name]
        except (LookupError, TypeError):
            return NO
    return value
