"""The rules of `forebay store lifecycle`, set by the command that docs/scale.md names, on a server that has rules."""

import json
import os
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import forebay
from command import run
from s3_server import BUCKET, find_binary


def test_a_server_accepts_the_rules_and_keeps_what_is_live(minio_address: str, tmp_path: Path) -> None:
    # MinIO removes unfinished uploads by itself, and refuses a rule for them.
    rules = [rule for rule in run("store", "lifecycle", minio_address).json["Rules"] if "Expiration" in rule]
    path = tmp_path / "rules.json"
    path.write_text(json.dumps({"Rules": rules}))
    endpoint = urlsplit(minio_address).query.partition("endpoint=")[2]

    def aws(*words: str) -> str:
        command = [find_binary("aws"), "--endpoint-url", endpoint, "s3api", *words, "--bucket", BUCKET]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ).stdout

    with forebay.open_store(minio_address) as store:
        handle = store.put(b"[1,2,3]").output_handle
        aws("put-bucket-lifecycle-configuration", "--lifecycle-configuration", path.as_uri())
        accepted = json.loads(aws("get-bucket-lifecycle-configuration"))["Rules"]
        assert [(rule["ID"], rule["Expiration"]) for rule in accepted] == [
            (rule["ID"], rule["Expiration"]) for rule in rules
        ]
        assert store.open(handle).read() == b"[1,2,3]"
        assert check(minio_address) == []

        # Rules that remove payloads too early are a problem, unless they are disabled.
        rules[0]["Expiration"]["Days"] = 1
        rules[1]["Expiration"]["Days"] = 1
        rules[1]["Status"] = "Disabled"
        path.write_text(json.dumps({"Rules": rules}))
        aws("put-bucket-lifecycle-configuration", "--lifecycle-configuration", path.as_uri())
        (problem,) = check(minio_address)
        assert "1 days after" in problem
        assert rules[0]["Filter"]["Prefix"] in problem

        aws("delete-bucket-lifecycle")
        assert check(minio_address) == []


def check(address: str) -> list[str]:
    """Return the problems that `forebay doctor` finds."""
    (row,) = json.loads(run("doctor", address).out)["servers"]
    assert row["note"] is None
    problems: list[str] = row["problems"]
    return problems
