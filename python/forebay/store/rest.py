"""The values of a payload that are not among its items."""

import secrets

import orjson

from forebay._core import dissect
from forebay.errors import InvalidJSON
from forebay.store.reader import View

__all__ = ["find_rest"]

_MAX_SCAN_BYTES = 16 << 20
"""Maximum bytes around the items to search for paths."""

_UNLIMITED = 1 << 62
_MAX_STRING_BYTES = 64


def find_rest(view: View) -> tuple[int, dict[str, int]] | None:
    """Return the total size of the values around the items of a view, and the size of each one by its JSON Pointer.

    Return `None` if there are no others. If there are very many bytes, they are not read, and there are no paths.
    """
    index = view.items
    if index is None or not view.items_path:
        return None
    start, end = index.start - view.origin, index.end - view.origin
    if start + view.size - end > _MAX_SCAN_BYTES:
        return start + view.size - end, {}
    # The items themselves need not be read: an empty array takes their place.
    document = b"".join((view.read(0, start), b"[]", view.read(end, view.size)))
    try:
        sizes = _measure_values(document, [_decode_token(token) for token in view.items_path.split("/")[1:]])
    except (InvalidJSON, orjson.JSONDecodeError):
        # For example, keys that are not valid text.
        return start + view.size - end, {}
    return (sum(sizes.values()), sizes) if sizes else None


def _measure_values(document: bytes, keys: list[str]) -> dict[str, int]:
    """Return the sizes of the values beside the path of these keys, on each level of it."""
    sizes: dict[str, int] = {}
    prefix, start, end = "", 0, len(document)
    for key in keys:
        # A random token, so that no value can look like a hole.
        token = secrets.token_hex(16)
        skeleton, holes = dissect(
            (document, start, end),
            token,
            max_string_bytes=_MAX_STRING_BYTES,
            max_container_bytes=_UNLIMITED,
            max_depth=1,
        )
        for name, value in orjson.loads(skeleton).items():
            is_hole = isinstance(value, str) and value.startswith(token)
            hole = holes[int(value.rpartition(":")[2])] if is_hole else None
            if name == key and hole is not None:
                start, end = hole
            else:
                size = len(orjson.dumps(value)) if hole is None else hole[1] - hole[0]
                sizes[f"{prefix}/{_encode_token(name)}"] = size
        prefix += f"/{_encode_token(key)}"
    return sizes


def _decode_token(token: str) -> str:
    return token.replace("~1", "/").replace("~0", "~")


def _encode_token(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
