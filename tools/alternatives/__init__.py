"""The same large result through forebay and through the alternatives to it."""
