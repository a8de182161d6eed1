"""Names and texts in the syntax of SQL."""

__all__ = ["quote_identifier", "quote_text"]


def quote_identifier(name: str) -> str:
    """Return a name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"
