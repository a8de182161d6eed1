"""The HTTP side of `forebay serve`: the ASGI application, authentication and limits."""
