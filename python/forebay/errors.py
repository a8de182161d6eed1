"""What can go wrong, as one tree. Each class is also the builtin that callers already catch.

ForebayError
├── InvalidJSON       (ValueError)   the payload is not JSON; `index` is the byte
├── InvalidText       (ValueError)   the payload is not UTF-8; `index` is the byte
├── InvalidArgument   (ValueError)   an argument no payload could satisfy
│   └── InvalidPattern               a pattern that does not compile, or is too large
├── InvalidFormat     (ValueError)   a format that this payload does not have
├── PathNotFound      (LookupError)  a JSON Pointer that leads nowhere
├── CorruptIndex      (ValueError)   bytes that are not an index of this payload
├── HandleNotFound    (LookupError)  unknown, expired, deleted, or someone else's: never said which
├── HandleCorrupt     (ValueError)   the stored file is damaged
├── StoreFull         (OSError)      a quota or the disk
├── StoreUnavailable  (OSError)      the store cannot be read or written
├── RedactionFailed   (RuntimeError) a redaction raised, so nothing was stored
├── UpstreamFailed    (ConnectionError) a server that is gone, or does not speak the protocol
├── UpstreamTimeout   (TimeoutError) a server that took too long
├── CapabilityDisabled (PermissionError) a tool that is switched off; `capability` is what it is for
├── FileRefDenied     (PermissionError)    a reference to a file that arguments may not refer to
├── FileRefNotFound   (FileNotFoundError)  a reference to a file that is not there
└── FileRefTooLarge   (ValueError)   a reference to more than may be put into arguments
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
    "PathNotFound",
    "RedactionFailed",
    "StoreFull",
    "StoreUnavailable",
    "UpstreamFailed",
    "UpstreamTimeout",
]


class ForebayError(Exception):
    """The root of the tree. `code` is what a model is told, `index` the byte to blame (0 where there is none)."""

    code = "internal"

    def __init__(self, message: str, index: int = 0) -> None:
        super().__init__(message)
        self.index = index

    def to_dict(self) -> dict[str, dict[str, str]]:
        """What a model or a script is told: `{"error": {"code", "message"}}`."""
        return {"error": {"code": self.code, "message": str(self)}}


class InvalidJSON(ForebayError, ValueError):
    """The payload is not JSON; `index` is the byte that cannot be right, or the payload's length if it ended early."""

    code = "invalid_json"


class InvalidText(ForebayError, ValueError):
    """What would be returned as text is not UTF-8; `index` is the byte."""

    code = "invalid_format_for_payload"


class InvalidArgument(ForebayError, ValueError):
    """An argument no payload could satisfy.

    One of the wrong type is a `TypeError`, but not where models ask: the reading methods of a store raise this for it.
    """

    code = "invalid_argument"


class InvalidPattern(InvalidArgument):
    """A pattern that does not compile, or compiles to something too large."""


class PathNotFound(ForebayError, LookupError):
    """A JSON Pointer that leads nowhere, or not to an array where items were asked for; or fields that no item has."""

    code = "path_not_found"


class CorruptIndex(ForebayError, ValueError):
    """Bytes that are not an index, or an index that is not this payload's as far as that shows."""

    code = "output_handle_corrupt"


class InvalidFormat(ForebayError, ValueError):
    """A format that this payload does not have; the message says which it has."""

    code = "invalid_format_for_payload"


class HandleNotFound(ForebayError, LookupError):
    """Nothing is stored under this handle for this principal: not any more, not yet, or never."""

    code = "output_handle_not_found"


class HandleCorrupt(ForebayError, ValueError):
    """The stored file is torn or was changed; what it holds is not shown."""

    code = "output_handle_corrupt"


class StoreFull(ForebayError, OSError):
    """A quota or the disk has no room for the payload, which was not stored."""

    code = "store_full"


class StoreUnavailable(ForebayError, OSError):
    """The store cannot be read or written; the message says why."""

    code = "store_unavailable"


class RedactionFailed(ForebayError, RuntimeError):
    """A redaction raised. Nothing was stored, and nothing of the payload is in the message."""

    code = "redaction_failed"


class UpstreamFailed(ForebayError, ConnectionError):
    """The server behind the gateway is gone, or does not speak the protocol."""

    code = "upstream_failed"


class UpstreamTimeout(ForebayError, TimeoutError):
    """The server behind the gateway took too long to answer. It may still do what it was asked to."""

    code = "upstream_timeout"


class CapabilityDisabled(ForebayError, PermissionError):
    """A tool that is not to be had here: `capability` is what it is for, and is switched off."""

    code = "CAPABILITY_DISABLED"

    def __init__(self, message: str, tool: str, capability: str) -> None:
        super().__init__(message)
        self.tool = tool
        self.capability = capability

    def to_dict(self) -> dict[str, dict[str, str]]:
        """What a model is told: with it, what the tool is for."""
        return {"error": {**super().to_dict()["error"], "capability": self.capability}}


class FileRefDenied(ForebayError, PermissionError):
    """A file that arguments may not refer to, whether it exists or not."""

    code = "file_ref_denied"


class FileRefNotFound(ForebayError, FileNotFoundError):
    """There is no such file in a folder that arguments may refer to."""

    code = "file_ref_not_found"


class FileRefTooLarge(ForebayError, ValueError):
    """More than one call may take in by reference."""

    code = "file_ref_too_large"


def install_hint(extra: str) -> str:
    """What to do where something of an extra is missing; forebay is installed from a checkout or a wheel."""
    return (
        f"install forebay again with the extra {extra}: "
        f"pip install '.[{extra}]' in a checkout, or pip install 'dist/….whl[{extra}]' of a wheel"
    )
