"""Tests of the backends that need a server run only if `FOREBAY_TEST_BACKENDS` names them, such as `redis,s3`."""

import os
from pathlib import Path

FOLDER = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    chosen = os.environ.get("FOREBAY_TEST_BACKENDS", "").split(",")
    folder = collection_path.relative_to(FOLDER).parts[:1] if collection_path.is_relative_to(FOLDER) else ()
    needs_server = bool(folder) and (FOLDER / folder[0]).is_dir()
    return True if needs_server and folder[0] not in chosen else None
