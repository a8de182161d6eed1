"""Files that nobody else can read, such as those with tokens."""

import os
from pathlib import Path

from forebay.system import files

__all__ = ["write_private"]


def write_private(path: Path, text: str) -> Path:
    """Write a text to a file that only its owner can read, and return its path."""
    # As a new file: Windows gives a file its permissions when it is created.
    path.unlink(missing_ok=True)
    folder = files.open_folder(path.parent)
    try:
        fd = files.open_file(path.name, os.O_WRONLY | os.O_CREAT, folder)
    finally:
        os.close(folder)
    with os.fdopen(fd, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    return path
