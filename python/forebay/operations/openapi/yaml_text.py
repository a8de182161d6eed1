"""YAML as OpenAPI means it: what JSON can say, written with less punctuation."""

import re
from typing import Any

import yaml

from forebay.errors import InvalidArgument

__all__ = ["parse_yaml"]

_MAX_KEYS = 100_000
"""More than any object has; merges of merges double with each line."""

_MAX_NODES = 5_000_000
"""Aliases are shared here, but whoever walks them meets each one as often as it is used."""

_MAX_DEPTH = 250
"""The loader that is written in C calls itself for each level, and takes the process with it when it cannot."""

# The scalars of YAML 1.2. PyYAML's own are those of 1.1, in which `no` is false and a date is no text.
_INTEGER = r"[-+]?(?:0|[1-9][0-9]*)"
_SCALARS = [
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", "~nN\0"),
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("tag:yaml.org,2002:int", _INTEGER, "-+0123456789"),
    ("tag:yaml.org,2002:float", rf"{_INTEGER}(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?", "-+0123456789"),
    ("tag:yaml.org,2002:merge", r"<<", "<"),
]


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader, which makes nothing but what JSON has."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012

    def flatten_mapping(self, node: Any) -> None:
        super().flatten_mapping(node)
        if len(node.value) > _MAX_KEYS:
            raise InvalidArgument(f"an object of this document has more than {_MAX_KEYS} keys; write out its merges")

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:
        return {_to_json_key(key): value for key, value in super().construct_mapping(node, deep).items()}

    def construct_yaml_float(self, node: Any) -> float:
        return float(node.value)


for _tag, _pattern, _first in _SCALARS:
    for _character in _first:
        _Loader.yaml_implicit_resolvers.setdefault("" if _character == "\0" else _character, []).append(
            (_tag, re.compile(rf"(?:{_pattern})\Z"))
        )
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)


def parse_yaml(text: str) -> Any:
    """What a YAML text says. Raises `InvalidArgument` for what is none, or grows out of all bounds."""
    try:
        _check_depth(text)
        document = yaml.load(text, _Loader)  # noqa: S506
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        if isinstance(error, InvalidArgument):
            raise
        told = " ".join(str(error).split()) or type(error).__name__
        raise InvalidArgument(f"this is neither JSON nor YAML: {told[:300]}") from None
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
    """A status such as `200` is a number in YAML, and a key in JSON."""
    match key:
        case str():
            return key
        case True | False | None:
            return {True: "true", False: "false", None: "null"}[key]
    return str(key)


def _count_nodes(value: Any, known: dict[int, int], above: set[int]) -> int:
    """How many values there are if every alias is written out."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) in known:
        return known[id(value)]
    if id(value) in above:
        raise InvalidArgument("an alias of this document stands for what it is in; use a $ref for what is recursive")
    above.add(id(value))
    inner = value.values() if isinstance(value, dict) else value
    known[id(value)] = 1 + sum(_count_nodes(each, known, above) for each in inner)
    above.discard(id(value))
    return known[id(value)]
