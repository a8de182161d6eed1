"""What those are called in the store who have shown a token."""

import contextlib
import hashlib
import json

from forebay.store.catalog import LONGEST_NAME

__all__ = ["called", "of_client", "of_subject", "shown"]

_CLIENT = "client:"
"""What a client is shown with: a name alone may be one that a program has given."""


def of_client(client: str) -> str:
    """Whoever a token is for: by a file of tokens, the name in it."""
    return _written("client", client)


def of_subject(issuer: str | None, subject: str) -> str:
    """Whoever an issuer has given a token to."""
    return _written("subject", issuer, subject)


def shown(principal: str | None) -> str | None:
    """As it is shown to people: `client:ann`."""
    with contextlib.suppress(TypeError, ValueError):
        _, name = json.loads(principal or "")
        if isinstance(name, str) and principal == of_client(name):
            return f"{_CLIENT}{name}"
    return principal


def called(name: str) -> tuple[str, ...]:
    """All that people may mean by a name: one that is stored, a client's, or one as it was shown."""
    clients = [name, name.removeprefix(_CLIENT)] if name.startswith(_CLIENT) else [name]
    return (name, *map(of_client, clients))


def _written(*parts: str | None) -> str:
    # As JSON, so that no two of them are written alike.
    name = json.dumps(parts)
    return name if len(name) <= LONGEST_NAME else f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"
