"""The outputs that the questions are about. They are the same on every run."""

import csv
import functools
import io
import json
import random
from collections.abc import Callable, Mapping
from typing import Any

COUNTRIES = ("DE", "NL", "FR", "ES", "PL", "SE", "US", "JP")
STATUSES = ("paid", "shipped", "delivered", "failed", "refunded")
SKUS = tuple(f"SKU-{n:04d}" for n in range(400))
LICENSES = ("MIT", "Apache-2.0", "BSD-3-Clause", "GPL-3.0", "MPL-2.0")
SERVICES = ("auth", "billing", "catalog", "gateway", "search", "mailer")
REGIONS = ("North", "South", "East", "West")


def _money(source: random.Random, low: int, high: int) -> float:
    return source.randrange(low * 100, high * 100) / 100


def make_orders() -> dict[str, Any]:
    """Return 60,000 records in an object with scalars before and after them: 18 MB of JSON."""
    source = random.Random(1)
    customers = [f"{name} {n}" for n in range(300) for name in ("Ada", "Bo", "Cleo", "Dara", "Enzo", "Fay", "Gus")]
    source.shuffle(customers)
    countries = {customer: source.choice(COUNTRIES) for customer in customers}
    orders: list[dict[str, Any]] = []
    for n in range(60_000):
        customer = customers[int(len(customers) * source.random() ** 2)]
        lines: list[dict[str, Any]] = [
            {"sku": source.choice(SKUS), "quantity": source.randrange(1, 6), "price": _money(source, 2, 90)}
            for _ in range(source.randrange(1, 4))
        ]
        order = {
            "id": 100_000 + n,
            "status": source.choice(STATUSES),
            "customer": {"name": customer, "country": countries[customer]},
            "total": round(sum(line["quantity"] * line["price"] for line in lines), 2),
            "created_at": f"2026-{1 + n // 5000:02d}-{1 + n % 28:02d}",
            "lines": lines,
            "shipping": {"street": f"{source.randrange(1, 200)} Harbour Road", "city": f"Port {source.randrange(90)}"},
            "carrier": source.choice(("post", "courier", "pickup")),
            "note": "please leave with the neighbour" if n % 97 == 5 else "",
        }
        if n % 11 == 3:
            order["coupon"] = source.choice(("SPRING", "WELCOME", "FRIENDS"))
        orders.append(order)
    orders[41_873]["note"] = "the lighthouse keeper signs for it"
    return {"page": 1, "currency": "EUR", "orders": orders, "generated_by": "ledger 4.2.1"}


def make_plugins() -> dict[str, Any]:
    """Return a map of 654 records under their names."""
    source = random.Random(2)
    names = [
        f"{verb}-{noun}"
        for verb in ("auto", "fast", "git", "live", "smart", "tiny")
        for noun in [
            f"{stem}{n}"
            for n in range(11)
            for stem in ("lint", "view", "sync", "form", "mark", "pack", "test", "bolt", "leaf", "tree")
        ]
    ][:654]
    plugins = {
        name: {
            "version": f"{source.randrange(9)}.{source.randrange(20)}.{source.randrange(40)}",
            "stars": source.randrange(20, 90_000),
            "license": source.choice(LICENSES),
            "author": {"name": f"{source.choice(('Kim', 'Lee', 'Mia', 'Nils', 'Oda'))} {source.randrange(60)}"},
            "dependencies": source.sample(("core", "http", "yaml", "ui", "db", "cache"), source.randrange(4)),
            "deprecated": source.random() < 0.08,
            "description": f"Helps with {source.choice(('menus', 'charts', 'builds', 'tables', 'themes'))} and more. "
            * 6,
        }
        for name in names
    }
    plugins["smart-leaf4"]["description"] = "Rotates cameras with quaternions. " * 3
    return {"registry": "public", "plugins": plugins, "mirrors": ["eu", "us"]}


def make_spec() -> dict[str, Any]:
    """Return a deep document: the description of an HTTP API."""
    source = random.Random(3)
    resources = ("users", "teams", "invoices", "projects", "files", "hooks", "labels", "reports", "roles", "tokens")
    endings = {
        "": ("", ("get", "post")),
        "/{id}": ("_by_id", ("get", "put", "delete")),
        "/{id}/history": ("_history", ("get",)),
    }

    def describe_operation(method: str, version: str, resource: str, ending: str) -> dict[str, Any]:
        return {
            "operationId": f"{method}_{version}_{resource}{endings[ending][0]}",
            "summary": f"{method.title()} {resource} of a workspace, with all fields that the caller may see",
            "deprecated": version == "v1" and method == "delete" and resource in ("hooks", "labels"),
            "parameters": [
                {"name": name, "in": "query", "schema": {"type": "integer", "default": source.randrange(1, 500)}}
                for name in ("limit", "offset", "timeout")
            ],
            "responses": {code: {"description": text} for code, text in (("200", "done"), ("404", "unknown"))},
        }

    paths = {
        f"/{version}/{resource}{ending}": {
            method: describe_operation(method, version, resource, ending) for method in methods
        }
        for version in ("v1", "v2", "v3")
        for resource in resources
        for ending, (_, methods) in endings.items()
    }
    schemas = {
        f"{resource.title()}{kind}": {
            "type": "object",
            "required": ["id"],
            "properties": {
                name: {"type": "string", "maxLength": source.randrange(10, 4000)}
                for name in ("id", "name", "owner", "color")
            },
        }
        for resource in resources
        for kind in ("Input", "Output", "Summary", "Event")
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Workspace API", "version": "7.3.0", "license": {"name": "Elastic-2.0"}},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Workspace-Key"}},
        },
    }


