"""`wrap --url` trusts the certificates of the system, or those that `SSL_CERT_FILE` names."""

import datetime
import http.server
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
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"https://localhost:{server.server_port}/"
        server.shutdown()


def get_status(url: str) -> int:
    endpoint = Endpoint(url)
    try:
        with endpoint.borrow_connection() as connection:
            response = endpoint.open(connection, "GET", endpoint.url, {}, read_timeout=10)
            response.close()
            return response.status_code
    finally:
        endpoint.close()


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
