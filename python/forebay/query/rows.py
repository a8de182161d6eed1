"""JSON text of the rows that DuckDB returns. It runs in the worker."""

import binascii
import math
import re
from collections.abc import Callable
from datetime import time
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any
from uuid import UUID

from forebay._core import locate
from forebay.errors import InvalidJSON
from forebay.query.types import NESTED_TYPES

__all__ = ["Encoder", "encode_value", "make_encoder"]

Encoder = Callable[[Any], str]

_TIME_TYPES = frozenset(
    [
        "timestamp",
        "timestamp_s",
        "timestamp_ms",
        "timestamp_ns",
        "timestamp with time zone",
        "timestamptz_ns",
        "time_ns",
        "time with time zone",
    ]
)

_TIME_PATTERN = re.compile(r"(?:(\d{4}-\d\d-\d\d) )?(\d\d:\d\d:\d\d)(\.\d+)?(?:([+-]\d\d)(:[\d:]+)?)?", re.ASCII)
"""Matches what DuckDB prints for a time that ISO 8601 has: not an infinite one, and none of another era."""


def make_encoder(column_type: Any) -> Encoder:
    """Return the function that writes values of a DuckDB type as JSON, after the cast of `find_cast`.

    Python's values do not tell JSON from text, and keys of a map may have any type, so the type decides.
    """
    kind = column_type.id
    if str(column_type) == "JSON" or kind == "variant":
        return _encode_json
    if kind in _TIME_TYPES:
        return _encode_time_text
    if kind == "bignum":
        return lambda value: "null" if value is None else str(value)
    if kind in ("list", "array"):
        return _make_list_encoder(make_encoder(dict(column_type.children)["child"]))
    if kind == "struct":
        return _make_struct_encoder({name: make_encoder(child) for name, child in column_type.children})
    if kind == "tuple":
        return _make_tuple_encoder([make_encoder(child) for _, child in column_type.children])
    if kind == "map":
        key_type, value_type = (child for _, child in column_type.children)
        encode_key, encode_child = make_encoder(key_type), make_encoder(value_type)
        if key_type.id in NESTED_TYPES:
            # DuckDB returns the keys and the values of such a map as two lists.
            return _make_struct_encoder(
                {"key": _make_list_encoder(encode_key), "value": _make_list_encoder(encode_child)}
            )
        return _make_map_encoder(encode_key, encode_child)
    return encode_value


def encode_value(value: Any) -> str:
    """Return the JSON text of a value, by its Python type.

    Numbers keep all their digits. NaN and infinities, which JSON does not have, are the texts "NaN", "Infinity" and
    "-Infinity". Times are ISO 8601, bytes are base64.
    """
    encode = _ENCODERS.get(type(value))
    return encode_basestring(str(value)) if encode is None else encode(value)


def _encode_float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _encode_decimal(value: Decimal) -> str:
    return format(value, "f")


def _encode_bytes(value: bytes) -> str:
    return f'"{binascii.b2a_base64(value, newline=False).decode()}"'


def _encode_time(value: time) -> str:
    return f'"{value.isoformat()}"'


def _encode_time_text(value: str | None) -> str:
    """Write what DuckDB prints for a time as ISO 8601, with six digits after the point, or nine if it needs them."""
    if value is None:
        return "null"
    match = _TIME_PATTERN.fullmatch(value)
    if match is None:
        return f'"{value}"'
    day, clock, fraction, hours, minutes = match.groups(default="")
    zone = hours + (minutes or ":00") if hours else ""
    return f'"{day}{"T" if day else ""}{clock}{fraction and fraction.ljust(7, "0")}{zone}"'


def _encode_list(value: list[Any]) -> str:
    return f"[{','.join(map(encode_value, value))}]"


def _encode_dict(value: dict[Any, Any]) -> str:
    return "{" + ",".join(f"{_encode_key(key)}:{encode_value(child)}" for key, child in value.items()) + "}"


def _encode_key(key: Any, encode: Encoder = encode_value) -> str:
    text = encode(key)
    return text if text.startswith('"') else encode_basestring(text)


_ENCODERS: dict[type, Encoder] = {
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    int: repr,
    float: _encode_float,
    str: encode_basestring,
    Decimal: _encode_decimal,
    bytes: _encode_bytes,
    time: _encode_time,
    UUID: lambda value: f'"{value}"',
    list: _encode_list,
    tuple: _encode_list,
    dict: _encode_dict,
}


def _encode_json(value: str | None) -> str:
    if value is None:
        return "null"
    # DuckDB's JSON may hold NaN, which is no JSON. Line breaks between its tokens would end the row.
    try:
        locate(f"[{value}]", "")
    except InvalidJSON:
        return encode_basestring(value)
    return value.replace("\n", " ").replace("\r", " ")


def _make_list_encoder(encode_child: Encoder) -> Encoder:
    return lambda value: "null" if value is None else f"[{','.join(map(encode_child, value))}]"


def _make_struct_encoder(children: dict[str, Encoder]) -> Encoder:
    members = [(name, f"{encode_basestring(name)}:", encode) for name, encode in children.items()]

    def encode_struct(value: dict[str, Any] | None) -> str:
        if value is None:
            return "null"
        return "{" + ",".join(key + encode(value[name]) for name, key, encode in members) + "}"

    return encode_struct


def _make_tuple_encoder(children: list[Encoder]) -> Encoder:
    def encode_tuple(value: tuple[Any, ...] | None) -> str:
        if value is None:
            return "null"
        return f"[{','.join(encode(child) for encode, child in zip(children, value, strict=True))}]"

    return encode_tuple


def _make_map_encoder(encode_key: Encoder, encode_child: Encoder) -> Encoder:
    def encode_map(value: dict[Any, Any] | None) -> str:
        if value is None:
            return "null"
        entries = (f"{_encode_key(key, encode_key)}:{encode_child(child)}" for key, child in value.items())
        return "{" + ",".join(entries) + "}"

    return encode_map
