"""Answers that the SDK cannot read. It drops them, and whoever waits for one would wait for ever."""

import json
from typing import Any

from mcp.client import ClientSession
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import PARSE_ERROR, ErrorData
from pydantic import ValidationError

__all__ = ["FIRST_ID", "give_up_unreadable"]

FIRST_ID = 1_000_000
"""Where the ids of our own requests begin: numbers, because some servers know no others. The SDK's begin at 1."""


def give_up_unreadable(session: ClientSession, error: Exception) -> None:
    """Fails the call that an unreadable message answers; all that wait, if it does not say which.

    What is no message of the protocol at all, such as a line that a server prints, answers nothing.
    """
    dispatcher = session._dispatcher
    if not isinstance(error, ValidationError) or not isinstance(dispatcher, JSONRPCDispatcher):
        return
    problem = error.errors(include_url=False)[0]
    said = problem["input"]
    why = problem["msg"] if problem["type"] == "json_invalid" else "it is neither a result nor an error"
    outcome = ErrorData(code=PARSE_ERROR, message=f"its answer cannot be read: {why:.200}")
    match _loaded(said):
        case {"id": str() | int() as request_id, **rest} if "method" not in rest:
            dispatcher._resolve_pending(request_id, outcome)
        case None if isinstance(said, str) and '"jsonrpc"' in said:
            # Those of the SDK, such as for changes, go on for as long as the connection does.
            for request_id in [each for each in dispatcher._pending if isinstance(each, int) and each >= FIRST_ID]:
                dispatcher._resolve_pending(request_id, outcome)


def _loaded(said: Any) -> Any:
    """The value of a line: `json` reads what the SDK's parser does not, such as half a character."""
    try:
        return json.loads(said) if isinstance(said, str) else said
    except (ValueError, RecursionError):
        return None
