"""`forebay serve`: several servers and APIs behind one server."""
