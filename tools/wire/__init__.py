"""Recorded conversations with a build of the package, for `tools/wire_diff.py`."""
