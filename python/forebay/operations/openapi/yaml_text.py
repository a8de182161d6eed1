"""Parsing of YAML documents into JSON values, with bounds on depth and size."""

import re
from typing import Any

import yaml

from forebay.errors import InvalidArgument

__all__ = ["parse_yaml"]

_MAX_KEYS = 100_000
"""Maximum number of keys in one mapping. Nested merges (`<<`) can double them with each line."""

_MAX_NODES = 5_000_000
"""Maximum number of values in the document with every alias expanded: code that walks it visits each use."""

_MAX_DEPTH = 250
"""Maximum nesting depth. The C loader recurses for each level, and a stack overflow crashes the process."""

# The scalars of YAML 1.2. PyYAML implements 1.1, where `no` is false and a date is not a string.
_INTEGER = r"[-+]?(?:0|[1-9][0-9]*)"
_SCALARS = [
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", "~nN\0"),
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("tag:yaml.org,2002:int", _INTEGER, "-+0123456789"),
    ("tag:yaml.org,2002:float", rf"{_INTEGER}(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?", "-+0123456789"),
    ("tag:yaml.org,2002:merge", r"<<", "<"),
]
"""Tag, pattern and possible first characters of each scalar type; `\\0` stands for an empty scalar."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A safe loader that produces only JSON values."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012

    def flatten_mapping(self, node: Any) -> None:
        super().flatten_mapping(node)
        if len(node.value) > _MAX_KEYS:
            raise InvalidArgument(f"an object of this document has more than {_MAX_KEYS} keys; write out its merges")

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:
        return {_to_json_key(key): value for key, value in super().construct_mapping(node, deep).items()}

    def construct_yaml_float(self, node: Any) -> float:
        return float(node.value)


for _tag, _pattern, _first_characters in _SCALARS:
    for _character in _first_characters:
        _Loader.yaml_implicit_resolvers.setdefault("" if _character == "\0" else _character, []).append(
            (_tag, re.compile(rf"(?:{_pattern})\Z"))
        )
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)


def parse_yaml(text: str) -> Any:
    """Parse YAML text. Raises `InvalidArgument` if it is invalid or exceeds a bound."""
    try:
        _check_depth(text)
        document = yaml.load(text, _Loader)  # noqa: S506
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        if isinstance(error, InvalidArgument):
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InvalidArgument(f"this is neither JSON nor YAML: {reason[:300]}") from None
    if _count_nodes(document, {}, set()) > _MAX_NODES:
        raise InvalidArgument(f"the aliases of this document stand for more than {_MAX_NODES} values; write them out")
    return document


def _check_depth(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                raise InvalidArgument(f"this document is nested too deeply: more than {_MAX_DEPTH} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _to_json_key(key: Any) -> str:
    """Return a YAML key as a string: the status `200` is a number in YAML."""
    match key:
        case str():
            return key
        case True | False | None:
            return {True: "true", False: "false", None: "null"}[key]
    return str(key)


def _count_nodes(value: Any, counts: dict[int, int], ancestors: set[int]) -> int:
    """Count the values of a document with every alias expanded. `counts` caches the result by object id."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) in counts:
        return counts[id(value)]
    if id(value) in ancestors:
        raise InvalidArgument("an alias of this document stands for what it is in; use a $ref for what is recursive")
    ancestors.add(id(value))
    children = value.values() if isinstance(value, dict) else value
    counts[id(value)] = 1 + sum(_count_nodes(child, counts, ancestors) for child in children)
    ancestors.discard(id(value))
    return counts[id(value)]
