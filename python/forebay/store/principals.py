"""Principals: the owners of stored payloads, and their names."""

import contextlib
import hashlib
import json
from typing import Final

from forebay.store.handles import MAX_NAME_LENGTH

__all__ = [
    "OPERATOR",
    "Principal",
    "format_principal",
    "list_possible_principals",
    "make_client_principal",
    "make_subject_principal",
]


class _Operator:
    """The type of `OPERATOR`."""

    def __repr__(self) -> str:
        return "OPERATOR"


OPERATOR: Final = _Operator()
"""Passed as the principal, gives access to the payloads of all principals."""

Principal = str | _Operator | None
"""The owner of a payload. `None` is for programs that serve a single user."""


_CLIENT_PREFIX = "client:"
"""Marks a client's name when it is displayed: a program may use the same word as a principal."""


def make_client_principal(client: str) -> str:
    """Return the principal of a token that names only a client, such as one from a token file."""
    return _encode_parts("client", client)


def make_subject_principal(issuer: str | None, subject: str) -> str:
    """Return the principal of a token's subject."""
    return _encode_parts("subject", issuer, subject)


def format_principal(principal: str | None) -> str | None:
    """Return a principal as it is displayed: `client:ann` for a client."""
    with contextlib.suppress(TypeError, ValueError):
        _, name = json.loads(principal or "")
        if isinstance(name, str) and principal == make_client_principal(name):
            return f"{_CLIENT_PREFIX}{name}"
    return principal


def list_possible_principals(name: str) -> tuple[str, ...]:
    """Return every principal a user may mean by a name: the name itself, or the client of that name."""
    clients = [name, name.removeprefix(_CLIENT_PREFIX)] if name.startswith(_CLIENT_PREFIX) else [name]
    return (name, *map(make_client_principal, clients))


def _encode_parts(*parts: str | None) -> str:
    # JSON, so that different parts never give the same name.
    name = json.dumps(parts)
    return name if len(name) <= MAX_NAME_LENGTH else f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"
