"""URLs of servers, and the proxies that the environment names for them."""

import pytest
from forebay.proxy.http.urls import URL, find_proxy

PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize(
    ("text", "origin", "target"),
    [
        ("http://example.com", "http://example.com", "/"),
        ("HTTPS://Example.COM:443/mcp", "https://example.com", "/mcp"),
        ("http://example.com:443/mcp#part", "http://example.com:443", "/mcp"),
        ("http://[::1]:8000/mcp?a=b%20c&d", "http://[::1]:8000", "/mcp?a=b%20c&d"),
        ("http://user:p%40ss@host/é?q=ü", "http://host", "/%C3%A9?q=%C3%BC"),
        ("https://bücher.example/", "https://xn--bcher-kva.example", "/"),
        ("http://host?q", "http://host", "/?q"),
        (" http://host/a \n", "http://host", "/a"),
    ],
)
def test_urls_are_normalized(text: str, origin: str, target: str) -> None:
    url = URL.parse(text)
    assert (url.origin, url.target) == (origin, target)
    assert URL.parse(str(url)) == url


@pytest.mark.parametrize(
    "text", ["http://host:port/", "http://host:70000/", "http://[::1", "http://ho st/", "http://h/\0"]
)
def test_invalid_urls_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        URL.parse(text)


def test_credentials_are_decoded() -> None:
    assert URL.parse("http://us%20er:p%40s:s@host/").credentials == ("us er", "p@s:s")
    assert URL.parse("http://user@host/").credentials == ("user", "")
    assert URL.parse("http://host/").credentials is None


@pytest.mark.parametrize(
    ("reference", "joined"),
    [
        ("/messages?session=1", "http://user:pw@host:8000/messages?session=1"),
        ("there", "http://user:pw@host:8000/a/there"),
        ("http://other/x", "http://other/x"),
        ("//other/x", "http://other/x"),
    ],
)
def test_references_are_joined(reference: str, joined: str) -> None:
    assert str(URL.parse("http://user:pw@host:8000/a/b").join(reference)) == joined


@pytest.mark.parametrize(
    ("url", "variables", "proxy"),
    [
        ("http://host/", {}, None),
        ("http://host/", {"http_proxy": "http://p:1"}, "http://p:1"),
        ("http://host/", {"HTTP_PROXY": "p:1"}, "http://p:1"),
        ("https://host/", {"HTTP_PROXY": "http://p:1"}, None),
        ("https://host/", {"HTTPS_PROXY": "http://p:1", "ALL_PROXY": "http://a:1"}, "http://p:1"),
        ("https://host/", {"ALL_PROXY": "http://a:1"}, "http://a:1"),
    ],
)
def test_the_environment_names_proxies(
    url: str, variables: dict[str, str], proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert find_proxy(URL.parse(url)) == proxy


@pytest.mark.parametrize(
    ("url", "excluded", "is_direct"),
    [
        ("http://host/", "*", True),
        ("http://host/", "other, *", True),
        ("http://host/", "", False),
        ("http://example.com/", "example.com", True),
        ("http://www.Example.com/", "other,EXAMPLE.com", True),
        ("http://wwwexample.com/", "example.com", False),
        ("http://www.example.com/", ".example.com", True),
        ("http://example.com/", ".example.com", False),
        ("http://example.com:8000/", "example.com:8000", True),
        ("http://example.com/", "example.com:8000", False),
        ("http://localhost/", "localhost", True),
        ("http://my.localhost/", "localhost", False),
        ("http://127.0.0.1:1/", "127.0.0.1", True),
        ("http://1.127.0.0.1/", "127.0.0.1", False),
        ("http://[::1]/", "::1", True),
        ("http://[::1]:8000/", "[::1]:8000", True),
        ("http://host/", "https://host", False),
        ("http://host/", "http://host", True),
        ("http://www.host/", "all://host", False),
        ("http://www.host/", "all://*host", True),
    ],
)
def test_no_proxy_excludes_servers(url: str, excluded: str, is_direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://p:1")
    monkeypatch.setenv("NO_PROXY", excluded)
    assert (find_proxy(URL.parse(url)) is None) == is_direct
