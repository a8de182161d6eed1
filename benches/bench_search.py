"""Search a log of 100 MB: literals against `bytes.find`, expressions against `re` over bytes.

Both sides find every match and must agree before either is timed. forebay also counts lines and cuts contexts out;
the peers only find.
"""

import re
from collections.abc import Callable
from functools import cache
from itertools import islice

import corpus
import forebay
import pytest
from conftest import Measure
from forebay._core import count_matches

LOG = ("log", "100 MB")
LIMIT = 100_000

NEEDLES = {
    "rare": "segmentation fault",
    "absent": "kernel panic",
    "absent, common first byte": "e_not_in_here",
    "absent, common bytes": "stationer",
    "long": "upstream prematurely closed connection while reading response header from upstream",
    "multibyte": "接続がリセット",
    "multibyte, absent": "Überlauf",
    "short": "QX",
    "word": "FATAL",
    "identifier": "user_id=990017",
}

PATTERNS = {
    "two words": r"\bfailed\b.{0,40}timeout",
    "address": r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b",
    "alternation": r"ERROR|FATAL",
    "suffix": r"[a-z]+ing\b",
    "any case": r"(?i)connection reset",
    "timestamp": r"\d{4}-\d\d-\d\dT0[0-2]:5\d:07",
    "identifier": r"user_id=\d{6,}",
    "quoted": r'"[^"]*timeout[^"]*"',
    "line end": r"\d+ms$",
    "line start": r"^.{0,60}WARN",
}

Spans = list[tuple[int, int]]
Find = Callable[[bytes], Spans]


def forebay_search(pattern: str, *, regex: bool) -> Find:
    def find(data: bytes) -> Spans:
        found = forebay.search(data, pattern, regex=regex, limit=LIMIT, context=0)
        return [(match.start, match.end) for match in found.matches]

    return find


def bytes_find(needle: str) -> Find:
    sought = needle.encode()

    def find(data: bytes) -> Spans:
        spans: Spans = []
        at = data.find(sought)
        while at >= 0 and len(spans) < LIMIT:
            spans.append((at, at + len(sought)))
            at = data.find(sought, at + len(sought))
        return spans

    return find


def python_re(pattern: str) -> Find:
    compiled = re.compile(pattern.encode(), re.MULTILINE)
    return lambda data: [match.span() for match in islice(compiled.finditer(data), LIMIT)]


LITERALS = {
    name: {"forebay": forebay_search(text, regex=False), "bytes.find": bytes_find(text)}
    for name, text in NEEDLES.items()
}
EXPRESSIONS = {
    name: {"forebay": forebay_search(text, regex=True), "re": python_re(text)} for name, text in PATTERNS.items()
}


@cache
def sides_agree(sides: tuple[Find, Find]) -> bool:
    one, other = (find(corpus.load(*LOG)) for find in sides)
    return one == other


def run(measure: Measure, row: str, name: str, who: str, sides: dict[str, Find]) -> None:
    one, other = sides.values()
    assert sides_agree((one, other))
    data = corpus.load(*LOG)
    measure(row, f"{' '.join(LOG)}: {name}", who, len(data), sides[who], data)


@pytest.mark.parametrize("name", LITERALS)
@pytest.mark.parametrize("who", ["forebay", "bytes.find"])
def bench_literal(measure: Measure, name: str, who: str) -> None:
    run(measure, "search, literal", name, who, LITERALS[name])


@pytest.mark.parametrize("who", ["forebay", "bytes.find"])
def bench_literals(measure: Measure, who: str) -> None:
    """All literals, one after the other: the cost of a mix of needles."""
    data = corpus.load(*LOG)
    finds = [sides[who] for sides in LITERALS.values()]
    measure("search, ten literals", " ".join(LOG), who, len(data) * len(finds), lambda: [find(data) for find in finds])


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize("who", ["forebay", "re"])
def bench_expression(measure: Measure, name: str, who: str) -> None:
    run(measure, "search, expression", name, who, EXPRESSIONS[name])


COUNTS: dict[str, dict[str, Callable[[bytes], int]]] = {
    "literal": {
        "forebay": lambda data: count_matches(data, "user_id=").matches,
        "bytes.count": lambda data: data.count(b"user_id="),
    },
    "expression": {
        "forebay": lambda data: count_matches(data, PATTERNS["identifier"], regex=True).matches,
        "re": lambda data: sum(1 for _ in re.finditer(PATTERNS["identifier"].encode(), data)),
    },
}


@pytest.mark.parametrize(("name", "who"), [(name, who) for name, sides in COUNTS.items() for who in sides])
def bench_count(measure: Measure, name: str, who: str) -> None:
    data = corpus.load(*LOG)
    assert len({count(data) for count in COUNTS[name].values()}) == 1
    measure("search, count", f"{' '.join(LOG)}: {name}", who, len(data), COUNTS[name][who], data)
