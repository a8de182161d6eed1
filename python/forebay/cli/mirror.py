"""`forebay mirror`: the payloads of one store in another."""

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from forebay.cli import output
from forebay.cli.commands import open_store_at
from forebay.cli.errors import get_exit_code, report_error
from forebay.errors import ForebayError

if TYPE_CHECKING:
    from forebay.store.mirror import MirrorReport

__all__ = ["mirror"]


def mirror(args: Namespace) -> None:
    """Copy the payloads of one store to another, with their handles.

    FROM and TO are addresses as for --store. Every payload that has not expired is
    copied byte for byte, with its principal and the times of creation and expiry.
    The journal, the counts of calls and what queries keep beside payloads are not
    copied.

    What TO has already is skipped, so a command that was interrupted can be
    repeated. A payload that is damaged, or cannot be in TO, is reported on standard
    error and not copied; the exit code is then that of the error.
    """
    # Imported here, so that `--help` starts quickly.
    import dataclasses

    from forebay.store.mirror import MirrorReport

    quotas = {name: value for name, value in vars(args).items() if name.endswith("quota_bytes")}
    report = MirrorReport()
    exit_code = 0
    with (
        open_store_at(args.source, creates=False) as source,
        open_store_at(args.target, creates=True, **quotas) as target,
        output.show_mirror_progress() as show,
    ):

        def note_progress(current: "MirrorReport") -> None:
            nonlocal report
            report = current
            if show is not None:
                show(current)

        def note_failure(handle: str, error: ForebayError) -> None:
            nonlocal exit_code
            exit_code = exit_code or get_exit_code(error)
            report_error(type(error)(f"{handle} was not copied: {error}"))

        try:
            source.mirror_to(target, progress=note_progress, on_failure=note_failure)
        except ForebayError as error:
            exit_code = get_exit_code(error)
            report_error(type(error)(f"{error}; what was copied stays, and the same command continues"))
    output.print_json(dataclasses.asdict(report))
    sys.exit(exit_code)
