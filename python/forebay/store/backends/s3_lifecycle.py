"""Check the lifecycle rules of a bucket on S3."""

import hashlib
import hmac
import http.client
import os
import re
import time
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit
from xml.etree import ElementTree

from forebay.errors import StoreUnavailable
from forebay.store.address import RemoteAddress
from forebay.store.backends.object_lifecycle import make_lifecycle
from forebay.store.backends.object_settings import find_endpoint

__all__ = ["find_rule_problems", "make_bucket_url"]

_TIMEOUT_SECONDS = 10.0
_MAX_RULES_BYTES = 1 << 20
_DAYS_PATTERN = re.compile(r"[0-9]{1,10}")
_OBJECT_DAYS = "Expiration/{*}Days"
_PART_DAYS = "AbortIncompleteMultipartUpload/{*}DaysAfterInitiation"


class _Rule(NamedTuple):
    """An enabled rule: the days after which it removes objects, and parts of uploads. `None` if it removes none."""

    prefix: str
    object_days: int | None
    part_days: int | None


def find_rule_problems(address: RemoteAddress) -> list[str]:
    """Return what is wrong with the rules: none removes parts of uploads, or one removes payloads too early.

    Raises `StoreUnavailable` if the rules cannot be read.
    """
    server, rules = _read_rules(address)
    expected = make_lifecycle(address)["Rules"]
    advice = f"`forebay store lifecycle {address}` prints the rules that fit"
    problems = []
    for rule in expected:
        prefix = rule["Filter"]["Prefix"]
        if "Expiration" in rule:
            applying = [actual for actual in rules if prefix.startswith(actual.prefix)]
            days = [actual.object_days for actual in applying if actual.object_days is not None]
            needed_days = rule["Expiration"]["Days"]
            if days and min(days) < needed_days:
                problems.append(
                    f"a rule removes objects below {prefix} with Days: {min(days)}, but payloads there need at least "
                    f"{needed_days}; {advice}"
                )
        # MinIO removes the parts by itself, and refuses a rule for them.
        elif server != "MinIO" and not any(actual.part_days and prefix.startswith(actual.prefix) for actual in rules):
            problems.append(f"no rule removes the parts of unfinished uploads, which killed writers leave; {advice}")
    return problems


def make_bucket_url(bucket: str, region: str, endpoint: str) -> str:
    """Return the URL of a bucket at an endpoint, or at AWS if the endpoint is empty."""
    if endpoint:
        return f"{endpoint.rstrip('/')}/{bucket}"
    host = f"s3.{region}.amazonaws.com"
    # The certificate of AWS is for `*.s3.…`, and `*` stands for a name without dots.
    return f"https://{host}/{bucket}" if "." in bucket else f"https://{bucket}.{host}/"


def _read_rules(address: RemoteAddress) -> tuple[str, list[_Rule]]:
    """Return the name of the server and the enabled rules of the bucket."""
    region = dict(parse_qsl(address.parts.query)).get("region") or os.environ.get("AWS_REGION")
    region = region or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    url = urlsplit(make_bucket_url(address.parts.netloc, region, find_endpoint(address)))
    headers = _sign(url.netloc, url.path, region, os.environ, time.gmtime())
    connection_class = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = connection_class(url.netloc, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", f"{quote(url.path)}?lifecycle=", headers=headers)
        response = connection.getresponse()
        body = response.read(_MAX_RULES_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise StoreUnavailable(f"the lifecycle rules of {address} cannot be read: {error}") from None
    except ValueError:
        # Its message would show the value.
        raise StoreUnavailable(
            f"the lifecycle rules of {address} cannot be read: AWS_ACCESS_KEY_ID or AWS_SESSION_TOKEN has a character "
            "that no header can have, such as a line break at its end; remove it"
        ) from None
    finally:
        connection.close()
    try:
        # The parser of CPython limits the expansion of entities.
        document = ElementTree.fromstring(body)  # noqa: S314
    except ElementTree.ParseError:
        document = ElementTree.Element("none")
    code = _find_text(document, "Code")
    is_read = response.status == http.client.OK and document.tag.rpartition("}")[2] == "LifecycleConfiguration"
    if not is_read and code != "NoSuchLifecycleConfiguration":
        reason = code or (response.reason if response.status != http.client.OK else "the answer is no configuration")
        raise StoreUnavailable(f"the lifecycle rules of {address} cannot be read: {response.status} {reason}")
    rules = [
        _Rule(_find_prefix(rule), _find_days(rule, _OBJECT_DAYS), _find_days(rule, _PART_DAYS))
        for rule in document.iterfind("{*}Rule")
        # A rule with a tag does not apply: objects of a store have no tags.
        if _find_text(rule, "Status") == "Enabled" and rule.find(".//{*}Tag") is None
    ]
    return response.getheader("Server") or "", rules


def _find_text(element: ElementTree.Element, path: str) -> str | None:
    return element.findtext(f"{{*}}{path}")


def _find_days(rule: ElementTree.Element, path: str) -> int | None:
    text = _find_text(rule, path)
    return int(text) if text is not None and _DAYS_PATTERN.fullmatch(text) else None


def _find_prefix(rule: ElementTree.Element) -> str:
    """Return the prefix of a rule, which older configurations have outside of the filter."""
    paths = ("Filter/{*}Prefix", "Filter/{*}And/{*}Prefix", "Prefix")
    return next(filter(None, (_find_text(rule, path) for path in paths)), "")


def _sign(host: str, path: str, region: str, environ: Mapping[str, str], now: time.struct_time) -> dict[str, str]:
    """Return the headers of a request for the lifecycle rules (AWS Signature Version 4)."""
    key, secret = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
    if not key or not secret:
        raise StoreUnavailable(
            "the lifecycle rules of the bucket cannot be read without AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; "
            "compare them by hand: aws s3api get-bucket-lifecycle-configuration --bucket BUCKET"
        )
    day, moment = time.strftime("%Y%m%d", now), time.strftime("%Y%m%dT%H%M%SZ", now)
    body_digest = hashlib.sha256(b"").hexdigest()
    headers = {"host": host, "x-amz-content-sha256": body_digest, "x-amz-date": moment}
    if environ.get("AWS_SESSION_TOKEN"):
        headers["x-amz-security-token"] = environ["AWS_SESSION_TOKEN"]
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = f"GET\n{quote(path)}\nlifecycle=\n{lines}\n{names}\n{body_digest}"
    scope = f"{day}/{region}/s3/aws4_request"
    to_sign = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    signing_key = f"AWS4{secret}".encode()
    for part in (*scope.split("/"), to_sign):
        signature = hmac.new(signing_key, part.encode(), hashlib.sha256)
        signing_key = signature.digest()
    credential = f"Credential={key}/{scope}, SignedHeaders={names}, Signature={signature.hexdigest()}"
    return {**headers, "authorization": f"AWS4-HMAC-SHA256 {credential}"}
