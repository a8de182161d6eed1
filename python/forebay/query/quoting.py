"""Names and texts in the syntax of SQL, and in messages."""

__all__ = ["quote_identifier", "quote_text", "shorten"]


def quote_identifier(name: str) -> str:
    """Return a name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def shorten(text: str, max_chars: int) -> str:
    """Return a text, or the start of a longer one with an ellipsis."""
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"
