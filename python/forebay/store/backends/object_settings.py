"""How to reach a bucket: from the URL of a store and the environment variables of its provider."""

import ipaddress
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from forebay.errors import InvalidArgument, make_missing_extra
from forebay.store.address import RemoteAddress

__all__ = ["BucketSettings", "find_endpoint", "make_settings"]

_ENDPOINT_VARIABLES = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_HTTP_VARIABLES = {"s3": "AWS_ALLOW_HTTP", "gs": "GOOGLE_ALLOW_HTTP", "az": "AZURE_ALLOW_HTTP"}
_PARAMETERS: dict[str, dict[str, str]] = {
    "s3": {"endpoint": "aws_endpoint_url_s3", "region": "region"},
    "gs": {"endpoint": "base_url"},
    "az": {"endpoint": "endpoint", "account": "account_name"},
}
"""Query parameters of the URL by scheme, with the library's names. Credentials come from the environment only."""


class BucketSettings(NamedTuple):
    """A bucket, and how to open it."""

    bucket: str
    has_suffixes: bool
    """Whether the last bytes of an object can be read without knowing its size."""
    open: Callable[[Mapping[str, Any], Mapping[str, Any]], Any]
    """Open the bucket with options of the HTTP client and of its retries."""


def make_settings(address: RemoteAddress) -> BucketSettings:
    """Return how to open the bucket of a store. Raises `InvalidArgument` for an address that is wrong."""
    try:
        import obstore.store as library
    except ImportError as error:
        raise InvalidArgument(str(make_missing_extra(f"the store {address}", "s3", error))) from None
    parts = address.parts
    scheme, bucket, prefix = parts.scheme, parts.netloc, parts.path.strip("/")
    if "@" in bucket or ":" in bucket:
        raise InvalidArgument(
            f"{address} must name only a bucket before the path; credentials come from the environment, and another "
            f"server is ?endpoint=https://…"
        )
    values = _read_parameters(address, scheme)
    endpoint = find_endpoint(address)
    allows_http = _check_endpoint(address, scheme, endpoint)
    options = {_PARAMETERS[scheme][name]: value for name, value in values.items()}
    if scheme == "s3":
        # Not every server has bulk deletion, and one object at a time is deleted anyway.
        options["disable_bulk_delete"] = "true"
        if (not allows_http or _is_loopback_url(endpoint)) and "AWS_UNSIGNED_PAYLOAD" not in os.environ:
            # TLS protects the content, so it need not be hashed for the signature, by us and by the server.
            options["unsigned_payload"] = "true"
    store_class: Any = {"s3": library.S3Store, "gs": library.GCSStore, "az": library.AzureStore}[scheme]

    def open_bucket(client: Mapping[str, Any], retries: Mapping[str, Any]) -> Any:
        client_options = {**client, **({"allow_http": True} if allows_http else {})}
        try:
            return store_class(
                bucket, prefix=prefix or None, client_options=client_options, retry_config=dict(retries), **options
            )
        except Exception as error:
            # The text of the error may quote a credential.
            names = ", ".join(sorted(name for name in os.environ if name.startswith(_HTTP_VARIABLES[scheme][:3])))
            raise InvalidArgument(
                f"{address} cannot be opened ({type(error).__name__}): check the address and the environment variables "
                f"({names or 'none of the provider are set'})"
            ) from None

    return BucketSettings(bucket, scheme != "az", open_bucket)


def find_endpoint(address: RemoteAddress) -> str:
    """Return the URL of the server; an empty text stands for that of the provider."""
    named = dict(parse_qsl(address.parts.query)).get("endpoint")
    return named or next(filter(None, map(os.environ.get, _ENDPOINT_VARIABLES[address.parts.scheme])), "")


def _read_parameters(address: RemoteAddress, scheme: str) -> dict[str, str]:
    known = _PARAMETERS[scheme]
    values = dict(parse_qsl(address.parts.query, keep_blank_values=True))
    unknown = sorted(values.keys() - known.keys())
    if unknown or address.parts.fragment:
        raise InvalidArgument(
            f"{address} may have the parameters {', '.join(known)}, and no others and no fragment; "
            "everything else comes from the environment"
        )
    return values


def _check_endpoint(address: RemoteAddress, scheme: str, endpoint: str) -> bool:
    """Return whether the endpoint has no TLS. Raises `InvalidArgument` if that is not allowed."""
    if not endpoint:
        return False
    try:
        parts = urlsplit(endpoint)
        host = parts.hostname or ""
    except ValueError:
        parts, host = urlsplit(""), ""
    if parts.scheme not in ("http", "https") or not host or parts.username or parts.password:
        raise InvalidArgument(f"the endpoint of {address} must be https://host or https://host:port")
    variable = _HTTP_VARIABLES[scheme]
    is_allowed = os.environ.get(variable, "").lower() in ("1", "true", "yes", "on")
    if parts.scheme == "http" and not _is_loopback_url(endpoint) and not is_allowed:
        raise InvalidArgument(
            f"the endpoint of {address} has no TLS: use https://, or set {variable}=true if the network is trusted"
        )
    return parts.scheme == "http"


def _is_loopback_url(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
