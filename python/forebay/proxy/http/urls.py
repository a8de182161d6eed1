"""URLs of servers, and the proxies that the environment names for them."""

import dataclasses
import ipaddress
import re
import urllib.parse
import urllib.request
from functools import cached_property
from typing import Self

__all__ = ["URL", "find_proxy"]

_DEFAULT_PORTS = {"http": 80, "https": 443}

_SAFE_CHARS = "!$%&'()*+,-./:;=?@[]_~|"
"""Characters of a path or query that are not encoded again: those with a meaning, and the percent sign."""


@dataclasses.dataclass(frozen=True)
class URL:
    """Absolute URL without a fragment."""

    scheme: str
    userinfo: str
    """User and password as in the URL, with encoded characters."""
    host: str
    """Host in ASCII, without the brackets of an IPv6 address."""
    explicit_port: int | None
    """Port, or `None` if it is the default port of the scheme."""
    path: str
    query: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return a URL. Raises `ValueError`."""
        if re.search(r"[\x00-\x20\x7f]", text.strip()):
            raise ValueError("there are control characters or spaces in it")
        parts = urllib.parse.urlsplit(text.strip())
        host = parts.hostname or ""
        return cls(
            scheme=parts.scheme,
            userinfo=parts.netloc.rpartition("@")[0],
            host=host if host.isascii() else host.encode("idna").decode(),
            explicit_port=None if parts.port == _DEFAULT_PORTS.get(parts.scheme) else parts.port,
            path=urllib.parse.quote(parts.path or "/", safe=_SAFE_CHARS),
            query=urllib.parse.quote(parts.query, safe=_SAFE_CHARS),
        )

    def join(self, reference: str) -> "URL":
        """Return the URL that a reference in a response of this URL means. Raises `ValueError`."""
        return URL.parse(urllib.parse.urljoin(str(self), reference))

    @property
    def port(self) -> int:
        return self.explicit_port or _DEFAULT_PORTS.get(self.scheme, 0)

    @cached_property
    def netloc(self) -> str:
        """Host and port as in the header Host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.explicit_port is None else f"{host}:{self.explicit_port}"

    @cached_property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"{self.scheme}://{self.netloc}"

    @cached_property
    def target(self) -> str:
        """Path and query as in a request."""
        return f"{self.path}?{self.query}" if self.query else self.path

    @cached_property
    def credentials(self) -> tuple[str, str] | None:
        """User and password, decoded; `None` if the URL has neither."""
        user, _, password = self.userinfo.partition(":")
        return (urllib.parse.unquote(user), urllib.parse.unquote(password)) if user or password else None

    @property
    def query_values(self) -> list[str]:
        return [value for _, value in urllib.parse.parse_qsl(self.query)]

    def __str__(self) -> str:
        return f"{self.scheme}://{self.userinfo}{'@' * bool(self.userinfo)}{self.netloc}{self.target}"


def find_proxy(url: URL) -> str | None:
    """Return the URL of the proxy for a server, as `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` say."""
    proxies = urllib.request.getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or any(_is_excluded(url, entry.strip()) for entry in proxies.get("no", "").split(",")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_excluded(url: URL, entry: str) -> bool:
    """Return whether an entry of `NO_PROXY` is for a server: a host, a domain, a URL, or `*` for all."""
    if not entry or entry == "*":
        return entry == "*"
    scheme, separator, rest = entry.rpartition("://")
    if separator and scheme not in ("all", url.scheme):
        return False
    name, port = _split_port(rest)
    if port is not None and port != url.explicit_port:
        return False
    name = name.lower()
    is_exact = bool(separator) or name == "localhost" or _is_address(name)
    if is_exact and not name.startswith("*"):
        return name == url.host
    domain = name.removeprefix("*")
    return url.host.endswith(domain) if domain.startswith(".") else f".{url.host}".endswith(f".{domain}")


def _split_port(text: str) -> tuple[str, int | None]:
    """Return the host and the port of an entry. An IPv6 address without brackets has no port."""
    match = re.fullmatch(r"\[(.*)\](?::(\d+))?|([^:]*):(\d+)", text)
    if match is None:
        return text, None
    port = match[2] or match[4]
    return match[1] if match[1] is not None else match[3], None if port is None else int(port)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
