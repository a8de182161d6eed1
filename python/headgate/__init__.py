"""Large tool outputs without a flooded context."""

from headgate._core import Match, SearchResult, __version__, search
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
    "Match",
    "PathNotFound",
    "SearchResult",
    "__version__",
    "search",
]
