"""Errors of JSON-RPC."""

from collections.abc import Mapping
from typing import Any

from forebay.wire.lazy_json import LazyJSON, to_text
from forebay.wire.messages import INTERNAL_ERROR, make_error_message

__all__ = ["RequestFailed"]


class RequestFailed(Exception):
    """A request that is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data

    @classmethod
    def from_response(cls, message: Mapping[str, Any]) -> "RequestFailed":
        """Return the error of a response."""
        error = message.get("error")
        if isinstance(error, LazyJSON) and error.is_object:
            error = {name: member.parse() for name, member in error.members(("code", "message", "data")).items()}
        error = error if isinstance(error, dict) else {}
        code = error.get("code")
        code = code if isinstance(code, int) else INTERNAL_ERROR
        return cls(code, to_text(error.get("message")) or "", error.get("data"))

    def to_dict(self) -> dict[str, Any]:
        """Return the error as the member `error` of a response."""
        error = {"code": self.code, "message": str(self)}
        return error if self.data is None else {**error, "data": self.data}

    def to_message(self, request_id: object) -> bytes:
        """Return the response to a request."""
        return make_error_message(request_id, self.code, str(self), self.data)
