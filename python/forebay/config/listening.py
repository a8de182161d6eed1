"""Checks of the address that `serve` listens on, and of who may call it."""

import ipaddress
import re
import urllib.parse
from typing import TYPE_CHECKING

from forebay.arguments import short_repr
from forebay.errors import InvalidArgument

if TYPE_CHECKING:
    from forebay.config.options import Settings

__all__ = ["LOOPBACK_NAMES", "check_listening", "has_authentication", "is_beyond_loopback"]

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")

_HOST_PATTERN = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(:[0-9]{1,5})?")
_ORIGIN_PATTERN = re.compile(r"[a-z][a-z0-9+.-]*://" + _HOST_PATTERN.pattern)
_OAUTH_FLAGS = {
    "oauth_issuer": "--oauth-issuer",
    "oauth_audience": "--oauth-audience",
    "oauth_jwks_url": "--oauth-jwks-url",
}


def has_authentication(settings: "Settings") -> bool:
    """Return whether callers need a token."""
    return settings.token_file is not None or settings.oauth_issuer is not None


def is_beyond_loopback(settings: "Settings") -> bool:
    """Return whether other machines can call: directly, or through a proxy that uses an allowed host name."""
    if settings.http is None:
        return False
    return not all(map(_is_loopback, (settings.http[0], *map(_strip_port, settings.allowed_hosts))))


def check_listening(settings: "Settings") -> None:
    """Raise `InvalidArgument` for settings that admit unauthenticated callers or lock out all callers."""
    _check_oauth(settings)
    _check_names(settings)
    if settings.http is None:
        return
    host, _ = settings.http
    if is_beyond_loopback(settings) and not settings.insecure and not has_authentication(settings):
        reachable = host if not _is_loopback(host) else ", ".join(settings.allowed_hosts)
        raise InvalidArgument(
            f"other machines can reach {reachable}; "
            "give --token-file or --oauth-issuer, or --insecure if anyone may call"
        )
    if _is_unspecified(host) and not settings.allowed_hosts:
        raise InvalidArgument(
            f"{host} stands for every address of this machine; name the host that clients use: "
            "--allowed-hosts mcp.example.com"
        )
    if settings.file_roots and is_beyond_loopback(settings) and not settings.file_refs_beyond_loopback:
        raise InvalidArgument(
            "--file-root is set, but other machines can call; leave it out, or give --file-refs-beyond-loopback if "
            "all callers may read the files below it"
        )


def _check_oauth(settings: "Settings") -> None:
    missing = [flag for name, flag in _OAUTH_FLAGS.items() if getattr(settings, name) is None]
    if 0 < len(missing) < len(_OAUTH_FLAGS):
        raise InvalidArgument(f"{', '.join(_OAUTH_FLAGS.values())} go together; give {' and '.join(missing)} too")
    if settings.oauth_scopes and missing:
        raise InvalidArgument(f"--oauth-scopes is for JWTs of an issuer; give {' and '.join(missing)} too")
    jwks_url = urllib.parse.urlsplit(settings.oauth_jwks_url or "")
    if jwks_url.scheme == "http" and not _is_loopback(jwks_url.hostname or ""):
        raise InvalidArgument("--oauth-jwks-url must begin with https://; without TLS, others could replace the keys")


def _check_names(settings: "Settings") -> None:
    for host in settings.allowed_hosts:
        if not _HOST_PATTERN.fullmatch(host):
            raise InvalidArgument(f"--allowed-hosts takes host names, such as mcp.example.com, not {short_repr(host)}")
    for origin in settings.allowed_origins:
        if not _ORIGIN_PATTERN.fullmatch(origin):
            raise InvalidArgument(
                f"--allowed-origins takes origins, such as https://app.example.com, not {short_repr(origin)}"
            )


def _strip_port(host: str) -> str:
    found = _HOST_PATTERN.fullmatch(host)
    return found[1].strip("[]") if found else host


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
