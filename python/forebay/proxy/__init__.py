"""The gateway in front of one server that knows nothing of forebay."""
