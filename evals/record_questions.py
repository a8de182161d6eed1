"""Questions about records: an array, NDJSON, CSV, values of mixed types, and two outputs to join."""

import collections
import csv
import io
from typing import Any

from evals.questions import Question


def _orders(document: Any) -> list[dict[str, Any]]:
    return list(document["orders"])


def _top(totals: "collections.Counter[str]", count: int) -> list[str]:
    return [name for name, _ in totals.most_common(count)]


def _sum_by_customer(document: Any) -> "collections.Counter[str]":
    totals: collections.Counter[str] = collections.Counter()
    for order in _orders(document):
        totals[order["customer"]["name"]] += round(order["total"] * 100)
    return totals


def _units_by_sku(document: Any) -> "collections.Counter[str]":
    units: collections.Counter[str] = collections.Counter()
    for order in _orders(document):
        for line in order["lines"]:
            units[line["sku"]] += line["quantity"]
    return units


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


ORDERS = [
    Question(
        id="orders-total-of-one",
        kind="lookup",
        outputs=("orders",),
        text="What is the total of the order with id 148213? Answer with the number.",
        expected=lambda orders: next(order["total"] for order in _orders(orders) if order["id"] == 148_213),
        reference=lambda tools: tools.fetch(where={"id": 148_213}, fields=["total"])["content"][0]["total"],
    ),
    Question(
        id="orders-lighthouse",
        kind="needle",
        outputs=("orders",),
        text="One order has a note that mentions a lighthouse. What is the id of that order?",
        expected=lambda orders: next(order["id"] for order in _orders(orders) if "lighthouse" in order["note"]),
        reference=lambda tools: tools.search("lighthouse", fields=["id"])["matches"][0]["value"]["id"],
    ),
    Question(
        id="orders-failed-in-germany",
        kind="count",
        outputs=("orders",),
        text="How many orders have the status failed, a customer in the country DE, and a total above 200?",
        expected=lambda orders: sum(
            order["status"] == "failed" and order["customer"]["country"] == "DE" and order["total"] > 200
            for order in _orders(orders)
        ),
        reference=lambda tools: tools.fetch(
            where={"status": "failed", "customer.country": "DE", "total": {">": 200}}, fields=["id"], limit=1
        )["total"],
    ),
    Question(
        id="orders-top-customers",
        kind="group",
        outputs=("orders",),
        text="Which three customers have the highest sum of totals over all their orders? Answer with a list of the "
        "three names, the highest first.",
        expected=lambda orders: _top(_sum_by_customer(orders), 3),
        reference=lambda tools: [
            row[0]
            for row in tools.query("SELECT customer.name, sum(total) FROM items GROUP BY ALL ORDER BY 2 DESC LIMIT 3")
        ],
    ),
    Question(
        id="orders-average-in-spain",
        kind="group",
        outputs=("orders",),
        text="What is the average total of the orders of customers in the country ES, rounded to two digits?",
        expected=lambda orders: _mean(
            [order["total"] for order in _orders(orders) if order["customer"]["country"] == "ES"]
        ),
        reference=lambda tools: tools.query_value("SELECT avg(total) FROM items WHERE customer.country = 'ES'"),
    ),
    Question(
        id="orders-distinct-customers",
        kind="count",
        outputs=("orders",),
        text="How many different customer names are there in the orders?",
        expected=lambda orders: len({order["customer"]["name"] for order in _orders(orders)}),
        reference=lambda tools: tools.query_value("SELECT count(DISTINCT customer.name) FROM items"),
    ),
    Question(
        id="orders-with-coupon",
        kind="count",
        outputs=("orders",),
        text="Only some orders have a coupon. How many of them have the coupon WELCOME?",
        expected=lambda orders: sum(order.get("coupon") == "WELCOME" for order in _orders(orders)),
        reference=lambda tools: tools.fetch(where={"coupon": "WELCOME"}, fields=["id"], limit=1)["total"],
    ),
    Question(
        id="orders-best-selling-sku",
        kind="group",
        outputs=("orders",),
        text="Each order has lines with a sku and a quantity. Which sku was sold in the largest quantity altogether?",
        expected=lambda orders: _top(_units_by_sku(orders), 1)[0],
        reference=lambda tools: tools.query(
            "SELECT line.sku, sum(line.quantity) FROM (SELECT unnest(lines) AS line FROM items) "
            "GROUP BY ALL ORDER BY 2 DESC LIMIT 1"
        )[0][0],
    ),
    Question(
        id="orders-lost",
        kind="absent",
        outputs=("orders",),
        text='Is there any order with the status "lost"? Answer true or false.',
        expected=lambda orders: any(order["status"] == "lost" for order in _orders(orders)),
        reference=lambda tools: tools.fetch(where={"status": "lost"})["total"] > 0,
    ),
    Question(
        id="orders-currency",
        kind="lookup",
        outputs=("orders",),
        text="In which currency are the orders, and which program generated the list? Answer with a list of two texts.",
        expected=lambda orders: [orders["currency"], orders["generated_by"]],
        reference=lambda tools: [
            tools.fetch(path="/currency")["content"].strip('"'),
            tools.fetch(path="/generated_by")["content"].strip('"'),
        ],
    ),
    Question(
        id="orders-last",
        kind="page",
        outputs=("orders",),
        text="What is the id of the very last order in the list, and how many orders are there? "
        "Answer with a list of two numbers.",
        expected=lambda orders: [_orders(orders)[-1]["id"], len(_orders(orders))],
        reference=lambda tools: [
            (page := tools.fetch(offset=59_999, fields=["id"]))["content"][0]["id"],
            page["total"],
        ],
    ),
    Question(
        id="orders-from-41000",
        kind="page",
        outputs=("orders",),
        text="Counting from 0, what are the ids of the orders number 41000 to 41004? Answer with a list of numbers.",
        expected=lambda orders: [order["id"] for order in _orders(orders)[41_000:41_005]],
        reference=lambda tools: [item["id"] for item in tools.fetch(offset=41_000, limit=5, fields=["id"])["content"]],
    ),
]

