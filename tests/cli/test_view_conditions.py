"""Conditions that people type become the JSON of `where`."""

import json
from typing import Any

import pytest
from forebay.cli.view.conditions import parse_conditions
from forebay.errors import InvalidArgument


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("status = failed", {"status": {"=": "failed"}}),
        ("status=failed", {"status": {"=": "failed"}}),
        ("status == failed and total>200", {"status": {"=": "failed"}, "total": {">": 200}}),
        ("total >= 1.5 & total < 2e3", {"total": {">=": 1.5, "<": 2000.0}}),
        ("customer.country in DE, FR", {"customer.country": {"in": ["DE", "FR"]}}),
        ("id in (1, 2, 30)", {"id": {"in": [1, 2, 30]}}),
        ('id in ["1", 2]', {"id": {"in": ["1", 2]}}),
        ("note ~ ^a.*z$", {"note": {"matches": "^a.*z$"}}),
        ("note contains left and right", None),
        ('note contains "left and right" and id = 1', {"note": {"contains": "left and right"}, "id": {"=": 1}}),
        ("name <> Ada Lovelace", {"name": {"!=": "Ada Lovelace"}}),
        ("is_paid = true", {"is_paid": {"=": True}}),
        ('zip = "01069"', {"zip": {"=": "01069"}}),
        ("zip = 01069", {"zip": {"=": "01069"}}),
        ("note exists and error missing", {"note": {"exists": True}, "error": {"exists": False}}),
        ('"first name" = Ada', {"first name": {"=": "Ada"}}),
        ('{"a": {">": 1}}', {"a": {">": 1}}),
        ("n = NaN", {"n": {"=": "NaN"}}),
        ('tag="<b>"', {"tag": {"=": "<b>"}}),
        ("tag = <b>", {"tag": {"=": "<b>"}}),
    ],
)
def test_conditions(text: str, expected: dict[str, Any] | None) -> None:
    if expected is None:
        with pytest.raises(InvalidArgument, match="condition"):
            parse_conditions(text)
    else:
        assert json.loads(parse_conditions(text)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("status", "no condition"),
        ("status =", "a value is missing"),
        ("= 3", "no condition"),
        ("a = 1 and a = 2", "twice"),
        ("a exists b", "put `and` between"),
        ("amount >> 3", "^>> is no operator; there are = != "),
        ("note =~ ^x", "^=~ is no operator"),
    ],
)
def test_what_is_no_condition(text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        parse_conditions(text)
