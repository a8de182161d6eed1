"""Search of a payload, with needles that are chosen from it, beside `bytes.find` and `re`."""

import collections
import itertools
import random
import re
from collections.abc import Callable, Iterator

import forebay
from forebay.bench.contest import FOREBAY, Benchmark, Contender
from forebay.bench.workspace import Workspace

__all__ = ["choose_words", "list_searches"]

_LIMIT = 100_000
"""Maximum number of matches to find, of which both sides return the positions."""

_WORD_PATTERN = re.compile(rb"[A-Za-z_]{5,24}")
_SAMPLES = 200
_SAMPLE_BYTES = 4096
_CANDIDATES = 5
_ABSENT = "qzx_not_in_here"
_EXPRESSIONS = {
    "a date": r"20\d\d-[01]\d-[0-3]\d",
    "an e-mail address": r"[\w.+-]+@[\w-]+\.[a-z]{2,}",
    "alternatives": r"error|fail(?:ed|ure)|timeout|refused",
}

Spans = list[tuple[int, int]]


def list_searches(work: Workspace) -> Iterator[Benchmark]:
    """Yield the benchmarks of search. They apply to every payload."""
    data = work.payload.data
    common, rare = choose_words(data)
    absent = _ABSENT if _ABSENT.encode() not in data else _ABSENT * 3
    for kind, needle in (("frequent", common), ("rare", rare), ("absent", absent)):
        if needle:
            yield _make_benchmark(data, f"{kind} word {needle!r}", needle, is_regex=False)
    for kind, pattern in _EXPRESSIONS.items():
        yield _make_benchmark(data, f"expression: {kind}", pattern, is_regex=True)


def choose_words(data: bytes) -> tuple[str, str]:
    """Return a frequent and a rare word of a payload: of those in samples from everywhere, the same ones every time."""
    rng = random.Random(len(data))  # noqa: S311 - it has to be reproducible, not secret
    starts = sorted(rng.randrange(max(1, len(data) - _SAMPLE_BYTES)) for _ in range(_SAMPLES))
    counts: collections.Counter[bytes] = collections.Counter()
    for start in starts:
        # The first and the last word of a sample may be cut.
        counts.update(_WORD_PATTERN.findall(data[start : start + _SAMPLE_BYTES])[1:-1])
    if not counts:
        return "", ""
    ordered = sorted(counts, key=lambda word: (counts[word], word))
    # A word that is rare in the samples may be part of a frequent one.
    rare = min(ordered[:_CANDIDATES], key=data.count)
    common = ordered[-1].decode()
    return common, rare.decode() if rare.decode() != common else ""


def _make_benchmark(data: bytes, name: str, pattern: str, *, is_regex: bool) -> Benchmark:
    def search() -> Spans:
        found = forebay.search(data, pattern, regex=is_regex, limit=_LIMIT, context=0)
        return [(match.start, match.end) for match in found.matches]

    peer = Contender("re", find_expression(data, pattern)) if is_regex else Contender("bytes.find", find(data, pattern))
    return Benchmark(
        "search",
        name,
        len(data),
        Contender(FOREBAY, search, describe=lambda spans: _describe(len(spans))),
        [peer],
        note=f"the positions of up to {_LIMIT:,} matches; forebay also counts lines",
    )


def _describe(count: int) -> str:
    return f"{count:,} match{'' if count == 1 else 'es'}"


def find(data: bytes, needle: str) -> Callable[[], Spans]:
    """Return a function that finds a literal by `bytes.find`."""
    sought = needle.encode()

    def find_all() -> Spans:
        spans: Spans = []
        start = data.find(sought)
        while start >= 0 and len(spans) < _LIMIT:
            spans.append((start, start + len(sought)))
            start = data.find(sought, start + len(sought))
        return spans

    return find_all


def find_expression(data: bytes, pattern: str) -> Callable[[], Spans]:
    """Return a function that finds an expression by `re`."""
    compiled = re.compile(pattern.encode(), re.MULTILINE)
    return lambda: [match.span() for match in itertools.islice(compiled.finditer(data), _LIMIT)]
