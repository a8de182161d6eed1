"""A server behind the gateway that is reached over HTTP."""
