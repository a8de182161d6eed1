"""Questions about a map of records, a deep document and a log."""

import re
from typing import Any

from evals.questions import Question


def _operations(spec: Any) -> list[dict[str, Any]]:
    return [operation for methods in spec["paths"].values() for operation in methods.values()]


PLUGINS = [
    Question(
        id="plugins-version",
        kind="lookup",
        outputs=("plugins",),
        text="What is the version of the plugin tiny-sync7?",
        expected=lambda registry: registry["plugins"]["tiny-sync7"]["version"],
        reference=lambda tools: tools.fetch(path="/plugins/tiny-sync7/version")["content"].strip('"'),
    ),
    Question(
        id="plugins-mit",
        kind="count",
        outputs=("plugins",),
        text="How many plugins have the license MIT and are not deprecated?",
        expected=lambda registry: sum(
            plugin["license"] == "MIT" and not plugin["deprecated"] for plugin in registry["plugins"].values()
        ),
        reference=lambda tools: tools.fetch(where={"license": "MIT", "deprecated": False}, fields=["stars"], limit=1)[
            "total"
        ],
    ),
    Question(
        id="plugins-most-stars",
        kind="group",
        outputs=("plugins",),
        text="Which plugin has the most stars? Answer with its name.",
        expected=lambda registry: max(registry["plugins"], key=lambda name: registry["plugins"][name]["stars"]),
        reference=lambda tools: tools.query_value("SELECT _key FROM items ORDER BY stars DESC LIMIT 1"),
    ),
    Question(
        id="plugins-on-core",
        kind="count",
        outputs=("plugins",),
        text="How many plugins have core among their dependencies?",
        expected=lambda registry: sum("core" in plugin["dependencies"] for plugin in registry["plugins"].values()),
        reference=lambda tools: tools.fetch(where={"dependencies": {"contains": "core"}}, fields=["stars"], limit=1)[
            "total"
        ],
    ),
    Question(
        id="plugins-quaternions",
        kind="needle",
        outputs=("plugins",),
        text="The description of one plugin mentions quaternions. What is the plugin's name?",
        expected=lambda registry: next(
            name for name, plugin in registry["plugins"].items() if "quaternion" in plugin["description"]
        ),
        reference=lambda tools: tools.search("quaternion", fields=["stars"], limit=1)["matches"][0]["value"]["_key"],
    ),
    Question(
        id="plugins-absent",
        kind="absent",
        outputs=("plugins",),
        text="Is there a plugin with the name mega-view3? Answer true or false.",
        expected=lambda registry: "mega-view3" in registry["plugins"],
        reference=lambda tools: tools.fetch(where={"_key": "mega-view3"})["total"] > 0,
    ),
    Question(
        id="plugins-number",
        kind="page",
        outputs=("plugins",),
        text="How many plugins are there, and what are the names of the last two? "
        "Answer with a list of the number and the two names, in the order of the document.",
        expected=lambda registry: [len(registry["plugins"]), *list(registry["plugins"])[-2:]],
        reference=lambda tools: [
            (page := tools.fetch(offset=652, fields=["stars"]))["total"],
            *(item["_key"] for item in page["content"]),
        ],
    ),
    Question(
        id="plugins-mirrors",
        kind="lookup",
        outputs=("plugins",),
        text="Which mirrors does the registry have? Answer with a list.",
        expected=lambda registry: registry["mirrors"],
        reference=lambda tools: tools.fetch(path="/mirrors")["content"],
    ),
]

