"""Envelopes need no extra: receivers of results import them without the rest of operations."""

import subprocess
import sys

WITHOUT_EXTRA = """
import sys
sys.modules["jsonschema_rs"] = None
import forebay.envelope
assert "forebay.operations" not in sys.modules
"""


def test_envelopes_are_imported_without_the_extra() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_EXTRA], check=True, timeout=60)
