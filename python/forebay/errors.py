"""All errors, as one tree. Each class also inherits from the builtin exception in parentheses.

ForebayError
├── InvalidJSON       (ValueError)   the payload is not JSON; `index` is the offset of the wrong byte
├── InvalidText       (ValueError)   the payload is not UTF-8; `index` is the offset of the wrong byte
├── InvalidArgument   (ValueError)   an argument that is wrong for any payload
│   └── InvalidPattern               a pattern that does not compile, or is too large
├── InvalidFormat     (ValueError)   a format that this payload does not have
├── PathNotFound      (LookupError)  a JSON Pointer to a value that does not exist
├── PatchFailed       (ValueError)   an operation of a patch that does not fit the document
├── CorruptIndex      (ValueError)   bytes that are not an index of this payload
├── HandleNotFound    (LookupError)  a handle that is unknown, expired, deleted, or of another principal
├── HandleCorrupt     (ValueError)   the stored file is damaged
├── StoreFull         (OSError)      a quota is exceeded, or the disk is full
├── StoreUnavailable  (OSError)      the store cannot be read or written
├── QueryFailed       (ValueError)   an SQL query that is wrong, too large or too slow
├── RedactionFailed   (RuntimeError) a redaction raised, so nothing was stored
├── UpstreamFailed    (ConnectionError) the server ended, or does not speak the protocol
├── UpstreamTimeout   (TimeoutError) the server took too long
├── CapabilityDisabled (PermissionError) the tool's capability is switched off
├── FileRefDenied     (PermissionError)    a reference to a file that is not allowed
├── FileRefNotFound   (FileNotFoundError)  a reference to a file that does not exist
├── FileRefTooLarge   (ValueError)   references that together read more bytes than one call may
└── MissingExtra      (ModuleNotFoundError) a package that an extra of forebay installs
"""

__all__ = [
    "CapabilityDisabled",
    "CorruptIndex",
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
    "MissingExtra",
    "PatchFailed",
    "PathNotFound",
    "QueryFailed",
    "RedactionFailed",
    "StoreFull",
    "StoreUnavailable",
    "UpstreamFailed",
    "UpstreamTimeout",
]


class ForebayError(Exception):
    """The base class. `code` is sent to the model; `index` is the offset of the invalid byte, or 0."""

    code = "internal"

    def __init__(self, message: str, index: int = 0) -> None:
        super().__init__(message)
        self.index = index

    def to_dict(self) -> dict[str, dict[str, object]]:
        """Return the error as it is sent to the model: `{"error": {"code", "message"}}`."""
        return {"error": {"code": self.code, "message": str(self)}}


class InvalidJSON(ForebayError, ValueError):
    """The payload is not JSON; `index` is the offset of the wrong byte, or the length of a payload that ends early."""

    code = "invalid_json"


class InvalidText(ForebayError, ValueError):
    """The bytes to be returned as text are not UTF-8; `index` is the offset of the first invalid byte."""

    code = "invalid_format_for_payload"


class InvalidArgument(ForebayError, ValueError):
    """An argument that is wrong for any payload.

    Methods that read from a store also raise it for an argument of the wrong type, because a model may have chosen the
    argument. Other functions raise `TypeError` for a wrong type.
    """

    code = "invalid_argument"


class InvalidPattern(InvalidArgument):
    """A pattern that does not compile, or compiles to something too large."""


class PathNotFound(ForebayError, LookupError):
    """A JSON Pointer to a missing value, or not to an array where items are needed; or fields that no item has."""

    code = "path_not_found"


class PatchFailed(ForebayError, ValueError):
    """An operation of a patch that does not fit the document; none of the others was applied either."""

    code = "patch_failed"


class CorruptIndex(ForebayError, ValueError):
    """Bytes that are not an index, or an index that does not match the payload."""

    code = "output_handle_corrupt"


class InvalidFormat(ForebayError, ValueError):
    """A format that this payload does not have; the message names the formats that it has."""

    code = "invalid_format_for_payload"


class HandleNotFound(ForebayError, LookupError):
    """No payload of this principal has this handle: it never existed, expired, or was deleted."""

    code = "output_handle_not_found"


class HandleCorrupt(ForebayError, ValueError):
    """The stored file is incomplete or was changed, so nothing of it is returned."""

    code = "output_handle_corrupt"


class StoreFull(ForebayError, OSError):
    """A quota or the disk has no room for the payload. Nothing was stored."""

    code = "store_full"


class StoreUnavailable(ForebayError, OSError):
    """The store cannot be read or written; the message says why."""

    code = "store_unavailable"


class QueryFailed(ForebayError, ValueError):
    """An SQL query that is wrong, or was stopped because it took too much time or memory.

    `tables` has the columns of each table, in one line, and `example` is a statement that works.
    """

    code = "query_failed"

    def __init__(self, message: str, tables: dict[str, str] | None = None, example: str | None = None) -> None:
        super().__init__(message)
        self.tables = tables
        self.example = example

    def to_dict(self) -> dict[str, dict[str, object]]:
        """Return the error as it is sent to the model, with the tables and the example."""
        details = {"tables": self.tables, "example": self.example}
        return {"error": {**super().to_dict()["error"], **{name: value for name, value in details.items() if value}}}


class RedactionFailed(ForebayError, RuntimeError):
    """A redaction failed, so nothing was stored. The message does not quote the payload."""

    code = "redaction_failed"


class UpstreamFailed(ForebayError, ConnectionError):
    """The server behind the gateway has ended, or does not speak the protocol."""

    code = "upstream_failed"


class UpstreamTimeout(ForebayError, TimeoutError):
    """The server behind the gateway took too long to answer. It may still complete the call."""

    code = "upstream_timeout"


class CapabilityDisabled(ForebayError, PermissionError):
    """A tool whose `capability` is switched off."""

    code = "CAPABILITY_DISABLED"

    def __init__(self, message: str, tool: str, capability: str) -> None:
        super().__init__(message)
        self.tool = tool
        self.capability = capability

    def to_dict(self) -> dict[str, dict[str, object]]:
        """Return the error as it is sent to the model, with the tool's capability."""
        return {"error": {**super().to_dict()["error"], "capability": self.capability}}


class FileRefDenied(ForebayError, PermissionError):
    """A reference to a file that may not be read, such as one outside the allowed folders, whether it exists or not."""

    code = "file_ref_denied"


class FileRefNotFound(ForebayError, FileNotFoundError):
    """A reference to a file that does not exist in the allowed folders."""

    code = "file_ref_not_found"


class FileRefTooLarge(ForebayError, ValueError):
    """References that together read more bytes than one call may."""

    code = "file_ref_too_large"


class MissingExtra(ForebayError, ModuleNotFoundError):
    """A package that an extra of forebay installs is missing, or too old."""

    code = "missing_extra"


def make_missing_extra(user: str, extra: str, error: ImportError) -> MissingExtra:
    """Return the error for a failed import in `user`, a part of forebay that needs an extra."""
    import importlib.metadata

    package = (error.name or "").partition(".")[0]
    if package == "forebay":
        raise error
    try:
        version = importlib.metadata.version(package)
        # The extra would replace a version that something else in this environment may need.
        text = f"{user} does not work with {package} {version}: pip install 'forebay[{extra}]' in another environment"
    except (ValueError, importlib.metadata.PackageNotFoundError):
        text = f"{user} needs {package or 'more'}: pip install 'forebay[{extra}]'"
    missing = MissingExtra(text)
    missing.name = error.name
    return missing
