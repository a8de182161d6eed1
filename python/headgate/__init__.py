"""Large tool outputs without a flooded context."""

from headgate._core import __version__, truncate
from headgate.errors import (
    CorruptIndex,
    HeadgateError,
    InvalidArgument,
    InvalidJSON,
    InvalidPattern,
    InvalidText,
    PathNotFound,
)

__all__ = [
    "CorruptIndex",
    "HeadgateError",
    "InvalidArgument",
    "InvalidJSON",
    "InvalidPattern",
    "InvalidText",
    "PathNotFound",
    "__version__",
    "truncate",
]
