"""Where the scripts are that tests start as processes."""

from pathlib import Path

SUPPORT = Path(__file__).parent
