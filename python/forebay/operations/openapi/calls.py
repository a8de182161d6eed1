"""Calling an operation: its input becomes a request, and what comes back an envelope."""

from collections.abc import Mapping
from typing import Any

import httpx2

from forebay.operations.deadlines import after, earliest, within
from forebay.operations.envelope import ResponseEnvelope
from forebay.operations.errors import CallError
from forebay.operations.openapi import parameters
from forebay.operations.openapi.headers import joined_cookies
from forebay.operations.openapi.operations import Described
from forebay.operations.openapi.responses import Limits, StoredOver, envelope_of, refused
from forebay.operations.openapi.security import Applied, Security
from forebay.operations.openapi.sending import new_request, sent
from forebay.operations.spec import CallContext

__all__ = ["Call"]

_ACCEPTED = "application/json, */*;q=0.8"


class Call:
    """The handler of an operation."""

    def __init__(
        self,
        described: Described,
        client: httpx2.AsyncClient,
        security: Security,
        headers: Mapping[str, str],
        timeout: float | None,
        limits: Limits,
        stored: StoredOver | None,
    ) -> None:
        self._described = described
        self._client = client
        self._security = security
        self._headers = headers
        self._timeout = timeout
        self._limits = limits
        self._stored = stored

    def __repr__(self) -> str:
        return f"<Call {self._described.method} {self._described.base_url}{self._described.path}>"

    async def __call__(self, given: Any, context: CallContext) -> ResponseEnvelope[Any]:
        """Sends the request. Raises `CallError` for whatever comes to no result, and for a status of 400 or more."""
        tool = self._described.spec.id
        requirement, wanted = self._security.chosen(self._described.security)
        async with within(earliest(context.deadline, after(self._timeout)), tool):
            applied = await self._security.applied(requirement)
            request = self._request(given or {}, applied)
            async with sent(self._client, request, applied, tool) as response:
                if response.status_code >= 400:
                    raise await refused(response, applied, self._limits, requirement, wanted, tool=tool)
                principal = context.identity.id if context.identity else None
                return await envelope_of(response, self._limits, self._stored, tool=tool, principal=principal)

    def _request(self, given: Mapping[str, Any], applied: Applied) -> httpx2.Request:
        try:
            return self._written(given, applied)
        except (TypeError, ValueError, httpx2.InvalidURL) as error:
            # A text with half a character, a value that no JSON can say, or more than a URL can hold.
            raise CallError("VALIDATION_ERROR", f"the input cannot be sent: {error!s:.200}") from None

    def _written(self, given: Mapping[str, Any], applied: Applied) -> httpx2.Request:
        if not isinstance(given, Mapping):
            raise CallError("VALIDATION_ERROR", f"the input is an object, not {type(given).__name__}")
        described = self._described
        filled = parameters.filled_path(described.path, described.parameters, given)
        # Some tell operations of one path apart by a query or a fragment there.
        path, _, said = filled.partition("#")[0].partition("?")
        query = "&".join(filter(None, [said, parameters.query(described.parameters, given), *applied.query]))
        cookies = [*parameters.cookies(described.parameters, given), *applied.cookies]
        content, content_type = self._body(given)
        headers = httpx2.Headers({"Accept": _ACCEPTED}, encoding="utf-8")
        for several in (self._headers, parameters.headers(described.parameters, given), applied.headers):
            for name, value in several.items():
                headers[name] = value
        if cookies:
            headers["Cookie"] = joined_cookies("; ".join(cookies), headers.get("Cookie", ""))
        if content_type is not None:
            headers["Content-Type"] = content_type
        url = f"{described.base_url}{path}" + (f"?{query}" if query else "")
        return new_request(self._client, described.method, url, headers, content)

    def _body(self, given: Mapping[str, Any]) -> tuple[bytes | None, str | None]:
        body = self._described.body
        if body is None or parameters.BODY not in given:
            return None, None
        return body.written(given[parameters.BODY])
