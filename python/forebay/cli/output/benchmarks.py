"""`forebay bench`: the times of each benchmark as bars, and what was left out."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forebay.cli.output.charts import format_bar
from forebay.cli.output.streams import handle_output_errors, print_json, print_note, print_rich
from forebay.cli.output.tables import Column, print_columns
from forebay.cli.output.terminal import get_console, is_ascii_only, replace_controls, to_plain_text, wants_table
from forebay.cli.output.units import count_noun, format_size

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["print_benchmarks"]

_BAR_WIDTH = 24
_NARROW_BAR_WIDTH = 12
_WIDE_COLUMNS = 100
_STYLES = {"better": "bold green", "worse": "bold yellow", "same": "dim"}
_MARKS = {"better": "+", "worse": "-", "same": "="}


def print_benchmarks(report: Mapping[str, Any], *, is_json: bool = False) -> None:
    """Print a report of benchmarks as JSON, or as a table with a bar for each time."""
    if not wants_table(is_json):
        print_json(report)
        return
    _print_head(report)
    if report["benchmarks"]:
        print_rich("")
        _print_times(report["benchmarks"])
        print_note(
            "Bars show the time of the fastest call; tenfold time adds the same length everywhere. The ratio says how "
            "many times as long as forebay a peer takes.",
            wraps=True,
        )
    if report.get("changes") is not None:
        print_rich("")
        _print_changes(report["changes"])
    for entry in report["left_out"]:
        print_note(f"{entry['group']} does not apply: {entry['reason']}", wraps=True)
    for entry in report["missing"]:
        print_note(f"{entry['name']} is not installed: {entry['install']}", wraps=True)


def _print_head(report: Mapping[str, Any]) -> None:
    from rich.text import Text

    payload, machine = report["payload"], report["machine"]
    parts = [format_size(payload["size_bytes"]), payload["nature"]]
    if payload["items"] is not None:
        place = f" at {payload['items_path']}" if payload["items_path"] else ""
        parts.append(f"{count_noun(payload['items'], 'item')}{place}")
    elif payload["lines"] is not None:
        parts.append(count_noun(payload["lines"], "line"))
    parts.append(f"sha256 {payload['sha256'][:12]}")
    with handle_output_errors():
        head = Text.assemble((replace_controls(payload["name"]), "bold"), replace_controls(f"  {', '.join(parts)}"))
        get_console().print(head, highlight=False)
        if payload["json_error"]:
            error = to_plain_text(f"measured as text: {payload['json_error']}")
            get_console().print(error, style="yellow", highlight=False)
    busy = (
        f"; busy with other work (load {machine['load']}), so times are longer than alone" if machine["is_busy"] else ""
    )
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    print_note(f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}{busy}", wraps=True)
    print_note(f"forebay {report['forebay']}, Python {machine['python']}, {versions}", wraps=True)


def _print_times(benchmarks: Sequence[Mapping[str, Any]]) -> None:
    heads: list[str | None] = []
    rows: list[tuple[str, Mapping[str, Any]]] = []
    bars: list[Text | str] = []
    for benchmark in benchmarks:
        peers = [(peer["name"], peer) for peer in benchmark["peers"]]
        # Those that were not measured are last.
        peers.sort(key=lambda side: side[1]["best_seconds"] or math.inf)
        sides = [("forebay", benchmark["forebay"]), *peers]
        times = [side["best_seconds"] for _, side in sides if side["best_seconds"]]
        rows += sides
        heads += [f"{benchmark['group']}: {benchmark['name']}", *([None] * len(peers))]
        bars += [_make_bar(who, side["best_seconds"], min(times), max(times)) for who, side in sides]
    medians = [_format_time(side["median_seconds"]) for _, side in rows]
    print_columns(
        [
            Column("", [_style_name(who) for who, _ in rows]),
            Column("", bars, rank=3),
            Column("best", [_format_time(side["best_seconds"]) for _, side in rows], is_numeric=True),
            Column("median", medians, is_numeric=True, rank=5),
            Column("", [_format_speed(side["bytes_per_second"]) for _, side in rows], is_numeric=True, rank=4),
            Column("", [_make_ratio(who, side) for who, side in rows], is_numeric=True),
            Column("", [_make_note(side) for _, side in rows], min_width=16, rank=1),
        ],
        row_heads=heads,
    )


def _style_name(who: str) -> "Text":
    from rich.text import Text

    return Text(f"  {who}", style="bold cyan" if who == "forebay" else "")


def _make_bar(who: str, seconds: float | None, fastest: float, slowest: float) -> "Text | str":
    """Return a bar on a logarithmic scale, from a tenth of the fastest time of a benchmark to the slowest one."""
    from rich.text import Text

    if not seconds:
        return ""
    span = math.log10(slowest / fastest) + 1
    share = (math.log10(seconds / fastest) + 1) / span
    width = _BAR_WIDTH if get_console().width >= _WIDE_COLUMNS else _NARROW_BAR_WIDTH
    style = {"forebay": "cyan", "memcpy": "dim"}.get(who, "")
    return Text(format_bar(share, width, is_ascii=is_ascii_only()), style=style)


def _format_time(seconds: float | None) -> str:
    from forebay.bench.units import format_duration

    return "" if seconds is None else _to_terminal(format_duration(seconds))


def _to_terminal(text: str) -> str:
    """Return a time or ratio in ASCII, if the terminal shows nothing else."""
    return text.replace("µ", "u").replace("×", "x") if is_ascii_only() else text


def _format_speed(bytes_per_second: float | None) -> str:
    if bytes_per_second is None:
        return ""
    return f"{bytes_per_second / 1e9:.3g} GB/s" if bytes_per_second >= 1e9 else f"{bytes_per_second / 1e6:.3g} MB/s"


def _make_ratio(who: str, side: Mapping[str, Any]) -> "Text | str":
    from rich.text import Text

    from forebay.bench.units import format_ratio

    if who == "forebay" or side["ratio"] is None:
        return ""
    style = "dim" if who == "memcpy" else "green" if side["ratio"] >= 1 else "yellow"
    return Text(_to_terminal(format_ratio(side["ratio"])), style=style)


def _make_note(side: Mapping[str, Any]) -> "Text":
    text = to_plain_text(side["problem"] or side["result"] or "")
    text.stylize("yellow" if side["problem"] else "dim")
    return text


def _print_changes(changes: Sequence[Mapping[str, Any]]) -> None:
    from rich.text import Text

    if not changes:
        print_note("no benchmark is in both reports")
        return
    print_columns(
        [
            Column("", [Text(_MARKS[row["verdict"]], style=_STYLES[row["verdict"]]) for row in changes]),
            Column("compared", [f"{row['group']}: {row['name']}" for row in changes], min_width=16),
            Column("before", [_format_time(row["old_seconds"]) for row in changes], is_numeric=True),
            Column("now", [_format_time(row["new_seconds"]) for row in changes], is_numeric=True),
            Column("speed", [f"{row['speed']:.2f}" for row in changes], is_numeric=True),
            Column("", [Text(row["verdict"], style=_STYLES[row["verdict"]]) for row in changes]),
            Column("noise", [f"{row['noise']:.0%}" for row in changes], is_numeric=True, rank=1),
        ]
    )
