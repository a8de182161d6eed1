"""A run of benchmarks on a payload, by groups."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from forebay.bench.contest import Benchmark, Result, run_benchmark
from forebay.bench.filtering import list_filters
from forebay.bench.indexing import list_indexings
from forebay.bench.limiting import list_limits
from forebay.bench.paging import list_pagings
from forebay.bench.payloads import Payload
from forebay.bench.peers import Peer
from forebay.bench.querying import list_queries
from forebay.bench.searching import list_searches
from forebay.bench.truncating import list_truncations
from forebay.bench.workspace import NotApplicable, Workspace, get_available_bytes
from forebay.errors import ForebayError

__all__ = ["GROUPS", "Run", "run_groups"]

GROUPS: dict[str, Callable[[Workspace], Iterator[Benchmark]]] = {
    "truncate": list_truncations,
    "index": list_indexings,
    "page": list_pagings,
    "search": list_searches,
    "where": list_filters,
    "query": list_queries,
    "limit": list_limits,
}
"""Functions that yield the benchmarks of a group, or raise `NotApplicable`."""

Progress = Callable[[int, int, str], None]
"""Gets the number of benchmarks that are done, their total, and what runs."""


class Run(NamedTuple):
    """The results of a run, and the groups that were left out with the reasons."""

    results: list[Result]
    left_out: list[tuple[str, str]]


def run_groups(
    payload: Payload,
    peers: Mapping[str, Peer],
    groups: Sequence[str],
    seconds: float,
    *,
    on_progress: Progress = lambda _done, _total, _text: None,
) -> Run:
    """Run the benchmarks of groups. The seconds are shared among them; the checks of results come on top."""
    if payload.nature == "empty":
        return Run([], [(group, "the payload is empty") for group in groups])
    left_out: list[tuple[str, str]] = []
    results: list[Result] = []
    with Workspace(payload, peers) as work:
        benchmarks: list[Benchmark] = []
        for group in groups:
            on_progress(0, 0, f"prepare {group}")
            benchmarks += _list_group(work, group, left_out)
        for done, benchmark in enumerate(benchmarks):

            def show(who: str, done: int = done, benchmark: Benchmark = benchmark) -> None:
                on_progress(done, len(benchmarks), f"{benchmark.group}, {who}")

            share = seconds / len(benchmarks)
            try:
                results.append(run_benchmark(benchmark, share, available_bytes=get_available_bytes(), on_step=show))
            except ForebayError as error:
                left_out.append((benchmark.group, f"{benchmark.name}: forebay fails: {error}"))
    return Run(results, left_out)


def _list_group(work: Workspace, group: str, left_out: list[tuple[str, str]]) -> Iterable[Benchmark]:
    try:
        yield from GROUPS[group](work)
    except NotApplicable as reason:
        left_out.append((group, str(reason)))
