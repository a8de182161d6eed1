"""Answers of a bucket to the question for its lifecycle rules that are none, and credentials that cannot be sent."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from forebay import StoreUnavailable
from forebay.store import RemoteAddress, resolve_address
from forebay.store.backends.s3_lifecycle import find_rule_problems, make_bucket_url


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tests")
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)


@contextmanager
def answering(body: bytes) -> Iterator[RemoteAddress]:
    """Run a server that gives one answer to everything, and yield the address of a bucket there."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            address = resolve_address(f"s3://bucket/store?endpoint=http://127.0.0.1:{server.server_port}")
            assert isinstance(address, RemoteAddress)
            yield address
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("bucket", "endpoint", "url"),
    [
        ("outputs", "", "https://outputs.s3.eu-west-1.amazonaws.com/"),
        # As a part of the host name, it would not match the certificate for *.s3.eu-west-1.amazonaws.com.
        ("outputs.example.com", "", "https://s3.eu-west-1.amazonaws.com/outputs.example.com"),
        ("outputs", "http://127.0.0.1:9000", "http://127.0.0.1:9000/outputs"),
        ("outputs.example.com", "https://minio.example.com/s3/", "https://minio.example.com/s3/outputs.example.com"),
    ],
)
def test_a_bucket_is_part_of_the_host_name_only_where_a_certificate_matches(
    bucket: str, endpoint: str, url: str
) -> None:
    assert make_bucket_url(bucket, "eu-west-1", endpoint) == url


@pytest.mark.parametrize("body", [b"", b"<html><p>Sign in</p></html>", b"{}"])
def test_an_answer_that_is_no_configuration_is_not_taken_for_one_without_rules(body: bytes) -> None:
    with answering(body) as address, pytest.raises(StoreUnavailable, match="the answer is no configuration"):
        find_rule_problems(address)


@pytest.mark.parametrize("days", ["\u00b2", "9" * 5000, "-1", ""], ids=["superscript", "long", "negative", "empty"])
def test_days_that_are_no_number_are_no_days(days: str) -> None:
    rule = f"<Rule><Status>Enabled</Status><Prefix/><Expiration><Days>{days}</Days></Expiration></Rule>"
    with answering(f"<LifecycleConfiguration>{rule}</LifecycleConfiguration>".encode()) as address:
        problems = find_rule_problems(address)
    assert problems
    assert all("no rule removes the parts" in problem for problem in problems)


def test_a_credential_that_no_header_can_have_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of a session\n")
    with answering(b"") as address, pytest.raises(StoreUnavailable, match="a line break at its end") as caught:
        find_rule_problems(address)
    assert "of a session" not in str(caught.value)
