"""The values of a payload that are not among its items."""

import orjson

from forebay._core import dissect, members
from forebay.arguments import decode_token
from forebay.errors import InvalidJSON
from forebay.store.payload import UTF8_BOM
from forebay.store.reader import UNLIMITED, View

__all__ = ["encode_token", "find_rest"]

_MIN_REST_BYTES = 64
"""Minimum bytes beside the keys that lead to the items. Fewer are not read: they may be white space."""

_MAX_SCAN_BYTES = 16 << 20
"""Maximum bytes around the items to search for paths."""

_MAX_KEY_BYTES = 1 << 16
"""Maximum bytes of a key. With a longer one, there are no paths."""

_MAX_KEYS = 256
"""Maximum number of keys in one object. With more, there are no paths."""


def find_rest(view: View) -> tuple[int, dict[str, int]] | None:
    """Return the total size of the values around the items of a view, and the size of each one by its JSON Pointer.

    Return `None` if there are none, or only a few bytes. If there are very many of them, there are no paths.
    """
    index = view.items
    if index is None or not view.items_path:
        return None
    start, end = index.start - view.origin, index.end - view.origin
    keys = [decode_token(token) for token in view.items_path.split("/")[1:]]
    outside = start + view.size - end
    if outside < _MIN_REST_BYTES + sum(len(orjson.dumps({key: None})) - len("null") for key in keys):
        return None
    if outside > _MAX_SCAN_BYTES:
        return outside, {}
    # The items themselves need not be read: an empty array takes their place.
    document = b"".join((view.read(0, start), b"[]", view.read(end, view.size))).removeprefix(UTF8_BOM)
    try:
        sizes = _measure_values(document, keys)
    except (InvalidJSON, orjson.JSONDecodeError):
        # For example, keys that are not valid text.
        sizes = None
    if sizes is None:
        return outside, {}
    return (sum(sizes.values()), sizes) if sizes else None


def _measure_values(document: bytes, keys: list[str]) -> dict[str, int] | None:
    """Return the sizes of the values beside the path of these keys, on each level; `None` if there are too many."""
    sizes: dict[str, int] = {}
    prefix, start, end = "", 0, len(document)
    for key in keys:
        part = (document, start, end)
        # Only the keys of the skeleton are used, so that its token need not be random.
        skeleton, _ = dissect(part, "hole", max_string_bytes=_MAX_KEY_BYTES, max_container_bytes=UNLIMITED, max_depth=1)
        value = orjson.loads(skeleton)
        if not isinstance(value, dict) or len(value) > _MAX_KEYS:
            return None
        spans = dict(zip(value, members(part, [*value]), strict=True))
        for name, span in spans.items():
            if span is not None and name != key:
                sizes[f"{prefix}/{encode_token(name)}"] = span[1] - span[0]
        start, end = spans.get(key) or (end, end)
        prefix += f"/{encode_token(key)}"
    return sizes


def encode_token(key: str) -> str:
    """Return a key as a token of a JSON Pointer."""
    return key.replace("~", "~0").replace("/", "~1")
