"""`forebay dashboard`: a web page about a store, and a viewer of its outputs."""

import sys
from argparse import Namespace

from forebay.cli.commands import open_store_at
from forebay.errors import InvalidArgument, make_missing_extra

__all__ = ["dashboard"]


def dashboard(args: Namespace) -> None:
    """Show a store in the browser: what was saved, what is stored, and its content.

    Prints an address with a token, which shows the data of all principals:
      forebay dashboard
      forebay dashboard --store s3://bucket/prefix --http 127.0.0.1:8080
    With --token-file, people sign in with a token and see what belongs to it.
    """
    from forebay.config.options import Settings

    settings = Settings(http=args.http, token_file=args.token_file, allowed_hosts=tuple(args.allowed_hosts))
    if args.token_file is None and settings.is_beyond_loopback:
        raise InvalidArgument(
            "other machines could open this dashboard; give --token-file, so that people sign in, or listen on "
            "127.0.0.1 without --allowed-hosts, and forward the port with ssh -L"
        )
    try:
        from forebay.http.dashboard import Dashboard, LinkToken
        from forebay.http.server import run_http
        from forebay.http.store_backend import StoreBackend
    except ImportError as error:
        raise make_missing_extra("forebay dashboard", "serve", error) from None
    from forebay.store import resolve_address

    with open_store_at(args.store, creates=args.store is None) as store:
        pages = Dashboard(
            store,
            name=str(resolve_address(args.store)),
            link_token=LinkToken() if args.token_file is None else None,
        )
        code = run_http(StoreBackend(store), settings, dashboard=pages)
    sys.exit(code)
