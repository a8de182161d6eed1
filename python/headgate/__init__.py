"""Large tool outputs without a flooded context."""

from headgate._core import (
    Cut,
    LinePage,
    TextPage,
    __version__,
    preview,
    read_lines,
    read_text,
    truncate_lines,
)
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
    "Cut",
    "HeadgateError",
    "InvalidArgument",
    "InvalidJSON",
    "InvalidPattern",
    "InvalidText",
    "LinePage",
    "PathNotFound",
    "TextPage",
    "__version__",
    "preview",
    "read_lines",
    "read_text",
    "truncate_lines",
    "get",
    "locate",
    "outline",
    "project",
]
