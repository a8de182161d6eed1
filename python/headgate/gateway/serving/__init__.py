"""`headgate serve`: several servers and APIs behind one server."""
