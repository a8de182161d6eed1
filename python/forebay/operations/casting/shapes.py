"""A schema as it is read for casts: references followed and `allOf` merged, each when a value first gets there."""

import functools
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote, urljoin

import jsonschema_rs

from forebay.operations.casting.shape import Part, Shape
from forebay.operations.casting.tight import tightened
from forebay.operations.dialect import Schema, mapped, modern

__all__ = ["Shapes"]

_HELD = ("$defs", "definitions", "components")
_FOLLOWED = ("$ref", "allOf", *_HELD)

_RULES = {"contains", "dependentRequired", "dependentSchemas", "if", "maxProperties", "minProperties", "not", "oneOf"}
_RULES |= {"propertyNames", "unevaluatedItems", "unevaluatedProperties"}
"""What may hold of a value, and not of the same with a member more or less."""


class Shapes:
    """The shapes of one schema. Raises `ValueError` for one that cannot be understood."""

    def __init__(self, schema: Schema) -> None:
        self._anchors: dict[str, Part] = {}
        self._has_one_of = False
        self._has_rules = False
        identity = "" if isinstance(schema, bool) else str(schema.get("$id", ""))
        names: list[str] = []
        references: list[Part] = []

        def local(told: dict[str, Any]) -> dict[str, Any]:
            """Without the names of schemas, so that all references are within this one."""
            if isinstance(told.get("$ref"), str):
                told["$ref"] = _within(identity, told["$ref"])
                references.append(told)
            self._has_one_of |= "oneOf" in told
            self._has_rules |= not told.keys().isdisjoint(_RULES)
            for word in ("$anchor", "$dynamicAnchor"):
                if isinstance(told.get(word), str):
                    self._anchors[told[word]] = told
            names.extend(str(told["$id"]) for _ in told.keys() & {"$id"})
            for name in ("$id", "$schema", "openapi"):
                told.pop(name, None)
            return told

        self._root = mapped(modern(schema), local)
        if references and set(names) - {identity}:
            raise ValueError("a schema in it has an $id of its own")
        self._known: dict[tuple[int, ...], Shape] = {}
        self._referred: dict[str, Any] = {}
        self._validators: dict[tuple[int, int], Any] = {}
        self._patterns: dict[str, Any] = {}
        self._without: dict[tuple[int, str], Part] = {}
        for told in references:
            self.referred(told)
        # It also tells what is wrong with the schema.
        tight: Any = tightened(self._root, self.referred)
        self._tight = jsonschema_rs.Draft202012Validator(tight, offline=True)

    @property
    def root(self) -> Shape:
        """Of the whole schema."""
        return self.of([self._root])

    def stay(self, value: Any) -> bool:
        """Whether a cast would not change a value; `False` if that is not seen at once."""
        try:
            # One member of a `oneOf` may be tight where two are not.
            return bool(self._tight.is_valid(value)) and (not self._has_one_of or self.allow(value))
        except ValueError:
            return False

    def allow(self, value: Any) -> bool:
        """Whether a value is as the whole schema says, in all that it says."""
        try:
            return bool(self._whole.is_valid(value))
        except ValueError:
            return False

    def is_broken_by(self, value: Any, fitted: Any) -> bool:
        """Whether a value was as the schema says before it was made to fit, and is not any more."""
        return self._has_rules and not self.allow(fitted) and self.allow(value)

    @functools.cached_property
    def _whole(self) -> Any:
        return jsonschema_rs.Draft202012Validator(self._root, offline=True)

    def of(self, schemas: Iterable[Schema]) -> Shape:
        """Of what fits all of them."""
        parts = self._flat(schemas)
        key = (-1,) if parts is None else tuple(map(id, parts))
        if key not in self._known:
            self._known[key] = Shape(self, parts)
        return self._known[key]

    def holds(self, told: Part, words: set[str], value: Any) -> bool:
        """Whether a validator finds that some words of a schema hold; none of them has schemas in it."""
        key = (id(told), id(words))
        if key not in self._validators:
            chosen = {word: told[word] for word in told.keys() & words}
            self._validators[key] = jsonschema_rs.Draft202012Validator(chosen, offline=True)
        try:
            return bool(self._validators[key].is_valid(value))
        except ValueError:
            return False

    def matches(self, pattern: str, name: Any) -> bool:
        """Whether a pattern of members is one of this; as the validator has it, because Python's patterns differ."""
        if pattern not in self._patterns:
            self._patterns[pattern] = jsonschema_rs.Draft202012Validator({"pattern": pattern}, offline=True)
        return isinstance(name, str) and bool(self._patterns[pattern].is_valid(name))

    def without(self, part: Part, word: str) -> Part:
        """All that a schema says but for one word; the same object each time, because shapes are known by those."""
        key = (id(part), word)
        if key not in self._without:
            self._without[key] = {name: value for name, value in part.items() if name != word}
        return self._without[key]

    def _flat(self, schemas: Iterable[Schema]) -> list[Part] | None:
        """What all say together, each once, with nothing left to refer to; `None` if nothing can fit."""
        found: list[Part] = []
        seen: set[int] = set()
        waiting = [*schemas][::-1]
        while waiting:
            schema = waiting.pop()
            if schema is False:
                return None
            if schema is True or id(schema) in seen:
                continue
            seen.add(id(schema))
            referred = [self.referred(schema)] if "$ref" in schema else []
            waiting += [*referred, *schema.get("allOf", ())][::-1]
            # What was followed must not be again, when a shape is made of the parts of another.
            own = self._own(schema)
            if own:
                found.append(own)
                seen.add(id(own))
        return found

    def _own(self, schema: Part, words: Iterable[str] = _FOLLOWED) -> Part:
        for word in words:
            schema = self.without(schema, word) if word in schema else schema
        return schema

    def target(self, told: Part) -> Any:
        """The schema that one refers to, without what it holds for others: so it is seen to be the part of a shape."""
        schema = self.referred(told)
        return schema if isinstance(schema, bool) else self._own(schema, _HELD)

    def referred(self, told: Part) -> Any:
        """The schema that one refers to. Raises `ValueError` if there is none."""
        reference = told["$ref"]
        if reference not in self._referred:
            self._referred[reference] = self._found(reference)
        return self._referred[reference]

    def _found(self, reference: str) -> Any:
        fragment = reference.partition("#")[2]
        try:
            if fragment and not fragment.startswith("/"):
                return self._anchors[fragment]
            target: Any = self._root
            for name in _names(fragment):
                target = target[int(name)] if isinstance(target, list) else target[name]
        except (LookupError, TypeError, ValueError):
            target = None
        if not isinstance(target, dict | bool):
            raise ValueError(f"there is no schema at {reference}")
        return target


def _within(identity: str, reference: str) -> str:
    """A reference without the name of the schema that it is in. Raises `ValueError` if it leads to another."""
    if not reference.startswith("#"):
        address, _, fragment = urljoin(identity, reference).partition("#")
        if address != identity.partition("#")[0]:
            raise ValueError(f"it refers to another schema, {reference}")
        return f"#{fragment}"
    return reference


def _names(fragment: str) -> list[str]:
    return [name.replace("~1", "/").replace("~0", "~") for name in unquote(fragment).split("/")[1:]]
