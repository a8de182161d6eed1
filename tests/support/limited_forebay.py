"""`forebay` with limits that are not options: `python limited_forebay.py '{"max_principals": 2}' serve …`."""

import dataclasses
import json
import sys
from typing import Any

from forebay.cli import main
from forebay.config import load


def apply_limits(limits: dict[str, Any]) -> None:
    load_settings = load.load_settings

    def load_limited(*args: Any) -> Any:
        return dataclasses.replace(load_settings(*args), **limits)

    load.load_settings = load_limited  # type: ignore[assignment]


def wait_longer() -> None:
    """Wait longer for servers at the start: under Wine, the import of an SDK may take seconds."""
    from forebay.hub import hub, tenant

    hub._LOAD_WAIT_SECONDS = tenant._CONNECT_WAIT_SECONDS = 60.0


if __name__ == "__main__":
    if sys.platform == "win32":
        wait_longer()
    apply_limits(json.loads(sys.argv.pop(1)))
    main()
