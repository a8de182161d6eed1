"""Large tool outputs without a flooded context."""

from headgate._core import __version__, get, locate, outline, project
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
    "get",
    "locate",
    "outline",
    "project",
]
