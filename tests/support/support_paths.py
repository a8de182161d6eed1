"""The folder of the scripts that tests start as processes."""

from pathlib import Path

SUPPORT = Path(__file__).parent