EVENTS = [
    Question(
        id="events-by-id",
        kind="lookup",
        outputs=("events",),
        text="Which user caused the event with the event_id e17342?",
        expected=lambda events: next(event["user"] for event in events if event["event_id"] == "e17342"),
        reference=lambda tools: tools.fetch(where={"event_id": "e17342"})["content"][0]["user"],
    ),
    Question(
        id="events-purchases",
        kind="count",
        outputs=("events",),
        text="How many purchases have an amount of 300 or more?",
        expected=lambda events: sum(event.get("amount", 0) >= 300 for event in events),
        reference=lambda tools: tools.fetch(where={"amount": {">=": 300}}, fields=["event_id"], limit=1)["total"],
    ),
    Question(
        id="events-revenue-by-agent",
        kind="group",
        outputs=("events",),
        text="Which agent has the largest sum of purchase amounts? Answer with the agent's name.",
        expected=lambda events: max(
            ("Firefox", "Chrome", "Safari"),
            key=lambda agent: sum(event.get("amount", 0) for event in events if event["agent"] == agent),
        ),
        reference=lambda tools: tools.query(
            "SELECT agent, sum(amount) FROM items GROUP BY ALL ORDER BY 2 DESC LIMIT 1"
        )[0][0],
    ),
    Question(
        id="events-users",
        kind="count",
        outputs=("events",),
        text="How many different users logged in (events of type login)?",
        expected=lambda events: len({event["user"] for event in events if event["type"] == "login"}),
        reference=lambda tools: tools.query_value("SELECT count(DISTINCT \"user\") FROM items WHERE type = 'login'"),
    ),
    Question(
        id="events-slowest",
        kind="group",
        outputs=("events",),
        text="For each type of event, what is the highest value of ms? Answer with an object from type to number.",
        expected=lambda events: {
            kind: max(event["ms"] for event in events if event["type"] == kind)
            for kind in {event["type"] for event in events}
        },
        reference=lambda tools: dict(tools.query("SELECT type, max(ms) FROM items GROUP BY ALL")),
    ),
    Question(
        id="events-edge",
        kind="absent",
        outputs=("events",),
        text='Is there an event whose agent is "Edge"? Answer true or false.',
        expected=lambda events: any(event["agent"] == "Edge" for event in events),
        reference=lambda tools: tools.fetch(where={"agent": "Edge"})["total"] > 0,
    ),
]


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


