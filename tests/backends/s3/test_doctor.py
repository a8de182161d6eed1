"""`forebay doctor` with the address of a store in a bucket. The rules of a bucket are tested with MinIO."""

import json
from typing import Any

import pytest
from command import run
from s3_server import S3Server


def check(address: str, exit_code: int) -> Any:
    """Run the command, and return the row of the store."""
    result = run("doctor", address)
    assert result.code == exit_code
    (row,) = json.loads(result.out)["servers"]
    return row


def test_a_server_without_rules_is_noted(shared_s3: S3Server) -> None:
    row = check(shared_s3.url("doctor"), 0)
    assert row["problems"] == []
    # The server has accepted the signature.
    assert "the lifecycle rules of" in row["note"]
    assert "NotImplemented" in row["note"]


def test_wrong_credentials_are_a_problem(shared_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    row = check(shared_s3.url("doctor"), 1)
    assert "check the credentials" in row["problems"][0]
    assert "wrong" not in str(row)


def test_a_store_that_is_away_is_a_problem(shared_s3: S3Server) -> None:
    row = check(shared_s3.url("doctor", port=1), 1)
    assert "cannot be reached" in row["problems"][0]
