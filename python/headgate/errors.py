"""What can go wrong, as one tree. Each class is also the builtin that callers already catch.

HeadgateError
├── InvalidJSON       (ValueError)   the payload is not JSON; `index` is the byte
├── InvalidText       (ValueError)   the payload is not UTF-8; `index` is the byte
├── InvalidArgument   (ValueError)   an argument no payload could satisfy
│   └── InvalidPattern               a pattern that does not compile, or is too large
├── PathNotFound      (LookupError)  a JSON Pointer that leads nowhere
└── CorruptIndex      (ValueError)   bytes that are not an index of this payload
"""

__all__ = [
    "CorruptIndex",
    "HeadgateError",
    "InvalidArgument",
    "InvalidJSON",
    "InvalidPattern",
    "InvalidText",
    "PathNotFound",
]


class HeadgateError(Exception):
    """The root of the tree. `code` is what a model is told, `index` the byte to blame (0 where there is none)."""

    code = "internal"

    def __init__(self, message: str, index: int = 0) -> None:
        super().__init__(message)
        self.index = index


class InvalidJSON(HeadgateError, ValueError):
    """The payload is not JSON; `index` is the byte that cannot be right, or the payload's length if it ended early."""

    code = "invalid_json"


class InvalidText(HeadgateError, ValueError):
    """What would be returned as text is not UTF-8; `index` is the byte."""

    code = "invalid_format_for_payload"


class InvalidArgument(HeadgateError, ValueError):
    """An argument no payload could satisfy. One of the wrong type is a `TypeError`."""

    code = "invalid_argument"


class InvalidPattern(InvalidArgument):
    """A pattern that does not compile, or compiles to something too large."""


class PathNotFound(HeadgateError, LookupError):
    """A JSON Pointer that leads nowhere in this payload, or not to an array where items were asked for."""

    code = "path_not_found"


class CorruptIndex(HeadgateError, ValueError):
    """Bytes that are not an index, or an index that is not this payload's as far as that shows."""

    code = "output_handle_corrupt"
