"""Rules by which a bucket itself removes what has expired, and the parts of uploads that were never completed."""

from typing import Any

from forebay.errors import InvalidArgument
from forebay.store.address import OBJECT_STORE_SCHEMES, RemoteAddress
from forebay.store.handles import LIFETIMES

__all__ = ["make_lifecycle"]

_DAY_SECONDS = 86400


def make_lifecycle(address: object) -> dict[str, Any]:
    """Return the lifecycle configuration for the bucket of a store, as its provider takes it.

    A day more than the lifetime, because a writer's clock may differ from that of the server.
    """
    if not isinstance(address, RemoteAddress) or address.parts.scheme not in OBJECT_STORE_SCHEMES:
        raise InvalidArgument("only a store in a bucket has such rules: s3://bucket/prefix, gs://… or az://…")
    parts = address.parts
    prefix = parts.path.strip("/") + "/" if parts.path.strip("/") else ""
    days = {
        f"{prefix}{folder}/{number}/": -(-seconds // _DAY_SECONDS) + 1
        for folder in ("h", "index")
        for number, seconds in enumerate(LIFETIMES)
        if seconds is not None
    }
    make = {"s3": _make_s3_rules, "gs": _make_google_rules, "az": _make_azure_rules}[parts.scheme]
    return make(parts.netloc, prefix, days)


def _make_s3_rules(_: str, prefix: str, days: dict[str, int]) -> dict[str, Any]:
    rules: list[dict[str, Any]] = [
        {
            "ID": f"forebay {folder}",
            "Status": "Enabled",
            "Filter": {"Prefix": folder},
            "Expiration": {"Days": count},
        }
        for folder, count in days.items()
    ]
    parts_rule = {
        "ID": f"forebay {prefix}parts",
        "Status": "Enabled",
        "Filter": {"Prefix": prefix},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
    }
    return {"Rules": [*rules, parts_rule]}


def _make_google_rules(_: str, prefix: str, days: dict[str, int]) -> dict[str, Any]:
    rules = [
        {"action": {"type": "Delete"}, "condition": {"age": count, "matchesPrefix": [folder]}}
        for folder, count in days.items()
    ]
    condition = {"age": 1, **({"matchesPrefix": [prefix]} if prefix else {})}
    return {"rule": [*rules, {"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": condition}]}


def _make_azure_rules(container: str, _: str, days: dict[str, int]) -> dict[str, Any]:
    # Azure removes uncommitted blocks by itself after a week.
    return {
        "rules": [
            {
                "enabled": True,
                "name": f"forebay-{number}",
                "type": "Lifecycle",
                "definition": {
                    "filters": {"blobTypes": ["blockBlob"], "prefixMatch": [f"{container}/{folder}"]},
                    "actions": {"baseBlob": {"delete": {"daysAfterModificationGreaterThan": count}}},
                },
            }
            for number, (folder, count) in enumerate(days.items())
        ]
    }
