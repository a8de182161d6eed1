"""The payload of the comparison, and the question about it. The module runs in environments without packages."""

import json
import random
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["COUNT", "NUMBER", "QUESTION_SQL", "count_matches", "find_order", "make_payload"]

COUNT = 60_000
NUMBER = 41_234
"""The number of the order to look up, from 0."""

QUESTION_SQL = "SELECT count(*) FROM orders WHERE status = 'failed' AND created_at LIKE '2025-03-%' AND total > 200"
"""The question that is asked, in SQL. `count_matches` answers it without SQL."""

_STATUSES = ("paid", "shipped", "delivered", "failed", "refunded")
_COUNTRIES = ("DE", "NL", "FR", "ES", "PL", "SE", "US", "JP")
_NAMES = ("Ada", "Bo", "Chloë", "Dara", "Enzo", "Fay", "Gus", "Jürgen")
_NOTES = ("", "please leave it with the neighbour", 'ring "Ohm", second floor', "gift: wrap it, no invoice in the box")


def make_payload() -> str:
    """Return an object with 60,000 orders, each on a line of its own. Amounts have two decimals."""
    source = random.Random(1)  # noqa: S311 - the same on every run
    lines = ",\n".join(_make_order(source, number) for number in range(COUNT))
    return f'{{"page": 1, "currency": "EUR", "orders": [\n{lines}\n]}}'


def find_order(payload: str, number: int) -> str:
    """Return an order exactly as the payload has it."""
    return payload.split("\n")[number + 1].removesuffix(",")


def count_matches(orders: Iterable[Mapping[str, Any]]) -> int:
    """Return how many orders of March 2025 failed with a total above 200."""
    return sum(
        order["status"] == "failed" and order["created_at"].startswith("2025-03-") and order["total"] > 200
        for order in orders
    )


def _make_order(source: random.Random, number: int) -> str:
    lines = [
        f'{{"sku": "SKU-{source.randrange(400):04}", "quantity": {source.randrange(1, 6)}, '
        f'"price": {source.randrange(200, 9000) / 100:.2f}}}'
        for _ in range(source.randrange(1, 4))
    ]
    total = source.randrange(500, 60_000) / 100
    customer = (
        f'{{"name": "{source.choice(_NAMES)} {source.randrange(2100)}", "country": "{source.choice(_COUNTRIES)}"}}'
    )
    # Databases use ids of 64 bits; a program that reads numbers as doubles changes these.
    return (
        f'{{"id": {9_007_199_254_740_993 + 2 * number}, "status": "{source.choice(_STATUSES)}", '
        f'"created_at": "2025-{1 + number * 12 // COUNT:02}-{1 + number % 28:02}", "total": {total:.2f}, '
        f'"vat": {source.choice((7, 19, 21))}, "customer": {customer}, "lines": [{", ".join(lines)}], '
        f'"city": "Port {source.randrange(90)}", "note": {json.dumps(source.choice(_NOTES))}}}'
    )