def make_log() -> str:
    """Return 40,000 lines of a log."""
    source = random.Random(4)
    lines = []
    for n in range(40_000):
        level = source.choices(("INFO", "DEBUG", "WARN", "ERROR"), (70, 20, 8, 2))[0]
        service = source.choice(SERVICES)
        text = {
            "INFO": f"request r-{n:06d} served in {source.randrange(1, 900)} ms",
            "DEBUG": f"cache hit ratio {source.random():.3f}",
            "WARN": f"slow query on shard {source.randrange(12)}: {source.randrange(1000, 9000)} ms",
            "ERROR": f"request r-{n:06d} failed: {source.choice(('timeout', 'connection reset', 'bad gateway'))}",
        }[level]
        time = f"2026-11-0{1 + n // 8000}T{n // 1800 % 24:02d}:{n // 30 % 60:02d}:{n % 60:02d}Z"
        lines.append(f"{time} {level:5} [{service}] {text}")
    lines[27_316] = "2026-11-04T15:10:16Z FATAL [billing] panic: ledger out of balance by 0.03, account A-77120"
    return "\n".join(lines) + "\n"


def make_events() -> list[dict[str, Any]]:
    """Return 30,000 events, which become NDJSON."""
    source = random.Random(5)
    events: list[dict[str, Any]] = []
    for n in range(30_000):
        kind = source.choice(("click", "view", "purchase", "login", "logout"))
        event: dict[str, Any] = {
            "event_id": f"e{n:05d}",
            "type": kind,
            "user": f"u{int(4000 * source.random() ** 1.5)}",
            "ms": source.randrange(3, 4000),
            "agent": source.choice(("Firefox", "Chrome", "Safari")),
        }
        if kind == "purchase":
            event["amount"] = _money(source, 1, 400)
        events.append(event)
    return events


def make_sales() -> str:
    """Return 20,000 rows of CSV."""
    source = random.Random(6)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["sale", "day", "region", "product", "units", "unit_price"])
    for n in range(20_000):
        product = source.choice(("Lamp", "Desk, oak", 'Shelf 40"', "Chair", "Rug"))
        writer.writerow(
            [
                n,
                f"2026-{1 + n % 12:02d}-{1 + n % 28:02d}",
                source.choice(REGIONS),
                product,
                source.randrange(1, 40),
                f"{_money(source, 5, 300):.2f}",
            ]
        )
    return text.getvalue()


def make_readings() -> dict[str, Any]:
    """Return 12,000 items whose values have different types, or are missing."""
    source = random.Random(7)
    readings: list[dict[str, Any]] = []
    for n in range(12_000):
        value: Any = _money(source, 0, 100)
        if n % 10 == 1:
            value = None
        elif n % 25 == 2:
            value = "out of range"
        elif n % 50 == 3:
            value = {"low": n % 7, "high": n % 7 + 10}
        reading: dict[str, Any] = {
            "serial": 9_007_199_254_740_993 + n * 1_000_003,
            "sensor": f"s{n % 37}",
            "value": value,
        }
        if n % 8 == 0:
            reading["tags"] = source.sample(("indoor", "outdoor", "calibrated", "legacy"), 2)
        readings.append(reading)
    readings[8_112]["comment"] = 'caf\u00e9 "Zum Löwen"\nrooftop'
    return {"site": "Bergen", "readings": readings}


def make_customers() -> list[dict[str, Any]]:
    """Return 4,000 customers, to join with the invoices."""
    source = random.Random(8)
    return [
        {
            "customer_id": n,
            "name": f"Customer {n:04d}",
            "tier": source.choice(("gold", "silver", "bronze")),
            "country": source.choice(COUNTRIES),
            "address": f"{n} High Street, {source.randrange(10_000, 99_999)} Springfield",
        }
        for n in range(4_000)
    ]


def make_invoices() -> dict[str, Any]:
    """Return 15,000 invoices of those customers."""
    source = random.Random(9)
    invoices = [
        {
            "invoice": f"I-{n:05d}",
            "customer_id": int(3_800 * source.random()),
            "amount": _money(source, 10, 5000),
            "paid": source.random() < 0.7,
        }
        for n in range(15_000)
    ]
    return {"year": 2026, "invoices": invoices}


_MAKERS: Mapping[str, Callable[[], Any]] = {
    "orders": make_orders,
    "plugins": make_plugins,
    "spec": make_spec,
    "log": make_log,
    "events": make_events,
    "sales": make_sales,
    "readings": make_readings,
    "customers": make_customers,
    "invoices": make_invoices,
}

NAMES = tuple(_MAKERS)

MIME_TYPES = {"log": "text/plain", "events": "application/x-ndjson", "sales": "text/csv"}
"""The MIME types of the outputs that are not JSON."""


@functools.cache
def load(name: str) -> Any:
    """Return an output as Python has it: parsed JSON, the list of NDJSON records, or text."""
    return _MAKERS[name]()


def dump(name: str) -> str:
    """Return an output as the text that its tool returns."""
    value = load(name)
    if isinstance(value, str):
        return value
    if name == "events":
        return "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in value)
    # ASCII escapes and no spaces, as many servers write JSON.
    return json.dumps(value, separators=(",", ":"))