SALES = [
    Question(
        id="sales-of-one",
        kind="lookup",
        outputs=("sales",),
        text="Which product was sold in the sale number 12345 (column sale)?",
        expected=lambda text: next(row["product"] for row in _rows(text) if row["sale"] == "12345"),
        reference=lambda tools: tools.fetch(where={"sale": 12345})["content"][0]["product"],
    ),
    Question(
        id="sales-large-in-the-west",
        kind="count",
        outputs=("sales",),
        text="How many sales in the region West have more than 30 units?",
        expected=lambda text: sum(row["region"] == "West" and int(row["units"]) > 30 for row in _rows(text)),
        reference=lambda tools: tools.fetch(where={"region": "West", "units": {">": 30}}, fields=["sale"], limit=1)[
            "total"
        ],
    ),
    Question(
        id="sales-units-by-region",
        kind="group",
        outputs=("sales",),
        text="How many units were sold in each region? Answer with an object from region to number.",
        expected=lambda text: {
            region: sum(int(row["units"]) for row in _rows(text) if row["region"] == region)
            for region in ("North", "South", "East", "West")
        },
        reference=lambda tools: dict(tools.query("SELECT region, sum(units) FROM items GROUP BY ALL")),
    ),
    Question(
        id="sales-oak-desks",
        kind="count",
        outputs=("sales",),
        text="In how many sales is the product the oak desk?",
        expected=lambda text: sum(row["product"] == "Desk, oak" for row in _rows(text)),
        reference=lambda tools: tools.fetch(where={"product": "Desk, oak"}, fields=["sale"], limit=1)["total"],
    ),
    Question(
        id="sales-revenue",
        kind="group",
        outputs=("sales",),
        text="Which month (1 to 12, of column day) has the highest revenue, that is the sum of units times unit_price? "
        "Answer with the number of the month.",
        expected=lambda text: max(
            range(1, 13),
            key=lambda month: sum(
                int(row["units"]) * float(row["unit_price"]) for row in _rows(text) if int(row["day"][5:7]) == month
            ),
        ),
        reference=lambda tools: tools.query(
            "SELECT CAST(substr(CAST(day AS VARCHAR), 6, 2) AS INTEGER), sum(units * unit_price) FROM items "
            "GROUP BY ALL ORDER BY 2 DESC LIMIT 1"
        )[0][0],
    ),
    Question(
        id="sales-last",
        kind="page",
        outputs=("sales",),
        text="On which day was the last sale in the file? Answer with the text of column day.",
        expected=lambda text: _rows(text)[-1]["day"],
        reference=lambda tools: tools.fetch(offset=19_999)["content"][0]["day"],
    ),
]

