"""Errors of calls. A tool that ran and reported a failure returns a result instead."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

from forebay.errors import ForebayError, InvalidArgument

__all__ = ["CODES", "CallCode", "CallError"]

CallCode: TypeAlias = Literal[
    "OPERATION_NOT_FOUND", "VALIDATION_ERROR", "ACCESS_DENIED", "EXECUTION_ERROR", "TIMEOUT", "ABORTED"
]

CODES: tuple[CallCode, ...] = get_args(CallCode)


class CallError(ForebayError):
    """A failed call: `code` is the kind of failure, `details` are further data such as an HTTP status or a path."""

    def __init__(self, code: CallCode, message: str, details: Mapping[str, Any] | None = None) -> None:
        if code not in CODES:
            raise InvalidArgument(f"code is one of {', '.join(CODES)}, not {code!r:.32}")
        super().__init__(message)
        self.code: CallCode = code
        self.details = dict(details or {})

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return `{"error": {"code", "message", "details"}}`; `details` only if there are any."""
        error: dict[str, Any] = {"code": self.code, "message": str(self)}
        return {"error": {**error, "details": self.details} if self.details else error}
