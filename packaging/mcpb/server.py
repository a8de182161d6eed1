"""Run `forebay wrap` with the server that the user entered: a command, or a URL."""

import os
import shlex
import sys

from forebay.cli import main


def make_arguments(server: str, authorization: str) -> list[str]:
    """Return the arguments of `forebay`."""
    if not server.startswith(("http://", "https://")):
        return ["wrap", "--", *shlex.split(server)]
    # forebay fills in the variable.
    header = ["--header", "Authorization: ${WRAPPED_SERVER_AUTHORIZATION}"] if authorization else []
    return ["wrap", "--url", server, *header]


if __name__ == "__main__":
    sys.argv[1:] = make_arguments(
        os.environ["WRAPPED_SERVER"], os.environ.get("WRAPPED_SERVER_AUTHORIZATION", "").strip()
    )
    main()
