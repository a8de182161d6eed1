"""A schema as it is read for casts: references followed and `allOf` merged, each when a value first gets there."""

import functools
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from headgate.operations.casting.shape import Part, Shape
from headgate.operations.casting.tight import TIGHT_ROOT, tightened
from headgate.operations.dialect import Schema, mapped, modern

__all__ = ["Shapes"]

_ROOT = "urn:headgate:schema"

_FOLLOWED = ("$ref", "allOf", "$defs", "definitions", "components")


class Shapes:
    """The shapes of one schema. Raises `ValueError` for one that cannot be understood."""

    def __init__(self, schema: Schema) -> None:
        self._anchors: dict[str, Part] = {}
        self.has_one_of = False
        identity = "" if isinstance(schema, bool) else str(schema.get("$id", ""))

        def absolute(told: dict[str, Any]) -> dict[str, Any]:
            """What is taken out of its schema must still find what it refers to."""
            reference = told.get("$ref")
            if isinstance(reference, str):
                told["$ref"] = _ROOT + reference.removeprefix(identity) if "#" in reference else reference
            self.has_one_of |= "oneOf" in told
            if "$anchor" in told:
                self._anchors[told["$anchor"]] = told
            for name in ("$id", "$schema", "openapi"):
                told.pop(name, None)
            return told

        self._root = mapped(modern(schema), absolute)
        self._registry = jsonschema_rs.Registry([(_ROOT, self._root)])
        self._known: dict[tuple[int, ...], Shape] = {}
        self._patterns: dict[str, Any] = {}
        self._without: dict[tuple[int, str], Part] = {}
        self.validator([{"$ref": f"{_ROOT}#"}])

    @property
    def root(self) -> Shape:
        """Of the whole schema."""
        return self.of([self._root])

    def of(self, schemas: Iterable[Schema]) -> Shape:
        """Of what fits all of them."""
        parts = self._flat(schemas)
        key = (-1,) if parts is None else tuple(map(id, parts))
        if key not in self._known:
            self._known[key] = Shape(self, parts)
        return self._known[key]

    def validator(self, parts: Iterable[Schema]) -> Any:
        """Of all of them."""
        return jsonschema_rs.Draft202012Validator({"allOf": [True, *parts]}, registry=self._registry, offline=True)

    def matches(self, pattern: str, name: str) -> bool:
        """Whether a pattern of members is one of this; as the validator has it, because Python's patterns differ."""
        if pattern not in self._patterns:
            self._patterns[pattern] = self.validator([{"pattern": pattern}])
        return bool(self._patterns[pattern].is_valid(name))

    @functools.cached_property
    def _tight_registry(self) -> Any:
        tight: Any = tightened(self._root, self._referred)
        return jsonschema_rs.Registry([(TIGHT_ROOT, tight)])

    def tight_validator(self, parts: Iterable[Schema]) -> Any:
        """Of what fits all of them and would not be changed."""
        tight = [tightened(part, self._referred) for part in parts]
        return jsonschema_rs.Draft202012Validator(
            {"allOf": [True, *tight]}, registry=self._tight_registry, offline=True
        )

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
            waiting += [*self._referred(schema), *schema.get("allOf", ())][::-1]
            # What was followed must not be again, when a shape is made of the parts of another.
            own = self._own(schema)
            if own:
                found.append(own)
                seen.add(id(own))
        return found

    def _own(self, schema: Part) -> Part:
        for word in _FOLLOWED:
            schema = self.without(schema, word) if word in schema else schema
        return schema

    def _referred(self, schema: Part) -> Iterator[Schema]:
        if "$ref" not in schema:
            return
        fragment = schema["$ref"].partition("#")[2]
        if fragment and not fragment.startswith("/"):
            yield self._anchors[fragment]
            return
        target: Any = self._root
        for name in _names(fragment):
            target = target[int(name)] if isinstance(target, list) else target[name]
        yield target


def _names(fragment: str) -> list[str]:
    return [name.replace("~1", "/").replace("~0", "~") for name in unquote(fragment).split("/")[1:]]
