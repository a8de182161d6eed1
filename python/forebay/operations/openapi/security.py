"""Who we are to the API: credentials by the names of the document's security schemes.

Nothing here shows a credential: not in `repr`, not in an error.
"""

import base64
import dataclasses
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self, TypeAlias
from urllib.parse import quote_plus

from forebay.errors import InvalidArgument
from forebay.operations.errors import CallError
from forebay.operations.openapi.document import Document
from forebay.operations.openapi.styles import PUBLIC_HEADERS, check_header_value, percent_encode

__all__ = ["AppliedSecurity", "Credential", "Requirement", "Security", "redact"]

Secret: TypeAlias = str | tuple[str, str]

Credential: TypeAlias = Secret | Callable[[], Secret | Awaitable[Secret]]
"""A key or token, a user and a password, or a function that gives one when it is needed."""

Requirement: TypeAlias = Sequence[str]
"""Names of schemes that are wanted together."""

_REDACTED = "[hidden]"

_MIN_SECRET_CHARS = 4
"""To look for a single letter in a text would make nothing of the text, and hide nothing."""


@dataclasses.dataclass(slots=True, repr=False)
class AppliedSecurity:
    """What is added to one request, and what must not be seen of it."""

    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    query: list[str] = dataclasses.field(default_factory=list)
    query_names: set[str] = dataclasses.field(default_factory=set)
    cookies: list[str] = dataclasses.field(default_factory=list)
    secrets: set[str] = dataclasses.field(default_factory=set)

    @classmethod
    def from_headers(cls, headers: Mapping[str, str]) -> Self:
        """Nothing is added, and values of headers are not seen: neither whole, nor what stands behind `Bearer`."""
        found = cls()
        for name, value in headers.items():
            if name.lower() not in PUBLIC_HEADERS:
                found.add_secret(value)
                found.add_secret(value.rpartition(" ")[2])
        return found

    def add_secret(self, secret: str) -> None:
        """Hides a secret, also as it comes back from who writes it in their own way."""
        for text in {secret, secret.strip()}:
            as_json = [json.dumps(text, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)]
            slashes = [each.replace("/", "\\/") for each in as_json]
            self.secrets.update({text, percent_encode(text), quote_plus(text), *as_json, *slashes})


class Security:
    """The schemes of a document, and the credentials that we have for them."""

    def __init__(
        self, document: Document, credentials: Mapping[str, Credential] | None, headers: Mapping[str, str]
    ) -> None:
        self._headers = headers
        self._schemes = _read_schemes(document)
        self._credentials = dict(credentials or {})
        unknown = sorted(set(self._credentials) - set(self._schemes))
        if unknown:
            there_are = ", ".join(self._schemes) or "none"
            raise InvalidArgument(f"no such security scheme: {', '.join(unknown)}; there are {there_are}")

    def choose(self, requirements: Any) -> tuple[Requirement, list[Requirement]]:
        """The first requirement that we can meet, none if there is none, and all that would do."""
        wanted = [[*each] for each in requirements if isinstance(each, Mapping)] if requirements else []
        met = (each for each in wanted if each and all(name in self._credentials for name in each))
        return next(met, []), [each for each in wanted if each] if [] not in wanted else []

    async def apply(self, requirement: Requirement) -> AppliedSecurity:
        """What a request needs to meet a requirement."""
        found = AppliedSecurity.from_headers(self._headers)
        for name in requirement:
            _apply(self._schemes[name], name, await self._get_secret(name), found)
        return found

    async def _get_secret(self, name: str) -> Secret:
        credential = self._credentials[name]
        if not callable(credential):
            return credential
        try:
            secret = credential()
            return await secret if inspect.isawaitable(secret) else secret
        except Exception as error:
            # What it says may well be the secret, or how it was asked for.
            raise CallError("EXECUTION_ERROR", f"no credential for {name}: {type(error).__name__} was raised") from None


def redact(text: str, secrets: set[str]) -> str:
    """A text without the secrets that someone put into it."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _MIN_SECRET_CHARS:
            text = text.replace(secret, _REDACTED)
    return text


def _read_schemes(document: Document) -> dict[str, Mapping[str, Any]]:
    components = document.resolve(document.root.get("components") or {}, "components")
    schemes = document.resolve(components.get("securitySchemes") or {}, "securitySchemes")
    return {name: document.resolve(node, f"security scheme {name}") for name, node in schemes.items()}


def _apply(scheme: Mapping[str, Any], name: str, secret: Secret, to: AppliedSecurity) -> None:
    match scheme:
        case {"type": "apiKey", "in": "header" | "query" | "cookie" as where, "name": str(key)}:
            _apply_key(where, key, _check_token(name, secret), to)
        case {"type": "http", "scheme": str(kind)} if kind.lower() == "basic":
            user, password = _check_pair(name, secret)
            token = base64.b64encode(f"{user}:{password}".encode()).decode()
            to.add_secret(password)
            _apply_header("Authorization", f"Basic {token}", token, to)
        case {"type": "http" | "oauth2" | "openIdConnect"}:
            kind = str(scheme.get("scheme") or "Bearer")
            token = _check_token(name, secret)
            _apply_header("Authorization", f"{kind.capitalize() if kind.islower() else kind} {token}", token, to)
        case _:
            raise CallError("EXECUTION_ERROR", f"security scheme {name} is of a type that nothing is known of")


def _apply_key(where: str, key: str, token: str, to: AppliedSecurity) -> None:
    if where == "header":
        _apply_header(key, token, token, to)
        return
    to.add_secret(token)
    pair = f"{percent_encode(key)}={percent_encode(token)}"
    if where == "cookie":
        to.cookies.append(pair)
    else:
        to.query.append(pair)
        to.query_names.add(key)


def _apply_header(name: str, value: str, secret: str, to: AppliedSecurity) -> None:
    to.headers[name] = check_header_value(name, value)
    to.add_secret(secret)


def _check_token(name: str, secret: object) -> str:
    if not isinstance(secret, str) or not secret:
        raise CallError("EXECUTION_ERROR", f"the credential for {name} must be a text, not {_type_name(secret)}")
    return secret


def _check_pair(name: str, secret: object) -> tuple[str, str]:
    match secret:
        case (str(user), str(password)):
            return user, password
    raise CallError("EXECUTION_ERROR", f"the credential for {name} must be (user, password), not {_type_name(secret)}")


def _type_name(secret: object) -> str:
    return type(secret).__name__ if secret else "nothing"
