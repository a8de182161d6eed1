"""A new line for the file of tokens."""

import sys
from argparse import Namespace

from forebay.cli import show

__all__ = ["token"]


def token(args: Namespace) -> None:
    """Print a new bearer token, as a line for --token-file.

    The name is the principal that whoever shows the token is:
      forebay token alice >> tokens && chmod 600 tokens
    With --hashed the file cannot tell what the token is; it is on standard error
    then, this once.
    """
    from forebay.http.token_lines import made

    secret, line = made(args.name, is_hashed=args.hashed)
    show.raw([f"{line}\n".encode()])
    if args.hashed and sys.stderr is not None:
        sys.stderr.write(f"{secret}\n")
