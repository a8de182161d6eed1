"""What goes wrong with a call. A tool that ran and failed is a result, and not one of these."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

from forebay.errors import ForebayError, InvalidArgument

__all__ = ["CODES", "CallCode", "CallError"]

CallCode: TypeAlias = Literal[
    "OPERATION_NOT_FOUND", "VALIDATION_ERROR", "ACCESS_DENIED", "EXECUTION_ERROR", "TIMEOUT", "ABORTED"
]

CODES: tuple[CallCode, ...] = get_args(CallCode)


class CallError(ForebayError):
    """A call that came to nothing: `code` says why, `details` what else is known, such as a status or a path."""

    def __init__(self, code: CallCode, message: str, details: Mapping[str, Any] | None = None) -> None:
        if code not in CODES:
            raise InvalidArgument(f"code is one of {', '.join(CODES)}, not {code!r:.32}")
        super().__init__(message)
        self.code: CallCode = code
        self.details = dict(details or {})

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """What a model or a script is told: `{"error": {"code", "message", "details"}}`."""
        told: dict[str, Any] = {"code": self.code, "message": str(self)}
        return {"error": {**told, "details": self.details} if self.details else told}
