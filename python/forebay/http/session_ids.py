"""Session ids in logs: whoever reads one could go on with the session."""

import logging
import re

__all__ = ["shorten_session_ids"]

_LOGGERS = ("mcp.server.streamable_http_manager", "mcp.server.streamable_http")
_ID = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{24}\b|(?<=session ID: )(\S{1,8})\S*")


class _Shortened(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = _ID.sub(lambda found: f"{found[1] or found[2]}…", record.getMessage()), ()
        return True


_SHORTENED = _Shortened()


def shorten_session_ids() -> None:
    """The SDK logs them whole. Their start is enough to follow one."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_SHORTENED)
