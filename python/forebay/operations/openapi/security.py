"""Credentials for the security schemes of a document.

No credential appears in a `repr` or an error message.
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
from forebay.operations.openapi.parameters import check_header_value, percent_encode

__all__ = ["NON_SECRET_HEADERS", "AppliedSecurity", "Credential", "Requirement", "Security", "redact"]

Secret: TypeAlias = str | tuple[str, str]

Credential: TypeAlias = Secret | Callable[[], Secret | Awaitable[Secret]]
"""A key or token, a `(user, password)` pair, or a function that returns one of these for each call."""

Requirement: TypeAlias = Sequence[str]
"""Names of security schemes that a request needs together."""

NON_SECRET_HEADERS = frozenset(
    {"accept", "accept-encoding", "accept-language", "connection", "content-length", "content-type"}
    | {"host", "transfer-encoding", "user-agent"}
)
"""Lower-case names of headers that never carry credentials. All others are treated as secret."""

_REDACTED = "[hidden]"

_MIN_SECRET_CHARS = 4
"""Minimum characters of a secret to redact: shorter ones occur in ordinary text."""


@dataclasses.dataclass(slots=True, repr=False)
class AppliedSecurity:
    """Headers, query pairs and cookies that authenticate one request, and the secrets to redact."""

    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    query: list[str] = dataclasses.field(default_factory=list)
    """Escaped `name=value` pairs."""
    query_names: set[str] = dataclasses.field(default_factory=set)
    cookies: list[str] = dataclasses.field(default_factory=list)
    """Escaped `name=value` pairs."""
    secrets: set[str] = dataclasses.field(default_factory=set)
    """Texts to redact, with all their escaped forms."""

    @classmethod
    def from_headers(cls, headers: Mapping[str, str]) -> Self:
        """Return an instance that adds nothing to a request. It redacts header values, with and without `Bearer`."""
        applied = cls()
        for name, value in headers.items():
            if name.lower() not in NON_SECRET_HEADERS:
                applied.add_secret(value)
                applied.add_secret(value.rpartition(" ")[2])
        return applied

    def add_secret(self, secret: str) -> None:
        """Redact a secret, also where a server repeats it percent-encoded or as JSON."""
        for text in {secret, secret.strip()}:
            as_json = [json.dumps(text, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)]
            with_slashes = [encoded.replace("/", "\\/") for encoded in as_json]
            self.secrets.update({text, percent_encode(text), quote_plus(text), *as_json, *with_slashes})

    def add_header(self, name: str, value: str, secret: str) -> None:
        """Add a header whose value contains `secret`."""
        self.headers[name] = check_header_value(name, value)
        self.add_secret(secret)

    def add_key(self, location: str, name: str, token: str) -> None:
        """Add an API key to the header, query or cookie of that name."""
        if location == "header":
            self.add_header(name, token, token)
            return
        self.add_secret(token)
        pair = f"{percent_encode(name)}={percent_encode(token)}"
        if location == "cookie":
            self.cookies.append(pair)
        else:
            self.query.append(pair)
            self.query_names.add(name)


class Security:
    """The security schemes of a document, and the user's credentials for them."""

    def __init__(
        self, document: Document, credentials: Mapping[str, Credential] | None, headers: Mapping[str, str]
    ) -> None:
        self._headers = headers
        self._schemes = _read_schemes(document)
        self._credentials = dict(credentials or {})
        unknown = sorted(set(self._credentials) - set(self._schemes))
        if unknown:
            known = ", ".join(self._schemes) or "none"
            raise InvalidArgument(f"no such security scheme: {', '.join(unknown)}; there are {known}")

    def choose(self, requirements: Any) -> tuple[Requirement, list[Requirement]]:
        """Choose the first security requirement of an operation that the credentials meet.

        Return a pair. The first is that requirement, or an empty list if the credentials meet none. The second lists
        all requirements, or is empty if authentication is optional.
        """
        alternatives: list[Requirement] = [[*names] for names in requirements or () if isinstance(names, Mapping)]
        usable = (names for names in alternatives if names and all(name in self._credentials for name in names))
        return next(usable, []), alternatives if [] not in alternatives else []

    async def apply(self, requirement: Requirement) -> AppliedSecurity:
        """Return the headers, query pairs and cookies that meet a requirement."""
        applied = AppliedSecurity.from_headers(self._headers)
        for name in requirement:
            _apply_scheme(self._schemes[name], name, await self._get_secret(name), applied)
        return applied

    async def _get_secret(self, name: str) -> Secret:
        credential = self._credentials[name]
        if not callable(credential):
            return credential
        try:
            secret = credential()
            return await secret if inspect.isawaitable(secret) else secret
        except Exception as error:
            # Only the exception's type is shown, because its message may contain the secret.
            raise CallError("EXECUTION_ERROR", f"no credential for {name}: {type(error).__name__} was raised") from None


def redact(text: str, secrets: set[str]) -> str:
    """Return `text` with all secrets replaced."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _MIN_SECRET_CHARS:
            text = text.replace(secret, _REDACTED)
    return text


def _read_schemes(document: Document) -> dict[str, Mapping[str, Any]]:
    components = document.resolve(document.root.get("components") or {}, "components")
    schemes = document.resolve(components.get("securitySchemes") or {}, "securitySchemes")
    return {name: document.resolve(node, f"security scheme {name}") for name, node in schemes.items()}


def _apply_scheme(scheme: Mapping[str, Any], name: str, secret: Secret, applied_security: AppliedSecurity) -> None:
    match scheme:
        case {"type": "apiKey", "in": "header" | "query" | "cookie" as location, "name": str(key)}:
            applied_security.add_key(location, key, _check_token(name, secret))
        case {"type": "http", "scheme": str(http_scheme)} if http_scheme.lower() == "basic":
            user, password = _check_user_and_password(name, secret)
            token = base64.b64encode(f"{user}:{password}".encode()).decode()
            applied_security.add_secret(password)
            applied_security.add_header("Authorization", f"Basic {token}", token)
        case {"type": "http" | "oauth2" | "openIdConnect"}:
            http_scheme = str(scheme.get("scheme") or "Bearer")
            http_scheme = http_scheme.capitalize() if http_scheme.islower() else http_scheme
            token = _check_token(name, secret)
            applied_security.add_header("Authorization", f"{http_scheme} {token}", token)
        case _:
            raise CallError(
                "EXECUTION_ERROR",
                f"the type of security scheme {name} is not supported; give the credential in headers=",
            )


def _check_token(name: str, secret: object) -> str:
    if not isinstance(secret, str) or not secret:
        raise CallError("EXECUTION_ERROR", f"the credential for {name} must be a text, not {_get_type_name(secret)}")
    return secret


def _check_user_and_password(name: str, secret: object) -> tuple[str, str]:
    match secret:
        case (str(user), str(password)):
            return user, password
    raise CallError(
        "EXECUTION_ERROR", f"the credential for {name} must be (user, password), not {_get_type_name(secret)}"
    )


def _get_type_name(secret: object) -> str:
    return type(secret).__name__ if secret else "nothing"
