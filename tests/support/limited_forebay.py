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


if __name__ == "__main__":
    apply_limits(json.loads(sys.argv.pop(1)))
    main()
