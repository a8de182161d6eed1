"""JSON text of the rows that DuckDB returns. It runs in the worker."""

import binascii
import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any
from uuid import UUID

from forebay._core import locate
from forebay.errors import InvalidJSON

__all__ = ["Encoder", "encode_value", "make_encoder"]

Encoder = Callable[[Any], str]


def make_encoder(column_type: Any) -> Encoder:
    """Return the function that writes values of a DuckDB type as JSON.

    Python's values do not tell JSON from text, and keys of a map may have any type, so the type decides.
    """
    if str(column_type) == "JSON":
        return _encode_json
    if column_type.id == "bignum":
        return lambda value: "null" if value is None else str(value)
    if column_type.id in ("list", "array"):
        return _make_list_encoder(make_encoder(dict(column_type.children)["child"]))
    if column_type.id == "struct":
        return _make_struct_encoder({name: make_encoder(child) for name, child in column_type.children})
    if column_type.id == "map":
        key_type, value_type = (child for _, child in column_type.children)
        if key_type.id in ("list", "array", "struct", "tuple", "map", "union", "variant"):
            # DuckDB returns the keys and the values of such a map as two lists.
            return encode_value
        return _make_map_encoder(make_encoder(value_type))
    return encode_value


def encode_value(value: Any) -> str:
    """Return the JSON text of a value, by its Python type.

    Numbers keep all their digits. NaN and infinities, which JSON does not have, are the texts "NaN", "Infinity" and
    "-Infinity". Dates and times are ISO 8601, bytes are base64.
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


def _encode_time(value: date | time) -> str:
    return f'"{value.isoformat()}"'


def _encode_list(value: list[Any]) -> str:
    return f"[{','.join(map(encode_value, value))}]"


def _encode_dict(value: dict[Any, Any]) -> str:
    return "{" + ",".join(f"{_encode_key(key)}:{encode_value(child)}" for key, child in value.items()) + "}"


def _encode_key(key: Any) -> str:
    text = encode_value(key)
    return text if text.startswith('"') else f'"{text}"'


_ENCODERS: dict[type, Encoder] = {
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    int: repr,
    float: _encode_float,
    str: encode_basestring,
    Decimal: _encode_decimal,
    bytes: _encode_bytes,
    date: _encode_time,
    time: _encode_time,
    datetime: _encode_time,
    timedelta: lambda value: f'"{value}"',
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


def _make_map_encoder(encode_child: Encoder) -> Encoder:
    def encode_map(value: dict[Any, Any] | None) -> str:
        if value is None:
            return "null"
        return "{" + ",".join(f"{_encode_key(key)}:{encode_child(child)}" for key, child in value.items()) + "}"

    return encode_map
