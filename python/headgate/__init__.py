"""Large tool outputs without a flooded context."""

from headgate._core import (
    Cut,
    ItemIndex,
    ItemIndexer,
    ItemPage,
    LinePage,
    Match,
    SearchResult,
    Span,
    TextPage,
    __version__,
    get,
    index_items,
    index_lines,
    locate,
    outline,
    preview,
    project,
    read_items,
    read_lines,
    read_text,
    search,
    truncate,
    truncate_lines,
)
from headgate.errors import (
    CapabilityDisabled,
    CorruptIndex,
    FileRefDenied,
    FileRefNotFound,
    FileRefTooLarge,
    HandleCorrupt,
    HandleNotFound,
    HeadgateError,
    InvalidArgument,
    InvalidFormat,
    InvalidJSON,
    InvalidPattern,
    InvalidText,
    PathNotFound,
    RedactionFailed,
    StoreFull,
    StoreUnavailable,
    UpstreamFailed,
    UpstreamTimeout,
)

# What type checkers take for true, without the import of `typing`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from headgate.handles import Descriptor
    from headgate.page import Page, SearchPage
    from headgate.store import OPERATOR, Options, Store, Stored, SweepReport, open_store

__all__ = [
    "OPERATOR",
    "CapabilityDisabled",
    "CorruptIndex",
    "Cut",
    "Descriptor",
    "FileRefDenied",
    "FileRefNotFound",
    "FileRefTooLarge",
    "HandleCorrupt",
    "HandleNotFound",
    "HeadgateError",
    "InvalidArgument",
    "InvalidFormat",
    "InvalidJSON",
    "InvalidPattern",
    "InvalidText",
    "ItemIndex",
    "ItemIndexer",
    "ItemPage",
    "LinePage",
    "Match",
    "Options",
    "Page",
    "PathNotFound",
    "RedactionFailed",
    "SearchPage",
    "SearchResult",
    "Span",
    "Store",
    "StoreFull",
    "StoreUnavailable",
    "Stored",
    "SweepReport",
    "TextPage",
    "UpstreamFailed",
    "UpstreamTimeout",
    "__version__",
    "get",
    "index_items",
    "index_lines",
    "locate",
    "open_store",
    "outline",
    "preview",
    "project",
    "read_items",
    "read_lines",
    "read_text",
    "search",
    "truncate",
    "truncate_lines",
]

# What needs zstandard and orjson is imported when it is first used.
_LATER = {
    "Descriptor": "headgate.handles",
    "OPERATOR": "headgate.store",
    "Options": "headgate.store",
    "Page": "headgate.page",
    "SearchPage": "headgate.page",
    "Store": "headgate.store",
    "Stored": "headgate.store",
    "SweepReport": "headgate.store",
    "open_store": "headgate.store",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module 'headgate' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_LATER[name]), name)
    globals()[name] = value
    return value
