"""What those are called in the store who have shown a token."""

import contextlib
import hashlib
import json
from typing import Final, TypeGuard

from forebay.arguments import is_text

__all__ = [
    "MAX_NAME_LENGTH",
    "OPERATOR",
    "Principal",
    "client_principal",
    "format_principal",
    "is_valid_name",
    "possible_principals",
    "subject_principal",
]


class _Operator:
    """In place of a principal: whoever runs the store, and sees all of it."""

    def __repr__(self) -> str:
        return "OPERATOR"


OPERATOR: Final = _Operator()

Principal = str | _Operator | None
"""Whose a handle is. `None` is nobody in particular: a program that serves one user."""

MAX_NAME_LENGTH = 1024
"""What a tool or a principal is called stands in every event of the journal."""


def is_valid_name(value: object) -> TypeGuard[str]:
    """Whether a tool or a principal may be called so."""
    return isinstance(value, str) and len(value) <= MAX_NAME_LENGTH and is_text(value)


_CLIENT_PREFIX = "client:"
"""What a client is shown with: a name alone may be one that a program has given."""


def client_principal(client: str) -> str:
    """Whoever a token is for: by a file of tokens, the name in it."""
    return _encode_parts("client", client)


def subject_principal(issuer: str | None, subject: str) -> str:
    """Whoever an issuer has given a token to."""
    return _encode_parts("subject", issuer, subject)


def format_principal(principal: str | None) -> str | None:
    """As it is shown to people: `client:ann`."""
    with contextlib.suppress(TypeError, ValueError):
        _, name = json.loads(principal or "")
        if isinstance(name, str) and principal == client_principal(name):
            return f"{_CLIENT_PREFIX}{name}"
    return principal


def possible_principals(name: str) -> tuple[str, ...]:
    """All that people may mean by a name: one that is stored, a client's, or one as it was shown."""
    clients = [name, name.removeprefix(_CLIENT_PREFIX)] if name.startswith(_CLIENT_PREFIX) else [name]
    return (name, *map(client_principal, clients))


def _encode_parts(*parts: str | None) -> str:
    # As JSON, so that no two of them are written alike.
    name = json.dumps(parts)
    return name if len(name) <= MAX_NAME_LENGTH else f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"
