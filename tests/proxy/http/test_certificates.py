"""`wrap --url` trusts the certificates of the system, or those that `SSL_CERT_FILE` names."""

import asyncio
import contextlib
import datetime
import http.server
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from forebay.errors import UpstreamFailed
from forebay.proxy.http.connection import Endpoint

pytestmark = pytest.mark.slow


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a private key and a certificate for localhost that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("certificate") / "localhost.pem"
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(pem + signed.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
def url(certificate: Path) -> Iterator[str]:
    """The address of an HTTPS server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"https://localhost:{server.server_port}/"
        server.shutdown()


def get_status(url: str) -> int:
    async def get() -> int:
        endpoint = Endpoint(url)
        with contextlib.closing(endpoint), contextlib.closing(await endpoint.open("GET", endpoint.url, {})) as response:
            return response.status

    return asyncio.run(get())


def test_a_certificate_named_by_the_environment_is_trusted(
    url: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert get_status(url) == 204


def test_an_unknown_certificate_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with pytest.raises(UpstreamFailed, match="CERTIFICATE_VERIFY_FAILED"):
        get_status(url)


def test_a_system_without_certificates_gets_those_of_certifi(
    url: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Python that was built elsewhere looks for certificates in folders that this system does not have."""
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.setenv(name, str(certificate.parent / "none"))
    monkeypatch.setattr("certifi.where", lambda: str(certificate))
    assert get_status(url) == 204


def test_a_proxy_opens_a_tunnel(url: str, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def tunnel() -> None:
            client, _ = listener.accept()
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += client.recv(1)
            heads.append(head)
            port = int(head.split(b" ")[1].rpartition(b":")[2])
            server = socket.create_connection(("127.0.0.1", port))
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=pump, args=(server, client))
            back.start()
            pump(client, server)
            back.join()
            client.close()
            server.close()

        thread = threading.Thread(target=tunnel)
        thread.start()
        for name in ("NO_PROXY", "no_proxy", "https_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:pw@127.0.0.1:{listener.getsockname()[1]}")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert get_status(url) == 204
        thread.join()
    (head,) = heads
    assert head.startswith(b"CONNECT localhost:")
    assert b"\r\nproxy-authorization: Basic dXNlcjpwdw==\r\n" in head


def pump(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until one of the sockets ends."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
