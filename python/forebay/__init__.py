"""Large tool outputs without a flooded context."""

from forebay._core import (
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
    patch,
    preview,
    project,
    read_items,
    read_lines,
    read_text,
    search,
    truncate,
    truncate_lines,
)
from forebay.errors import (
    CapabilityDisabled,
    CorruptIndex,
    FileRefDenied,
    FileRefNotFound,
    FileRefTooLarge,
    ForebayError,
    HandleCorrupt,
    HandleNotFound,
    InvalidArgument,
    InvalidFormat,
    InvalidJSON,
    InvalidPattern,
    InvalidText,
    MissingExtra,
    PatchFailed,
    PathNotFound,
    QueryFailed,
    RedactionFailed,
    StoreFull,
    StoreUnavailable,
    UpstreamFailed,
    UpstreamTimeout,
)

# Type checkers treat this name as true; importing `typing` would slow the start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from forebay.store import OPERATOR, Options, Store, StoredOutput, SweepReport, open_store
    from forebay.store.handles import Descriptor
    from forebay.store.pages import Page
    from forebay.store.queries import QueryPage
    from forebay.store.search import SearchPage

__all__ = [
    "OPERATOR",
    "CapabilityDisabled",
    "CorruptIndex",
    "Cut",
    "Descriptor",
    "FileRefDenied",
    "FileRefNotFound",
    "FileRefTooLarge",
    "ForebayError",
    "HandleCorrupt",
    "HandleNotFound",
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
    "MissingExtra",
    "Options",
    "Page",
    "PatchFailed",
    "PathNotFound",
    "QueryFailed",
    "QueryPage",
    "RedactionFailed",
    "SearchPage",
    "SearchResult",
    "Span",
    "Store",
    "StoreFull",
    "StoreUnavailable",
    "StoredOutput",
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
    "patch",
    "preview",
    "project",
    "read_items",
    "read_lines",
    "read_text",
    "search",
    "truncate",
    "truncate_lines",
]

# Modules of names that are imported on first use, because these modules need zstandard and orjson.
_LAZY_IMPORTS = {
    "Descriptor": "forebay.store.handles",
    "OPERATOR": "forebay.store",
    "Options": "forebay.store",
    "Page": "forebay.store.pages",
    "QueryPage": "forebay.store.queries",
    "SearchPage": "forebay.store.search",
    "Store": "forebay.store",
    "StoredOutput": "forebay.store",
    "SweepReport": "forebay.store",
    "open_store": "forebay.store",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module 'forebay' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_LAZY_IMPORTS[name]), name)
    globals()[name] = value
    return value