SPEC = [
    Question(
        id="spec-default",
        kind="lookup",
        outputs=("spec",),
        text="What is the default of the query parameter timeout of the operation get_v2_invoices?",
        expected=lambda spec: next(
            parameter["schema"]["default"]
            for parameter in spec["paths"]["/v2/invoices"]["get"]["parameters"]
            if parameter["name"] == "timeout"
        ),
        reference=lambda tools: next(
            parameter["schema"]["default"]
            for parameter in tools.fetch(path="/paths/~1v2~1invoices/get/parameters")["content"]
            if parameter["name"] == "timeout"
        ),
    ),
    Question(
        id="spec-license",
        kind="lookup",
        outputs=("spec",),
        text="Under which license is the API (info.license.name)?",
        expected=lambda spec: spec["info"]["license"]["name"],
        reference=lambda tools: tools.fetch(path="/info/license/name")["content"].strip('"'),
    ),
    Question(
        id="spec-deprecated",
        kind="count",
        outputs=("spec",),
        text="How many operations are deprecated?",
        expected=lambda spec: sum(operation["deprecated"] for operation in _operations(spec)),
        reference=lambda tools: tools.search(r'"deprecated":\s*true', regex=True, count_only=True)["total_matches"],
    ),
    Question(
        id="spec-paths",
        kind="count",
        outputs=("spec",),
        text="How many paths does the API have, and how many schemas in components? Answer with a list of two numbers.",
        expected=lambda spec: [len(spec["paths"]), len(spec["components"]["schemas"])],
        reference=lambda tools: [
            tools.fetch(path="/paths", format="items", limit=1, fields=["get.operationId"])["total"],
            tools.fetch(path="/components/schemas", format="items", limit=1, fields=["type"])["total"],
        ],
    ),
    Question(
        id="spec-max-length",
        kind="lookup",
        outputs=("spec",),
        text="What is the maxLength of the property color in the schema HooksSummary?",
        expected=lambda spec: spec["components"]["schemas"]["HooksSummary"]["properties"]["color"]["maxLength"],
        reference=lambda tools: int(
            tools.fetch(path="/components/schemas/HooksSummary/properties/color/maxLength")["content"]
        ),
    ),
    Question(
        id="spec-oauth",
        kind="absent",
        outputs=("spec",),
        text="Does the document mention oauth2 anywhere, in any case of letters? Answer true or false.",
        expected=lambda spec: "oauth2" in str(spec).lower(),
        reference=lambda tools: tools.search("oauth2", ignore_case=True, count_only=True)["total_matches"] > 0,
    ),
]


def _lines(log: str) -> list[str]:
    return log.splitlines()


LOG = [
    Question(
        id="log-errors",
        kind="count",
        outputs=("log",),
        text="How many lines have the level ERROR?",
        expected=lambda log: sum(" ERROR " in line for line in _lines(log)),
        reference=lambda tools: tools.search(" ERROR ", count_only=True)["total_matches"],
    ),
    Question(
        id="log-panic",
        kind="needle",
        outputs=("log",),
        text="There was a panic. Which account does that line name?",
        expected=lambda log: re.findall(r"panic: .*account (\S+)", log)[0],
        reference=lambda tools: tools.search("panic", context=120)["matches"][0]["context"].partition("account ")[2][
            :7
        ],
    ),
    Question(
        id="log-line",
        kind="page",
        outputs=("log",),
        text="Counting lines from 0, what is the time at the start of line 12345? Answer with the text before the "
        "first space.",
        expected=lambda log: _lines(log)[12_345].split()[0],
        reference=lambda tools: tools.fetch(format="lines", offset=12_345, limit=1)["content"].split()[0],
    ),
    Question(
        id="log-billing-timeouts",
        kind="count",
        outputs=("log",),
        text="How many ERROR lines of the service billing end with timeout?",
        expected=lambda log: sum(bool(re.search(r"ERROR \[billing\].*timeout$", line)) for line in _lines(log)),
        reference=lambda tools: tools.search(r"ERROR \[billing\].*timeout", regex=True, count_only=True)[
            "total_matches"
        ],
    ),
    Question(
        id="log-last",
        kind="page",
        outputs=("log",),
        text="How many lines does the log have, and what is the level in the last one? "
        "Answer with a list of a number and a text.",
        expected=lambda log: [len(_lines(log)), _lines(log)[-1].split()[1]],
        reference=lambda tools: [
            (page := tools.fetch(format="lines", offset=39_999))["total"],
            page["content"].split()[1],
        ],
    ),
    Question(
        id="log-first-slow",
        kind="needle",
        outputs=("log",),
        text="Which service wrote the first line about a slow query on shard 7?",
        expected=lambda log: re.findall(r"\[(\w+)\] slow query on shard 7:", log)[0],
        reference=lambda tools: re.findall(
            r"\[(\w+)\] slow", tools.search("slow query on shard 7:", limit=1, context=40)["matches"][0]["context"]
        )[0],
    ),
    Question(
        id="log-disk",
        kind="absent",
        outputs=("log",),
        text='Does any line contain "disk full"? Answer true or false.',
        expected=lambda log: "disk full" in log,
        reference=lambda tools: tools.search("disk full", count_only=True)["total_matches"] > 0,
    ),
]

DOCUMENT_QUESTIONS = [*PLUGINS, *SPEC, *LOG]
