"""`forebay store lifecycle`: rules for the bucket of a store."""

import json

import pytest
from command import run
from forebay.store.handles import LIFETIMES


def test_s3_rules_remove_each_lifetime_class_and_unfinished_uploads() -> None:
    rules = run("store", "lifecycle", "s3://bucket/my/prefix?region=x").json["Rules"]
    days = {rule["Filter"]["Prefix"]: rule["Expiration"]["Days"] for rule in rules if "Expiration" in rule}
    expected = dict(enumerate((2, 2, 2, 4, 8, 31, 366)))
    for folder in ("h", "index"):
        assert {number: days.pop(f"my/prefix/{folder}/{number}/") for number in expected} == expected
    assert days == {}
    for number, seconds in enumerate(LIFETIMES[:-1]):
        assert expected[number] * 86400 >= (seconds or 0) + 86400
    assert [rule["Filter"] for rule in rules if "AbortIncompleteMultipartUpload" in rule] == [{"Prefix": "my/prefix/"}]
    assert all(rule["Status"] == "Enabled" for rule in rules)


def test_other_providers_get_their_form() -> None:
    google = run("store", "lifecycle", "gs://bucket").json["rule"]
    assert google[0] == {"action": {"type": "Delete"}, "condition": {"age": 2, "matchesPrefix": ["h/0/"]}}
    assert google[-1] == {"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"age": 1}}
    azure = run("store", "lifecycle", "az://container/p").json["rules"]
    assert azure[3]["definition"] == {
        "filters": {"blobTypes": ["blockBlob"], "prefixMatch": ["container/p/h/3/"]},
        "actions": {"baseBlob": {"delete": {"daysAfterModificationGreaterThan": 4}}},
    }


@pytest.mark.parametrize("address", ["file:///tmp/store", "redis://host"])
def test_other_stores_have_no_rules(address: str) -> None:
    result = run("store", "lifecycle", address)
    assert (result.code, json.loads(result.err)["error"]["code"]) == (2, "invalid_argument")