READINGS = [
    Question(
        id="readings-exact-serial",
        kind="lookup",
        outputs=("readings",),
        text="What is the exact serial of the reading number 8112 (counting from 0)? Answer with all digits.",
        expected=lambda document: document["readings"][8112]["serial"],
        reference=lambda tools: tools.fetch(offset=8112, limit=1)["content"][0]["serial"],
    ),
    Question(
        id="readings-empty",
        kind="count",
        outputs=("readings",),
        text="In how many readings is the value null?",
        expected=lambda document: sum(reading["value"] is None for reading in document["readings"]),
        reference=lambda tools: tools.fetch(where={"value": None}, fields=["sensor"], limit=1)["total"],
    ),
    Question(
        id="readings-out-of-range",
        kind="count",
        outputs=("readings",),
        text='In how many readings is the value the text "out of range"?',
        expected=lambda document: sum(reading["value"] == "out of range" for reading in document["readings"]),
        reference=lambda tools: tools.fetch(where={"value": "out of range"}, fields=["sensor"], limit=1)["total"],
    ),
    Question(
        id="readings-tagged",
        kind="count",
        outputs=("readings",),
        text="How many readings have the tag calibrated?",
        expected=lambda document: sum("calibrated" in reading.get("tags", ()) for reading in document["readings"]),
        reference=lambda tools: tools.fetch(where={"tags": "calibrated"}, fields=["sensor"], limit=1)["total"],
    ),
    Question(
        id="readings-highest-number",
        kind="group",
        outputs=("readings",),
        text="Some values are numbers, others are not. What is the highest number?",
        expected=lambda document: max(
            reading["value"] for reading in document["readings"] if isinstance(reading["value"], float | int)
        ),
        reference=lambda tools: tools.query_value("SELECT max(TRY_CAST(value AS DOUBLE)) FROM items"),
    ),
    Question(
        id="readings-rooftop",
        kind="needle",
        outputs=("readings",),
        text='One reading has a comment about the café "Zum Löwen". Which sensor is it from?',
        expected=lambda document: next(
            reading["sensor"] for reading in document["readings"] if "Löwen" in reading.get("comment", "")
        ),
        reference=lambda tools: tools.search('"Zum Löwen"', mode="values", fields=["sensor"])["matches"][0]["value"][
            "sensor"
        ],
    ),
]


def _invoiced(invoices: Any) -> "collections.Counter[int]":
    cents: collections.Counter[int] = collections.Counter()
    for invoice in invoices["invoices"]:
        cents[invoice["customer_id"]] += round(invoice["amount"] * 100)
    return cents


def _sum_gold(customers: Any, cents: "collections.Counter[int]") -> int:
    return sum(cents[customer["customer_id"]] for customer in customers if customer["tier"] == "gold")


JOINS = [
    Question(
        id="join-gold",
        kind="join",
        outputs=("customers", "invoices"),
        text="What is the sum of the amounts of all invoices to customers of the tier gold, rounded to two digits?",
        expected=lambda customers, invoices: _sum_gold(customers, _invoiced(invoices)) / 100,
        reference=lambda tools: tools.query_value(
            f"SELECT sum(amount) FROM {tools.handles['invoices']} JOIN {tools.handles['customers']} "
            "USING (customer_id) WHERE tier = 'gold'",
            "invoices",
        ),
    ),
    Question(
        id="join-without-invoice",
        kind="join",
        outputs=("customers", "invoices"),
        text="How many customers have no invoice?",
        expected=lambda customers, invoices: len(
            {customer["customer_id"] for customer in customers} - _invoiced(invoices).keys()
        ),
        reference=lambda tools: tools.query_value(
            "SELECT count(*) FROM items WHERE customer_id NOT IN "
            f"(SELECT customer_id FROM {tools.handles['invoices']})",
            "customers",
        ),
    ),
    Question(
        id="join-top-customer",
        kind="join",
        outputs=("customers", "invoices"),
        text="What is the name of the customer with the highest sum of unpaid invoices?",
        expected=lambda customers, invoices: customers[
            _invoiced({"invoices": [invoice for invoice in invoices["invoices"] if not invoice["paid"]]}).most_common(
                1
            )[0][0]
        ]["name"],
        reference=lambda tools: tools.query(
            f"SELECT name, sum(amount) FROM {tools.handles['invoices']} JOIN items USING (customer_id) "
            "WHERE NOT paid GROUP BY ALL ORDER BY 2 DESC LIMIT 1",
            "customers",
        )[0][0],
    ),
    Question(
        id="join-countries",
        kind="join",
        outputs=("customers", "invoices"),
        text="To customers of which country does the largest number of invoices go?",
        expected=lambda customers, invoices: collections.Counter(
            customers[invoice["customer_id"]]["country"] for invoice in invoices["invoices"]
        ).most_common(1)[0][0],
        reference=lambda tools: tools.query(
            f"SELECT country, count(*) FROM items JOIN {tools.handles['invoices']} USING (customer_id) "
            "GROUP BY ALL ORDER BY 2 DESC LIMIT 1",
            "customers",
        )[0][0],
    ),
]

RECORD_QUESTIONS = [*ORDERS, *EVENTS, *SALES, *READINGS, *JOINS]
