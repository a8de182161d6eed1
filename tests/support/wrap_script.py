"""Run a gateway with settings from JSON: `python wrap_script.py '{"url": …, "headers": […]}' '{"output_mode": …}'`.

The first argument has the settings of `wrap`, the second the options of the output policy.
"""

import json
import logging
import sys
import types
from typing import Any

from forebay.proxy.wrap import run_url


def main() -> None:
    arguments: dict[str, Any] = json.loads(sys.argv[1])
    options: dict[str, Any] = json.loads(sys.argv[2])
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    settings: Any = types.SimpleNamespace(
        spool_above_bytes=arguments.get("spool_above_bytes", 64 * 1024 * 1024),
        shutdown_grace_seconds=arguments.get("grace", 5.0),
        call_timeout_seconds=arguments.get("call_timeout"),
        policy_options=lambda: options,
    )
    sys.exit(run_url(settings, arguments["url"], arguments.get("headers", [])))


if __name__ == "__main__":
    main()
